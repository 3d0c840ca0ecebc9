"""Random and mutated messages against every method of a service.

SCALABLE_AGENT_FUZZ_MESSAGES says how many; the default is for every day.
"""

import faulthandler
import json
import os
import struct
import time

import grpc
import numpy as np
import psutil
import pytest

from scalable_agent.learner_service import protocol
from scalable_agent.remote import channels
from scalable_agent.remote import wire
from tests import watchdog
from tests.remote import remote_parts
from tests.remote import test_wire

_NUM_MESSAGES = int(os.environ.get('SCALABLE_AGENT_FUZZ_MESSAGES', 4000))
_MAX_GROWTH_BYTES = 200 << 20
_WINDOW = 16
_MAX_ENVIRONMENTS = 3
_SPECIAL = (b'\xff' * 4, b'\0\0\x80\x7f', b'\0\0\xc0\x7f', b'\0\0\x80\xff',
            b'\xff\xff\xff\x7f', b'\0\0\0\x80', b'\0' * 4, b'\x02' * 4)
_ALLOWED = {
    grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED}


@pytest.fixture(autouse=True)
def bounded(pytestconfig):
  """As for all tests, but longer for more messages."""
  faulthandler.dump_traceback_later(
      watchdog.SECONDS + _NUM_MESSAGES / 50, exit=True,
      file=pytestconfig.terminal_stderr)
  yield
  faulthandler.cancel_dump_traceback_later()


class _Actor:
  """In place of an `actor.Actor`; checks what gets to it."""

  def act(self, ids, env_output, is_first, is_last):
    size = len(ids)
    assert ids.min() >= 0 and ids.max() < _MAX_ENVIRONMENTS
    assert len(set(ids)) == size == len(is_first) == len(is_last)
    assert env_output.reward.shape == (size,)
    assert env_output.observation[0].shape == (size, 2, 2, 1)
    words = env_output.observation[1]
    assert words.shape == (size, 3)
    assert words.min() >= -1 and words.max() < 1000
    return ids, np.zeros_like(ids)


def _json_value(rng, depth=0):
  kind = rng.integers(10 if depth < 4 else 7)
  if kind == 0:
    return None
  if kind == 1:
    return bool(rng.integers(2))
  if kind == 2:
    return int(rng.choice([-1, 0, 1, 2**31, 2**63, 2**64])) * 3
  if kind == 3:
    return float(rng.choice([0., -1.5, np.inf, np.nan, 1e300]))
  if kind < 7:
    return ['', 'easy', 'x' * 300, '\ud800', '\0\n', 'hard'][rng.integers(6)]
  if kind == 7:
    return {str(rng.integers(3)): _json_value(rng, depth + 1)
            for _ in range(rng.integers(4))}
  return [_json_value(rng, depth + 1) for _ in range(rng.integers(4))]


class Fuzzer:
  """Makes messages that are nearly good, and some that are not at all."""

  def __init__(self, seed):
    self._rng = np.random.default_rng(seed)
    self.session = None
    self._sequence = 0
    self._layouts = protocol.StepsLayouts(
        remote_parts.SPEC, _MAX_ENVIRONMENTS, remote_parts.NUM_ACTIONS)

  def good(self, method):
    """Returns a message, bytes, with nothing or little wrong with it."""
    rng = self._rng
    self._sequence += 1
    if method == 'PutUnroll':
      messages = []
      for _ in range(rng.integers(1, 4)):
        messages.append(remote_parts.put_message(
            self.session, self._sequence, int(rng.integers(8))))
        self._sequence += 1
      return wire.join(messages)
    if method == 'GetWeights':
      return struct.pack('<Qq', self.session, rng.integers(-1, 2))
    if method == 'Act':
      size = int(rng.integers(1, _MAX_ENVIRONMENTS + 1))
      return self._layouts.of_size(size)[0].encode(protocol.StepsMessage(
          rng.permutation(_MAX_ENVIRONMENTS)[:size].astype(np.int32),
          remote_parts.make_step_output(rng, size),
          is_first=np.zeros([size], bool), is_last=np.zeros([size], bool)))
    if method == 'Hello':
      value = json.loads(remote_parts.hello_message())
    else:
      value = dict(session=self.session, sequence=self._sequence,
                   episodes=[['easy', 1.5, 4]] * int(rng.integers(3)))
    for _ in range(rng.integers(3)):
      value[rng.choice(list(value))] = _json_value(rng)
    if rng.integers(4) == 0 and isinstance(value.get('agreement'), dict):
      name = rng.choice(list(value['agreement']) or ['width'])
      value['agreement'][name] = _json_value(rng)
    return json.dumps(value).encode()

  def message(self, method):
    """Returns bytes."""
    rng = self._rng
    kind = rng.integers(10)
    if kind == 0:
      return rng.bytes(rng.integers(0, 2000))
    message = bytearray(self.good(method))
    if kind == 1:
      return bytes(message)
    if kind == 2:
      message = bytearray(self.good(
          remote_parts.METHODS[rng.integers(len(remote_parts.METHODS))]))
    for _ in range(rng.integers(1, 4)):
      at = rng.integers(len(message)) if message else 0
      change = rng.integers(6)
      if change == 0:
        message[at:at + rng.integers(1, 50)] = b''
      elif change == 1:
        message[at:at] = rng.bytes(rng.integers(1, 50))
      elif change == 2:
        message[at:at + 4] = _SPECIAL[rng.integers(len(_SPECIAL))]
      elif change == 3 and message:
        start = rng.integers(len(message))
        message[at:at] = message[start:start + rng.integers(1, 200)]
      elif message:
        message[min(at, len(message) - 1)] ^= 1 << rng.integers(8)
    return bytes(message)

  def method(self):
    return remote_parts.METHODS[self._rng.integers(len(remote_parts.METHODS))]


def _send(raw, fuzzer, method):
  """Begins a call; returns what gives its status code."""
  if method != 'Act':
    future = raw.future(method, fuzzer.message(method))
    return future.code
  messages = [fuzzer.good('Act'), fuzzer.message('Act')]
  call = raw.channel.stream_stream(f'/{protocol.SERVICE}/Act')(
      iter(messages), timeout=60.,
      metadata=((channels.SESSION_KEY, str(fuzzer.session)),))
  def code():
    try:
      for _ in call:
        pass
    except grpc.RpcError:
      pass
    return call.code()
  return code


def _take_valid(learner):
  count = len(learner.queue)
  for unroll in learner.queue.get_many(count) if count else ():
    assert unroll.level_name in remote_parts.LEVELS
    assert unroll.policy_version == 0
    test_wire.assert_in_bounds(unroll, finite=False)
  return count


def _fuzz(inference, num_messages, caplog):
  options = {}
  if inference == 'learner':
    options = dict(make_actor=lambda levels: _Actor(),
                   max_environments=_MAX_ENVIRONMENTS)
  codes = {}
  taken = sent = 0
  process = psutil.Process()
  with remote_parts.Learner(capacity=1000, **options) as learner:
    with remote_parts.Raw(learner.port) as raw:
      fuzzer = Fuzzer(1)
      waiting = []
      before = next_session = 0
      slowest = 0.
      while sent < num_messages or waiting:
        while sent < num_messages and len(waiting) < _WINDOW:
          if sent >= next_session:
            # A session may have been spoilt, by its number for the last unroll.
            next_session += 100
            fuzzer.session = raw.hello(levels=['easy'] * _MAX_ENVIRONMENTS)
          method = fuzzer.method()
          waiting.append((method, _send(raw, fuzzer, method)))
          sent += 1
        method, code_of = waiting.pop(0)
        started = time.monotonic()
        code = code_of()
        slowest = max(slowest, time.monotonic() - started)
        codes[method, code.name] = codes.get((method, code.name), 0) + 1
        assert code in _ALLOWED, (method, code)
        taken += _take_valid(learner)
        if not before and sent > num_messages / 4:  # Threads are made by now.
          before = process.memory_info().rss
      grown = process.memory_info().rss - before
    # A good actor finds everything as it should be.
    with remote_parts.client_of(learner) as client:
      version = client.get_weights(-1)[1]
      client.put_unrolls([remote_parts.make_unroll(5, version)])
      assert remote_parts.same(
          learner.drain(1)[0], remote_parts.make_unroll(5))
    assert all(level in remote_parts.LEVELS and isinstance(value, float)
               for level, value, _ in learner.episodes)
  assert 'Traceback' not in caplog.text
  assert taken > 0
  assert codes['PutUnroll', 'INVALID_ARGUMENT'] > codes['PutUnroll', 'OK'] > 0
  assert grown < _MAX_GROWTH_BYTES
  print(f'\n{sent} messages with inference at the {inference}: {taken} unrolls '
        f'taken, all valid; memory grew by {grown >> 20} MiB; the slowest '
        f'answer took {slowest:.2f} s; {sorted(codes.items())}')


@pytest.mark.parametrize('inference', ['actor', 'learner'])
def test_no_message_does_harm(inference, caplog):
  _fuzz(inference, _NUM_MESSAGES // 2, caplog)
