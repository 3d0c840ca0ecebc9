"""Core states that are computed anew, against counts and the actor's own."""

import types

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import networks
from scalable_agent.environments import ArraySpec
from scalable_agent.replay import episode_buffer
from scalable_agent.replay import replayer as replayer_lib
from tests.replay import episodes

_T = 5


class _CountingAgent:
  """Its core state counts the steps of the episode, times a weight."""

  def initial_state(self, batch_size):
    return (np.zeros([batch_size, 1], np.float32),)

  def unroll(self, params, last_actions, env_outputs, core_state):
    (count,) = core_state
    for done in tf.unstack(env_outputs.done):
      count = tf.where(done[:, None], 0., count) + params['one']
    return (None, None), (count,)


def _make(agent, num_plays=3, num_unrolls=30, seed=0, end_probability=.15,
          **options):
  plays = [episodes.Play(name, num_unrolls * _T + 1, seed, end_probability)
           for name in range(num_plays)]
  replayer = replayer_lib.Replayer(
      episode_buffer.EpisodeBuffer(10_000, _T, seed), agent, _T, **options)
  replayer.extend([play.unroll(k, _T) for k in range(num_unrolls)
                   for play in plays])
  return plays, replayer


@pytest.mark.parametrize('end_probability', [.02, .15, .5])
def test_states_are_those_before_entry_0(end_probability):
  """The steps since the episode began, which are the next one's once it has.

  Each slot goes through its episode in order, and then takes another.
  """
  plays, replayer = _make(
      _CountingAgent(), end_probability=end_probability)
  replayer.publish(dict(one=tf.constant(1.)))
  expected_next = [None] * 8
  num_continued = 0
  for _ in range(40):
    unrolls = replayer.sample(8)
    assert len(unrolls) == 8
    for i, unroll in enumerate(unrolls):
      name, entry = episodes.entry_of(unroll)
      done = plays[name].done
      (count,) = unroll.agent_state
      if expected_next[i]:
        assert (name, entry) == expected_next[i] and count
        num_continued += 1
      else:
        assert done[entry] and count == 0
      begin = np.flatnonzero(done[:entry])[-1] if count else entry
      assert count == entry - begin
      # Entry 0 may be the first of the next episode: that is the end.
      ends = done[entry + 1:entry + _T + 1].any()
      expected_next[i] = None if ends else (name, entry + _T)
  assert num_continued > 5 or end_probability > .2


def test_states_are_of_the_newest_weights():
  """Every step counts by the weights of the update that it was replayed at."""
  play = episodes.Play(0, 101, seed=0, end_probability=0.)
  play.done[80] = True
  replayer = replayer_lib.Replayer(
      episode_buffer.EpisodeBuffer(100, _T, 0), _CountingAgent(), _T)
  replayer.extend([play.unroll(k, _T) for k in range(20)])
  states = []
  for weight in (100., 1., 10.):
    replayer.publish(dict(one=tf.constant(weight)))
    (unroll,) = replayer.sample(1)
    states.append(float(unroll.agent_state[0][0]))
  assert states == [0., 5., 55.]


@pytest.mark.parametrize('device, jit_compile', [
    ('/cpu:0', False), ('/cpu:1', True)])
def test_states_are_the_actors_own_while_weights_do_not_change(
    device, jit_compile):
  agent = networks.Agent(
      3, (ArraySpec((episodes.SIZE,), np.dtype(np.float32)),), 'vector', True)
  params = {name: tf.constant(value)
            for name, value in agent.initial_params(1).items()}
  plays, replayer = _make(agent, num_plays=2, num_unrolls=8, device=device,
                          jit_compile=jit_compile)
  replayer.publish(params)
  acted = []
  for play in plays:
    states = [agent.initial_state(1)]
    for k in range(len(play.done)):
      entry = play.outputs(slice(k, k + 1))
      states.append(agent.step(
          params, np.array([1, k]), play.action[k:k + 1],
          entry._replace(info=()), states[-1])[1])
    acted.append(states)
  num_late = 0
  for _ in range(12):
    for unroll in replayer.sample(3):
      name, entry = episodes.entry_of(unroll)
      if plays[name].done[entry]:
        continue  # The agent resets it.
      num_late += 1
      for found, expected in zip(unroll.agent_state, acted[name][entry]):
        np.testing.assert_allclose(found, expected[0], atol=1e-5)
  assert num_late > 5


def test_before_an_episode_is_whole_there_is_nothing():
  play = episodes.Play(0, 101, seed=0, end_probability=0.)
  play.done[42] = True
  replayer = replayer_lib.Replayer(
      episode_buffer.EpisodeBuffer(100, _T, 0), _CountingAgent(), _T)
  replayer.publish(dict(one=tf.constant(1.)))
  assert replayer.sample(4) == []
  assert replayer.take_gauges()['replaying_mb'] == 0
  # What is cut out last begins at entry 40, in unroll 8, and ends with it.
  for k in range(9):
    assert replayer.sample(4) == []
    replayer.extend([play.unroll(k, _T)])
  assert len(replayer.sample(4)) == 4


def test_an_episode_in_progress_is_replayed_to_its_end():
  """Although its unrolls have made room in the buffer meanwhile."""
  play = episodes.Play(0, 201, seed=0, end_probability=0.)
  play.done[[60, 200]] = True
  replayer = replayer_lib.Replayer(
      episode_buffer.EpisodeBuffer(20, _T, 0), _CountingAgent(), _T)
  replayer.publish(dict(one=tf.constant(1.)))
  replayer.extend([play.unroll(k, _T) for k in range(15)])
  entries = []
  for k in range(12):
    (unroll,) = replayer.sample(1)
    entries.append(episodes.entry_of(unroll)[1])
    replayer.extend([play.unroll(15 + k, _T)])
  assert entries == list(range(0, 60, 5))


def test_while_there_is_no_other_episode_nothing_is_replayed_twice():
  """An environment ends no more, and its last episode has made room."""
  play = episodes.Play(0, 301, seed=0, end_probability=0.)
  play.done[[20, 60, 245, 260]] = True
  replayer = replayer_lib.Replayer(
      episode_buffer.EpisodeBuffer(20, _T, 0), _CountingAgent(), _T)
  replayer.publish(dict(one=tf.constant(1.)))
  replayer.extend([play.unroll(k, _T) for k in range(15)])
  # Both episodes, of 4 and of 8 unrolls.
  for _ in range(100):
    replayer._slots = []
    replayer._last = []
    replayer.sample(2)
    if {slot and slot.num_left for slot in replayer._slots} == {20, 40}:
      break
  replayer.extend([play.unroll(k, _T) for k in range(15, 36)])
  found = [sorted(episodes.entry_of(u)[1] for u in replayer.sample(2))
           for _ in range(8)]
  assert found == [[5 * k, 20 + 5 * k] for k in range(1, 4)] + [[]] * 5
  # The one that was not over goes on, beside another one.
  replayer.extend([play.unroll(k, _T) for k in range(36, 56)])
  assert sorted(episodes.entry_of(u)[1] for u in replayer.sample(2)) == [
      40, 245]


def test_gauges_are_the_buffers_and_what_is_left_of_episodes():
  play = episodes.Play(0, 101, seed=0, end_probability=0.)
  play.done[37] = True
  replayer = replayer_lib.Replayer(
      episode_buffer.EpisodeBuffer(100, _T, 0), _CountingAgent(), _T)
  replayer.publish(dict(one=tf.constant(1.)))
  replayer.extend([play.unroll(k, _T) for k in range(15)])
  gauges = replayer.take_gauges()
  assert (gauges['replay_unrolls'], gauges['replaying_mb']) == (15, 0)
  each = gauges['replay_mb'] / 15
  for left in (8, 7, 6, 5, 4, 3, 2, 1, 8, 7):
    assert replayer.sample(2)
    assert replayer.take_gauges()['replaying_mb'] == pytest.approx(
        2 * left * each)


def test_close_closes_the_buffer():
  """A replay job's client ends who waits for it."""
  closed = []
  buffer = types.SimpleNamespace(close=lambda: closed.append(True))
  replayer_lib.Replayer(buffer, _CountingAgent(), _T).close()
  assert closed == [True]
