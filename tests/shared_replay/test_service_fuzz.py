"""Random and mutated messages against every method of a replay job.

SCALABLE_AGENT_FUZZ_MESSAGES says how many; the default is for every day.
"""

import json
import os
import time

import grpc
import numpy as np
import psutil
import pytest

from scalable_agent.remote import wire
from scalable_agent.shared_replay import protocol
from tests.learner_service import test_service_fuzz
from tests.remote import remote_parts
from tests.remote import test_wire
from tests.shared_replay import replay_parts

_NUM_MESSAGES = int(os.environ.get('SCALABLE_AGENT_FUZZ_MESSAGES', 3000))
_MAX_GROWTH_BYTES = 200 << 20
_WINDOW = 16
_CAPACITY = 300
_ALLOWED = {
    grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED}

bounded = test_service_fuzz.bounded


class _Fuzzer(test_service_fuzz.Fuzzer):
  """Makes messages that are nearly good, and some that are not at all."""

  methods = ()

  def good(self, method):
    rng = self._rng
    self._sequence += 1
    if method == 'Insert':
      messages = []
      for _ in range(rng.integers(1, 4)):
        messages.append(replay_parts.insert_message(
            self.session, self._sequence, int(rng.integers(8)),
            stream=np.int64(rng.integers(3))))
        self._sequence += 1
      return wire.join(messages)
    if method == 'Draw':
      return protocol.encode_draw(self.session, int(rng.integers(1, 40)))
    if method == 'Episode':
      return protocol.encode_session(self.session)
    if method == 'Fetch':
      return protocol.encode_fetch(
          self.session, rng.integers(-3, 2 * _CAPACITY, rng.integers(1, 20)))
    value = json.loads(replay_parts.hello_message())
    for _ in range(rng.integers(3)):
      value[rng.choice(list(value))] = test_service_fuzz._json_value(rng)
    if rng.integers(4) == 0 and isinstance(value.get('agreement'), dict):
      name = rng.choice(list(value['agreement']) or ['width'])
      value['agreement'][name] = test_service_fuzz._json_value(rng)
    return json.dumps(value).encode()

  def method(self):
    return self.methods[self._rng.integers(len(self.methods))]


@pytest.mark.parametrize('episodes', [False, True])
def test_no_message_does_harm(episodes, caplog, monkeypatch):
  methods = (replay_parts.EPISODE_METHODS if episodes else
             replay_parts.METHODS)
  monkeypatch.setattr(_Fuzzer, 'methods', methods)
  monkeypatch.setattr(remote_parts, 'METHODS', methods)
  codes, sent = {}, 0
  process = psutil.Process()
  with replay_parts.Job(capacity=_CAPACITY, episodes=episodes) as job:
    with replay_parts.Raw(job.port) as raw:
      fuzzer = _Fuzzer(1)
      waiting = []
      before = next_session = 0
      slowest = 0.
      while sent < _NUM_MESSAGES // 2 or waiting:
        while sent < _NUM_MESSAGES // 2 and len(waiting) < _WINDOW:
          if sent >= next_session:
            # A session may have been spoilt, by its number for the last unroll.
            next_session += 100
            fuzzer.session = raw.hello()
            # What is drawn has to be there.
            raw.answers('Insert', fuzzer.good('Insert'))
          method = fuzzer.method()
          messages = [fuzzer.message(method)
                      for _ in range(fuzzer._rng.integers(1, 3))]
          waiting.append((method, raw.stream(method, messages)))
          sent += 1
        method, stream = waiting.pop(0)
        started = time.monotonic()
        code = remote_parts._OneAnswer(stream).code()
        slowest = max(slowest, time.monotonic() - started)
        codes[method, code.name] = codes.get((method, code.name), 0) + 1
        assert code in _ALLOWED, (method, code)
        if not before and sent > _NUM_MESSAGES / 8:
          before = process.memory_info().rss
      grown = process.memory_info().rss - before
    # All that is kept is good, and a good learner finds it so.
    contents, layout = job.service._contents, replay_parts.layout()
    kept = contents._ring.numbers
    assert contents.state.num_kept <= _CAPACITY and len(kept) > 0
    for message in contents.fetch(list(kept), 1 << 30):
      test_wire.assert_in_bounds(layout.decode(bytes(message)))
    with replay_parts.client_of(job, episodes=episodes) as client:
      replay_parts.insert(client, [replay_parts.make_unroll(5)])
      if episodes:
        client.draw(3)
      else:
        assert 5 in [int(u.policy_version) for u in client.sample(2000)]
  assert 'Traceback' not in caplog.text
  assert grown < _MAX_GROWTH_BYTES
  for method in methods:
    assert codes[method, 'OK'] > 0, method
    assert codes[method, 'INVALID_ARGUMENT'] > 0, method
  print(f'\n{sent} calls, episodes {episodes}: {contents.state.num_inserted} '
        f'unrolls inserted, all valid; memory grew by {grown >> 20} MiB; the '
        f'slowest answer took {slowest:.2f} s; {sorted(codes.items())}')
