"""The actor's end, over connections that break and learners that come back."""

import logging as python_logging
import threading
import time
import types

import numpy as np
import pytest

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import networks
from scalable_agent import trajectories
from scalable_agent.jobs import policy_at_learner
from scalable_agent.learner_service import client as client_lib
from scalable_agent.learner_service import protocol
from scalable_agent.process import timing
from scalable_agent.remote import channels
from scalable_agent.remote import link as link_lib
from scalable_agent.unroll_messages import call_sizes
from tests.remote import remote_parts

pytestmark = pytest.mark.usefixtures('bounded')

_CLOSE_SECONDS = 5.


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .05)
  monkeypatch.setattr(link_lib, '_LONGEST_WAIT_SECONDS', .2)


def test_backoff_doubles_with_jitter(monkeypatch):
  monkeypatch.undo()
  backoff = link_lib.Backoff()
  first, longest = (link_lib._FIRST_WAIT_SECONDS,
                    link_lib._LONGEST_WAIT_SECONDS)
  for _ in range(2):
    for i in range(20):
      seconds = backoff.next()
      middle = min(first * 2**i, longest)
      assert .5 * middle <= seconds <= 1.5 * middle
    backoff.reset()
  assert len({link_lib.Backoff().next() for _ in range(10)}) > 1


def test_a_client_that_is_closed_leaves_no_threads():
  with remote_parts.Learner() as learner:
    before = set(threading.enumerate())
    with remote_parts.client_of(learner) as client:
      version = client.get_weights(-1)[1]
      client.put_unrolls([remote_parts.make_unroll(0, version)])
      link = remote_parts.make_link(learner.port)
      stream = link.open_stream('Act')
      link.close()
    # The service keeps some of its own for a while.
    remote_parts.wait_until(lambda: {
        thread.name for thread in set(threading.enumerate()) - before
        } <= {'service'}, _CLOSE_SECONDS)
    with pytest.raises(client_lib.Closed):
      link.open_stream('Act')
    del stream  # Which nobody else closed.


def test_an_actor_may_come_first(caplog):
  caplog.set_level(python_logging.INFO)
  with remote_parts.Learner() as learner:
    port = learner.port
  client = remote_parts.make_client(port)
  thread = remote_parts.Thread(client.get_weights, -1)
  time.sleep(1.)
  # It said so at once, and not with every attempt.
  assert caplog.text.count('out of reach') == 1
  with remote_parts.Learner(port=port):
    assert thread.result()[1] % (1 << 48) == 0
    client.close()
  assert f'Connected to the learner at 127.0.0.1:{port}' in caplog.text


def test_a_learner_is_not_looked_for_behind_a_web_proxy(monkeypatch):
  """Which many clusters name in the environment of all programs."""
  for name in ('http_proxy', 'https_proxy'):
    monkeypatch.setenv(name, 'http://127.0.0.1:9')
  with remote_parts.Learner() as learner:
    with remote_parts.client_of(learner) as client:
      assert remote_parts.Thread(client.get_weights, -1).result(
          _CLOSE_SECONDS)


def test_close_ends_a_wait_for_the_learner():
  with remote_parts.Learner() as learner:
    port = learner.port
  client, link = remote_parts.make_client(port), remote_parts.make_link(port)
  threads = [remote_parts.Thread(client.get_weights, -1),
             remote_parts.Thread(link.open_stream, 'Act'),
             remote_parts.Thread(client.sleep, 60.)]
  time.sleep(.3)
  client.close()
  link.close()
  for thread in threads:
    with pytest.raises(client_lib.Closed):
      thread.result(_CLOSE_SECONDS)
  for call in (lambda: client.get_weights(-1), lambda: link.open_stream('Act'),
               lambda: client.put_episodes([]), lambda: client.sleep(0.)):
    with pytest.raises(client_lib.Closed):
      call()


def _wait_for_room(client):
  """Fills a queue of one unroll; returns a thread that has another for it."""
  version = client.get_weights(-1)[1]
  client.put_unrolls([remote_parts.make_unroll(0, version)])
  return remote_parts.Thread(
      client.put_unrolls, [remote_parts.make_unroll(1, version)])


def test_close_ends_a_wait_for_room():
  with remote_parts.Learner(capacity=1) as learner:
    client = remote_parts.make_client(learner.port)
    thread = _wait_for_room(client)
    time.sleep(.3)
    client.close()
    with pytest.raises(client_lib.Closed):
      thread.result(_CLOSE_SECONDS)


@pytest.mark.parametrize('size, wait', [(1, True), (6, True), (1, False)])
def test_unrolls_survive_cut_connections(monkeypatch, size, wait):
  """Every one arrives once, in order, though answers are lost.

  Of several that are put at once, or without waiting, two are under way.
  """
  monkeypatch.setattr(call_sizes, 'MAX_CALL_BYTES', 1)
  with remote_parts.Learner(capacity=2) as learner:
    with remote_parts.Proxy(learner.port) as proxy:
      client = remote_parts.make_client(proxy.port)
      version = client.get_weights(-1)[1]
      sent = [remote_parts.make_unroll(i, version) for i in range(30)]

      def put():
        for start in range(0, len(sent), size):
          client.put_unrolls(sent[start:start + size], wait)
        client.put_unrolls([])

      thread = remote_parts.Thread(put)
      for i, unroll in enumerate(sent):
        if i % 5 == 2:
          proxy.cut()
        assert remote_parts.same(learner.drain(1)[0], unroll)
      thread.result()
      assert client.num_dropped == 0
      assert proxy.num_connections > 3
      client.close()
    time.sleep(.2)
    assert not len(learner.queue)


def test_threads_share_one_way_back(caplog):
  caplog.set_level(python_logging.INFO)
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Proxy(learner.port) as proxy:
      client = remote_parts.make_client(proxy.port)
      version = client.get_weights(-1)[1]
      client.put_unrolls([remote_parts.make_unroll(0, version)])
      stop = []

      def ask():
        while not stop:
          assert client.get_weights(version) is None

      threads = [remote_parts.Thread(ask) for _ in range(6)]
      waiting = remote_parts.Thread(
          client.put_unrolls, [remote_parts.make_unroll(1, version)])
      time.sleep(.3)
      proxy.cut()
      time.sleep(.7)
      stop.append(True)
      learner.drain(2)
      for thread in threads + [waiting]:
        thread.result()
      client.close()
  assert caplog.text.count('Lost the learner') == 1
  assert caplog.text.count('Connected to') == 2
  assert caplog.text.count('has joined') == 1


def test_the_learner_says_how_many_levels_nobody_plays(caplog):
  caplog.set_level(python_logging.INFO)
  with remote_parts.Learner() as learner:
    for task, level, ends in (
        (0, 'hard', '; 1 of 2 levels have no environment yet'),
        (1, 'easy', ''), (0, 'hard', '')):
      caplog.clear()
      client = remote_parts.make_client(
          learner.port, task=task, levels=[level])
      client.get_weights(-1)
      client.close()
      (line,) = [record.getMessage() for record in caplog.records
                 if 'has joined' in record.getMessage()]
      assert ''.join(line.partition(';')[1:]) == ends


def test_a_restarted_learner_gets_nothing_of_its_former_life(caplog):
  caplog.set_level(python_logging.INFO)
  learner = remote_parts.Learner(capacity=1)
  learner.service.update(remote_parts.weights_of(9), 9)
  client = remote_parts.make_client(learner.port)
  weights, version = client.get_weights(-1)
  assert (weights['b'] == 9).all()
  client.put_unrolls([remote_parts.make_unroll(0, version)])
  waiting = remote_parts.Thread(
      client.put_unrolls, [remote_parts.make_unroll(1, version)])
  session = client.session
  time.sleep(.2)
  learner.close()
  time.sleep(.5)
  assert waiting.is_alive()  # And keeps trying.

  with remote_parts.Learner(port=learner.port) as again:
    # It resumed with the same number of steps, and yet with other weights.
    again.service.update(remote_parts.weights_of(7), 9)
    waiting.result()
    client.put_unrolls([remote_parts.make_unroll(2, version)])
    assert client.num_dropped == 2
    assert client.session != session
    weights, new_version = client.get_weights(version)
    assert (weights['b'] == 7).all() and new_version > version
    client.put_unrolls([remote_parts.make_unroll(3, new_version)])
    client.put_episodes([trajectories.Episode('easy', 2.5, 8)])
    assert remote_parts.same(
        again.drain(1)[0], remote_parts.make_unroll(3))
    assert not len(again.queue)
    assert again.episodes == [('easy', 2.5, 8)]
    client.close()
  assert 'which has been restarted' in caplog.text


def test_the_levels_of_a_restarted_learner_are_its_own(monkeypatch):
  learner = remote_parts.Learner()
  client = remote_parts.make_client(learner.port)
  version = client.get_weights(-1)[1]
  client.put_unrolls([remote_parts.make_unroll(0, version, 'hard')])
  learner.close()
  monkeypatch.setattr(remote_parts, 'LEVELS', ['new', 'hard', 'easy'])
  # As a learner of three levels makes it.
  monkeypatch.setattr(
      remote_parts, 'unroll_layout',
      lambda n=3, make=remote_parts.unroll_layout: make(n))
  with remote_parts.Learner(port=learner.port) as again:
    version = client.get_weights(version)[1]
    for level in ('hard', 'easy'):
      client.put_unrolls([remote_parts.make_unroll(0, version, level)])
    assert [u.level_name for u in again.take(2)] == ['hard', 'easy']
    client.close()


def test_many_episodes_go_in_several_calls():
  with remote_parts.Learner() as learner:
    with remote_parts.client_of(learner) as client:
      client.put_episodes([trajectories.Episode('easy', float(i), i)
                           for i in range(protocol.MAX_EPISODES_PER_CALL + 1)])
      client.put_episodes([])
    assert [frames for _, _, frames in learner.episodes] == list(
        range(protocol.MAX_EPISODES_PER_CALL + 1))


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_arrives_as_it_was(value):
  """As from a thread: the learner skips the update."""
  with remote_parts.Learner() as learner:
    with remote_parts.client_of(learner) as client:
      unroll = remote_parts.make_unroll(0, client.get_weights(-1)[1])
      unroll.env_outputs.reward[1] = value
      client.put_unrolls([unroll])
      client.put_episodes([trajectories.Episode('easy', value, 7)])
    (arrived,) = learner.take(1)
    np.testing.assert_array_equal(
        arrived.env_outputs.reward, unroll.env_outputs.reward)
    np.testing.assert_equal(learner.episodes, [('easy', value, 7)])


def test_weights_that_are_not_as_agreed_are_refused():
  other = protocol.weights_layout({'a/w': np.zeros([3], np.float32)})
  with remote_parts.Learner(weights_layout=other) as learner:
    learner.service.update({'a/w': np.zeros([3], np.float32)}, 1)
    with remote_parts.client_of(learner) as client:
      with pytest.raises(client_lib.Refused, match='weights'):
        client.get_weights(-1)


# -- Keepalive ----------------------------------------------------------------


@pytest.fixture
def short_keepalive(monkeypatch):
  monkeypatch.setattr(channels, '_KEEPALIVE_MS', 500)


def test_an_idle_connection_lasts(short_keepalive, monkeypatch):
  """Or the learner would find fault with so many pings, and hang up."""
  channel_options = channels.channel_options

  def patient_options(max_message_bytes):
    # The pings are as frequent, but a busy machine may answer one late.
    return [*dict(channel_options(max_message_bytes), **{
        'grpc.keepalive_timeout_ms': 20_000,
        'grpc.http2.ping_timeout_ms': 20_000}).items()]

  monkeypatch.setattr(channels, 'channel_options', patient_options)
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Proxy(learner.port) as proxy:
      client = remote_parts.make_client(proxy.port)
      version = client.get_weights(-1)[1]
      time.sleep(4.)  # Without a call.
      client.put_unrolls([remote_parts.make_unroll(0, version)])
      thread = remote_parts.Thread(
          client.put_unrolls, [remote_parts.make_unroll(1, version)])
      time.sleep(4.)  # With one.
      learner.drain(2)
      thread.result()
      assert proxy.num_connections == 1
      client.close()


def test_a_cut_cable_is_noticed(short_keepalive, caplog):
  with remote_parts.Learner(capacity=1) as learner:
    with remote_parts.Proxy(learner.port) as proxy:
      client = remote_parts.make_client(proxy.port)
      thread = _wait_for_room(client)
      time.sleep(.3)
      proxy.silence()
      remote_parts.wait_until(lambda: 'Lost the learner' in caplog.text, 20.)
      learner.drain(2)
      thread.result()
      client.close()
    time.sleep(.2)
    assert not len(learner.queue)


# -- Inference at the learner -------------------------------------------------


class CountingPool(environments.Pool):
  """N environments, some of which are ready at a time, in turns.

  The frame is [identity, steps in all] in bytes; an episode has 5 steps. If
  `lifetime` is not None, an environment that has taken so many steps is
  replaced instead of taking another.
  """

  num_actions = remote_parts.NUM_ACTIONS
  observation_spec = remote_parts.SPEC

  def __init__(self, num_environments, batch_size=None, seconds=0.,
               lifetime=None):
    self.num_environments = num_environments
    self.level_names = [remote_parts.LEVELS[i % 2]
                        for i in range(num_environments)]
    self._seconds = seconds
    self._lifetime = lifetime
    self._batch_size = batch_size or num_environments
    self._steps = np.zeros([num_environments], np.int32)
    self._rewards = np.zeros([num_environments], np.float32)
    self._ready = list(range(num_environments))
    self._closed = False

  def recv(self):
    time.sleep(self._seconds)
    if self._closed:
      raise environments.PoolError('closed')
    ids = np.array(self._ready[:self._batch_size], np.int32)
    self._ready = self._ready[self._batch_size:]
    steps = self._steps[ids]
    is_last = (steps > 0) & (steps % 5 == 0)
    frame = np.zeros([len(ids), 2, 2, 1], np.uint8)
    frame[:, 0, 0, 0] = ids
    frame[:, 0, 1, 0], frame[:, 1, 0, 0] = np.divmod(steps, 256)
    info = environments.StepOutputInfo(
        10.25 * steps.astype(np.float32), steps)
    return environments.PoolOutput(ids, environments.StepOutput(
        self._rewards[ids], info, is_last | (steps == 0),
        (frame, np.tile(steps[:, None] % 7, 3).astype(np.int32))),
                                   steps == 0, is_last)

  def send(self, ids, actions):
    dies = self._steps[ids] == self._lifetime
    self._steps[ids] = np.where(dies, 0, self._steps[ids] + 1)
    self._rewards[ids] = np.where(dies, 0., actions + ids / 8)
    self._ready += list(ids)

  def close(self):
    self._closed = True


def _policy(last_actions, env_outputs, core_state):
  """Depends on all it is given; the state counts its calls."""
  frame = env_outputs.observation[0].reshape(len(last_actions), -1).sum(1)
  logits = (np.arange(remote_parts.NUM_ACTIONS)[None] * .5 +
            frame[:, None] + env_outputs.reward[:, None]).astype(np.float32)
  action = ((last_actions + frame + env_outputs.done) %
            remote_parts.NUM_ACTIONS).astype(np.int32)
  keep = ~env_outputs.done[:, None]
  state = networks.LSTMState(*(s * keep + 1 for s in core_state))
  baseline = core_state.c[:, 0] + last_actions
  return (trajectories.AgentOutput(action, logits, baseline.astype(np.float32)),
          state, np.full([len(action)], 6, np.int64))


def _make_actor(put_unroll, report_episode):
  return lambda levels: actor.Actor(
      levels, remote_parts.NUM_ACTIONS, _policy,
      remote_parts.initial_state(len(levels)), remote_parts.UNROLL_LENGTH,
      4, put_unroll, report_episode, timing.StageTimes())


class Enough(Exception):
  pass


class NanPool(CountingPool):
  """Its rewards and returns are not numbers."""

  def recv(self):
    output = super().recv()
    step_output = output.step_output
    nan = np.full_like(step_output.reward, np.nan)
    return output._replace(step_output=step_output._replace(
        reward=nan, info=step_output.info._replace(episode_return=nan)))


def _local_unrolls(pool, count):
  unrolls = []
  episodes = []

  def put(unroll):
    unrolls.append(unroll)
    if len(unroll) and len(unrolls) == count:
      raise Enough

  with pytest.raises(Enough):
    actor.run_actor(
        pool, _make_actor(put, episodes.append)(pool.level_names))
  return unrolls, episodes


def _acting_learner(capacity=1000, **options):
  episodes = []
  learner = remote_parts.Learner(
      capacity=capacity,
      agreement=remote_parts.make_agreement(inference='learner'),
      make_actor=lambda levels: _make_actor(
          learner.queue.put, episodes.append)(levels), **options)
  return learner, episodes


def _actors(port, *pools):
  config = types.SimpleNamespace(
      **dict(remote_parts.SETTINGS, inference='learner'))
  return policy_at_learner.Actors(
      config, list(pools), remote_parts.link_maker(port))


@pytest.mark.parametrize('size, batch_size', [(1, 1), (4, 4), (5, 2)])
def test_inference_at_the_learner_is_inference_at_the_actor(size, batch_size):
  count = 12 * size
  expected, expected_episodes = _local_unrolls(
      CountingPool(size, batch_size), count)
  learner, episodes = _acting_learner()
  with learner:
    actors = _actors(learner.port, CountingPool(size, batch_size))
    unrolls = learner.take(count)
    actors.check()
    actors.close()
  for a, b in zip(expected, unrolls, strict=True):
    assert remote_parts.same(a, b)
    assert b.policy_version == 6
  assert len(expected_episodes) > 3 * size
  assert episodes[:len(expected_episodes)] == expected_episodes


def test_a_reward_that_is_not_finite_does_not_end_the_actors():
  learner, episodes = _acting_learner()
  with learner:
    actors = _actors(learner.port, NanPool(2))
    unrolls = learner.take(8)
    actors.check()
    actors.close()
  for unroll in unrolls:
    assert np.isnan(unroll.env_outputs.reward).all()
  assert episodes and all(np.isnan(e.episode_return) for e in episodes)


def _steps_of(unroll):
  """Identity and steps in all, [T + 1] each."""
  frame = unroll.env_outputs.observation[0].astype(int)
  return frame[:, 0, 0, 0], frame[:, 0, 1, 0] * 256 + frame[:, 1, 0, 0]


def test_an_environment_that_is_replaced_begins_anew_at_the_learner():
  count = 30
  expected, _ = _local_unrolls(CountingPool(3, 2, lifetime=7), count)
  learner, _ = _acting_learner()
  with learner:
    actors = _actors(learner.port, CountingPool(3, 2, lifetime=7))
    unrolls = learner.take(count)
    actors.check()
    actors.close()
  for a, b in zip(expected, unrolls, strict=True):
    assert remote_parts.same(a, b)
    # Step 7 is in none: the environment dies before an unroll is full.
    _, steps = _steps_of(b)
    assert steps.tolist() in ([0, 1, 2, 3], [3, 4, 5, 6])


def test_no_unroll_is_of_two_streams():
  size = 3
  learner, episodes = _acting_learner(capacity=8)
  with learner, remote_parts.Proxy(learner.port) as proxy:
    actors = _actors(proxy.port, CountingPool(size, 2, seconds=.002))
    unrolls = []
    for i in range(40):
      unrolls += learner.drain(3)
      if i % 10 == 5:
        proxy.cut()
    actors.check()
    actors.close()
    assert proxy.num_connections == 5
  last = [None] * size
  num_fresh = 0
  for unroll in unrolls:
    ids, steps = _steps_of(unroll)
    (identity,) = set(ids)
    # One environment's, without a gap, with the actions that led to it.
    np.testing.assert_array_equal(np.diff(steps), 1)
    np.testing.assert_array_equal(
        unroll.env_outputs.reward[1:],
        unroll.agent_outputs.action[1:] + identity / 8)
    dones = (steps % 5 == 0)
    np.testing.assert_array_equal(unroll.env_outputs.done[1:], dones[1:])
    before = last[identity]
    last[identity] = unroll
    if before is not None and _steps_of(before)[1][-1] == steps[0]:
      for a, b in zip((before.env_outputs.reward, before.env_outputs.done,
                       before.agent_outputs.action),
                      (unroll.env_outputs.reward, unroll.env_outputs.done,
                       unroll.agent_outputs.action)):
        if a[-1] != b[0]:
          break
      else:
        continue
    num_fresh += 1
    assert unroll.env_outputs.done[0]
    assert (unroll.agent_state.c == 0).all()
    assert unroll.agent_outputs.action[0] == 0
  # All three at the start, and at each of the four cuts.
  assert num_fresh == size * 5
  # What ended while the connection did is reported no more than once.
  keys = [(e.level_name, e.episode_frames) for e in episodes]
  for level in remote_parts.LEVELS:
    count = {'easy': 2, 'hard': 1}[level]
    for key in set(keys):
      if key[0] == level:
        assert keys.count(key) <= count


def test_actors_end_with_the_training():
  learner, _ = _acting_learner()
  with learner:
    actors = _actors(learner.port, CountingPool(2), CountingPool(1))
    learner.take(4)
    learner.service.finish()
    with pytest.raises(client_lib.TrainingDone):
      while True:
        actors.check()
        time.sleep(.01)
    actors.close()


def test_actors_close_while_they_wait():
  with remote_parts.Learner() as learner:
    port = learner.port
  actors = _actors(port, CountingPool(2), CountingPool(2))
  time.sleep(.3)
  actors.check()
  started = time.monotonic()
  actors.close()
  assert time.monotonic() - started < _CLOSE_SECONDS


def test_actors_say_what_the_learner_refuses():
  with remote_parts.Learner() as learner:
    actors = _actors(learner.port, CountingPool(2))
    with pytest.raises(client_lib.Refused, match='--inference is "actor"'):
      while True:
        actors.check()
        time.sleep(.01)
    actors.close()


def test_answers_that_are_not_as_agreed_are_refused(monkeypatch):
  class Wild:
    def act(self, ids, *unused_args):
      return ids, np.full_like(ids, remote_parts.NUM_ACTIONS)
  with remote_parts.Learner(
      agreement=remote_parts.make_agreement(inference='learner'),
      make_actor=lambda levels: Wild()) as learner:
    actors = _actors(learner.port, CountingPool(2))
    with pytest.raises(client_lib.Refused, match='actions'):
      while True:
        actors.check()
        time.sleep(.01)
    actors.close()
