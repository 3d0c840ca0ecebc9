import itertools
import queue as queue_lib
import threading

import hypothesis.strategies as st
from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import networks
from scalable_agent import policy as policy_lib
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.process import threads as threads_lib
from scalable_agent.process import timing
from scalable_agent.training import batched_a2c
from tests.networks import agents

# An end to waits that should be short; the machine may be busy.
_LONG = 30.0
_NUM_ACTIONS = 7
_LENGTHS = (3, 5, 8, 13, 2)

pytestmark = pytest.mark.usefixtures('bounded')


class _FakePool(environments.Pool):
  """Environments of different speeds, some of which are ready at a time.

  The frame is [environment, steps so far], the reward the action that was taken
  plus 10 times the environment. Environment i ends its episodes after
  `lengths[i]` steps; `done` is also set in the middle of an episode, as where a
  life is lost.
  """

  def __init__(self, lengths=_LENGTHS, seed=0, num_recvs=None,
               answers_any=False):
    self._answers_any = answers_any  # As `ProcessPool`.
    self.num_environments = len(lengths)
    self.num_actions = _NUM_ACTIONS
    self.observation_spec = (environments.ArraySpec((2,), np.float32),)
    self.level_names = [f'level_{i}' for i in range(len(lengths))]
    self._lengths = np.array(lengths)
    self._rng = np.random.default_rng(seed)
    self._num_recvs = num_recvs
    self._waiting = np.zeros([len(lengths)], int)  # Ticks until ready.
    self._ids = None
    self._closed = False
    n = len(lengths)
    self._steps = np.zeros([n], np.int32)
    self._outputs = environments.StepOutput(
        reward=np.zeros([n], np.float32),
        info=environments.StepOutputInfo(
            np.zeros([n], np.float32), np.zeros([n], np.int32)),
        done=np.ones([n], bool),
        observation=(self._frames(),))
    self._is_first = np.ones([n], bool)
    self._is_last = np.zeros([n], bool)

  def _frames(self):
    return np.stack([np.arange(self.num_environments), self._steps],
                    axis=1).astype(np.float32)

  def recv(self):
    assert self._ids is None or self._answers_any, 'recv without send'
    if self._num_recvs is not None:
      self._num_recvs -= 1
    if self._closed or self._num_recvs == -1:
      raise environments.PoolError('The pool is closed.')
    assert (self._waiting >= 0).any(), 'recv would wait for ever'
    while not (self._waiting == 0).any():
      self._waiting -= self._waiting > 0
    self._ids = self._rng.permutation(np.flatnonzero(self._waiting == 0))
    self._waiting[self._ids] = -1  # Handed out.
    self._ids = self._ids.astype(np.int32)
    take = lambda a: a[self._ids].copy()
    return environments.PoolOutput(
        self._ids, tree.map_structure(take, self._outputs),
        take(self._is_first), take(self._is_last))

  def send(self, ids, actions):
    if not self._answers_any:
      np.testing.assert_array_equal(ids, self._ids)
    assert len(ids), 'there is nothing to send'
    assert (self._waiting[ids] == -1).all()
    assert len(set(ids)) == len(ids)
    assert actions.shape == ids.shape and actions.dtype == np.int32
    self._ids = None
    self._waiting[self._waiting > 0] -= 1
    self._waiting[ids] = self._rng.integers(1, 2 + ids)
    self._steps[ids] += 1
    step_in_episode = (self._steps[ids] - 1) % self._lengths[ids] + 1
    rewards = (actions + 10 * ids).astype(np.float32)
    totals = self._outputs.info.episode_return[ids]
    totals = np.where(step_in_episode == 1, 0, totals) + rewards
    self._outputs.reward[ids] = rewards
    self._outputs.info.episode_return[ids] = totals
    self._outputs.info.episode_step[ids] = step_in_episode
    self._is_first[ids] = False
    self._is_last[ids] = step_in_episode == self._lengths[ids]
    self._outputs.done[ids] = (
        self._is_last[ids] | (step_in_episode == 4))
    self._outputs.observation[0][ids] = self._frames()[ids]

  def close(self):
    self._closed = True


def _action_on(environment, step):
  """What the counting policy does on seeing that frame."""
  return (3 * environment + step * step + 1) % _NUM_ACTIONS


class _CountingPolicy:
  """Its state counts its calls by environment; its version all its calls.

  Logits are [environment, steps seen, calls before, ...] and the baseline is
  the version of the weights, so that an output tells where it is from.
  """

  def __init__(self):
    self.version = 0
    self.batch_sizes = []

  def __call__(self, last_actions, env_outputs, core_state):
    assert env_outputs.info == ()
    self.version += 1
    self.batch_sizes.append(len(last_actions))
    environment, step = env_outputs.observation[0].astype(int).T
    calls, last = core_state.c[:, 0], core_state.h[:, 0]
    np.testing.assert_array_equal(calls, step)
    # The state travels with its environment, and so does the last action.
    np.testing.assert_array_equal(last, np.where(step == 0, 0, environment))
    np.testing.assert_array_equal(
        last_actions,
        np.where(step == 0, 0, _action_on(environment, step - 1)))
    logits = np.zeros([len(step), _NUM_ACTIONS], np.float32)
    logits[:, 0], logits[:, 1], logits[:, 2] = environment, step, calls
    output = trajectories.AgentOutput(
        action=_action_on(environment, step).astype(np.int32),
        policy_logits=logits,
        baseline=np.full([len(step)], self.version, np.float32))
    state = networks.LSTMState(
        (calls + 1)[:, np.newaxis],
        environment.astype(np.float32)[:, np.newaxis])
    return output, state, np.full([len(step)], self.version, np.int64)


def _initial_state(batch):
  return networks.LSTMState(*(np.zeros([batch, 1], np.float32)
                              for _ in range(2)))


def _run(pool, policy, initial_state, unroll_length, put_unroll,
         report_episode=lambda episode: None, repeats=1, times=None, **kwargs):
  actor.run_actor(pool, actor.Actor(
      pool.level_names, pool.num_actions, policy, initial_state, unroll_length,
      repeats, put_unroll, report_episode, times or timing.StageTimes(),
      **kwargs))


def _unrolls(unroll_length, num_recvs=150, lengths=_LENGTHS, **kwargs):
  """All unrolls of a run with the counting policy, and the policy."""
  unrolls, policy = [], _CountingPolicy()
  with pytest.raises(environments.PoolError):
    _run(_FakePool(lengths, num_recvs=num_recvs), policy,
         _initial_state(len(lengths)), unroll_length, unrolls.append, **kwargs)
  return unrolls, policy


def _by_environment(unrolls):
  result = [[] for _ in _LENGTHS]
  for unroll in unrolls:
    (i,) = set(unroll.env_outputs.observation[0][:, 0].astype(int))
    assert unroll.level_name == f'level_{i}'
    result[i].append(unroll)
  return result


@pytest.mark.parametrize('unroll_length', [1, 4, 10])
def test_unrolls_overlap_by_one(unroll_length):
  """The last entry of an unroll is the first of the same environment's next."""
  unrolls, policy = _unrolls(unroll_length)
  assert len(set(policy.batch_sizes)) > 2
  counts = []
  for mine in _by_environment(unrolls):
    counts.append(len(mine))
    for k, unroll in enumerate(mine):
      frames = unroll.env_outputs.observation[0][:, 1]
      np.testing.assert_array_equal(
          frames, np.arange(k * unroll_length, (k + 1) * unroll_length + 1))
    for unroll, following in zip(mine, mine[1:]):
      tree.map_structure(
          lambda a, b: np.testing.assert_array_equal(a[-1], b[0]),
          (unroll.env_outputs, unroll.agent_outputs),
          (following.env_outputs, following.agent_outputs))
  # Fast environments do not wait for slow ones.
  assert max(counts) > min(counts) >= 2


class _AccidentProneFakePool(_FakePool):
  """Now and then an environment is a new one instead of taking the step."""

  num_accidents = 0

  def send(self, ids, actions):
    super().send(ids, actions)
    ids = ids[self._rng.random(len(ids)) < .1]
    self.num_accidents += len(ids)
    self._steps[ids] = 0
    for values in tree.flatten(self._outputs._replace(done=())):
      values[ids] = 0
    self._outputs.done[ids] = True
    self._outputs.observation[0][ids] = self._frames()[ids]
    self._is_first[ids] = True
    self._is_last[ids] = False


def test_the_unroll_of_a_replaced_environment_is_dropped():
  """And state, last action and unroll of the new one begin anew.

  That the state and the action do is for the counting policy to see.
  """
  pool, unrolls = _AccidentProneFakePool(num_recvs=300), []
  with pytest.raises(environments.PoolError):
    _run(pool, _CountingPolicy(), _initial_state(len(_LENGTHS)), 4,
         unrolls.append)
  assert pool.num_accidents > 10
  num_first = 0
  last = {}
  for mine in _by_environment(unrolls):
    for unroll in mine:
      # A stream is an environment until another takes its place.
      start = unroll.env_outputs.observation[0][0]
      np.testing.assert_array_equal(last.get(unroll.stream, start), start)
      assert (unroll.stream in last) == (start[1] > 0)
      last[unroll.stream] = unroll.env_outputs.observation[0][-1]
      frames = unroll.env_outputs.observation[0][:, 1]
      np.testing.assert_array_equal(frames, frames[0] + np.arange(5))
      if frames[0] == 0:
        num_first += 1
        assert unroll.env_outputs.done[0]
        assert unroll.env_outputs.reward[0] == 0
        assert not any(a[0].any() for a in unroll.agent_outputs)
        assert not unroll.agent_state.c.any()
  assert num_first > len(_LENGTHS) + 5


def _output(ids, step=0):
  """A `StepOutput` of some environments of `_FakePool`, made up."""
  zeros = np.zeros([len(ids)], np.float32)
  frames = np.stack([ids, np.full_like(ids, step)], 1).astype(np.float32)
  return environments.StepOutput(
      zeros, environments.StepOutputInfo(zeros, zeros.astype(np.int32)),
      np.zeros([len(ids)], bool), (frames,))


def test_environments_that_are_replaced_together_are_different_streams():
  ids = np.arange(3, dtype=np.int32)
  entry = _output(ids), actor.initial_output(3, _NUM_ACTIONS)
  buffer = actor.UnrollBuffer(['a', 'b', 'c'], 1, *entry, ())
  buffer.append(ids, *entry)
  old = {unroll.stream for unroll in buffer.append(ids, *entry)}
  buffer.drop(ids[:2])
  buffer.append(
      ids[:2], *tree.map_structure(lambda array: array[:2], entry))
  unrolls = buffer.append(ids, *entry)
  new = [unroll.stream for unroll in unrolls]
  assert len(unrolls) == len(set(new)) == 3
  assert old & set(new) == {new[2]}


@given(st.integers(1, 9), st.integers(1, 7))
def test_staggered_environments_finish_in_turn(num_environments, unroll_length):
  """As many at each step as any other, but for one; their unrolls are whole."""
  ids = np.arange(num_environments, dtype=np.int32)
  outputs = actor.initial_output(num_environments, _NUM_ACTIONS)
  buffer = actor.UnrollBuffer(
      ['level'] * num_environments, unroll_length, _output(ids), outputs, (),
      is_staggered=True)
  buffer.drop(ids)
  finished = []
  for step in range(4 * unroll_length):
    finished.append(buffer.append(ids, _output(ids, step), outputs))
  counts = [len(unrolls) for unrolls in finished[2 * unroll_length:]]
  assert sum(counts) == 2 * num_environments
  assert max(counts) - min(counts) <= 1
  nexts = {}
  for unroll in itertools.chain.from_iterable(finished):
    mine, steps = unroll.env_outputs.observation[0].T
    assert len(set(mine)) == 1
    first = nexts.get(mine[0], steps[0])
    assert first < unroll_length or mine[0] in nexts
    np.testing.assert_array_equal(
        steps, first + np.arange(unroll_length + 1))
    nexts[mine[0]] = steps[-1]
  # Who takes the place of one that is gone begins at once.
  buffer.drop(ids)
  for _ in range(unroll_length):
    assert not buffer.append(ids, _output(ids), outputs)
  assert len(buffer.append(ids, _output(ids), outputs)) == num_environments


@pytest.mark.parametrize('is_staggered', [False, True])
def test_an_actor_that_staggers_begins_first_unrolls_in_turn(is_staggered):
  unrolls, _ = _unrolls(10, is_staggered=is_staggered)
  firsts = [int(mine[0].env_outputs.observation[0][0, 1])
            for mine in _by_environment(unrolls)]
  if is_staggered:
    assert len(set(firsts)) == len(_LENGTHS)
  else:
    assert set(firsts) == {0}


def test_every_unroll_has_the_version_of_its_own_first_action():
  ids = np.array([2, 0, 1], np.int32)
  entry = _output(ids), actor.initial_output(3, _NUM_ACTIONS)
  buffer = actor.UnrollBuffer(['a', 'b', 'c'], 1, *entry, ())
  buffer.append(ids, *entry)
  buffer.begin(ids, (), np.array([7, 8, 9]))
  assert [unroll.policy_version for unroll in buffer.append(ids, *entry)] == [
      7, 8, 9]
  np.testing.assert_array_equal(buffer.versions(np.arange(3)), [8, 9, 7])


def test_a_new_environment_begins_with_its_own_initial_state():
  """Which need not be zeros, nor that of the others."""
  initial = networks.LSTMState(
      *(np.arange(1, 4, dtype=np.float32)[:, np.newaxis] for _ in range(2)))
  seen = []

  def policy(unused_actions, unused_output, state):
    seen.append(state.c[:, 0].tolist())
    output = actor.initial_output(len(state.c), _NUM_ACTIONS)
    after = tree.map_structure(lambda a: a + 10., state)
    return output, after, np.zeros([len(state.c)], np.int64)

  acting = actor.Actor(
      ['level'] * 3, _NUM_ACTIONS, policy, initial, 9, 1, None, None,
      timing.StageTimes())
  ids = np.arange(3, dtype=np.int32)
  nobody = np.zeros([3], bool)
  for is_first in (~nobody, nobody, ids == 2):
    acting.act(ids, _output(ids), is_first, nobody)
  assert seen == [[1, 2, 3], [11, 12, 13], [21, 22, 3]]
  np.testing.assert_array_equal(initial.c[:, 0], [1, 2, 3])


def test_weights_are_refreshed_where_unrolls_begin():
  """With the versions of the unrolls before these, and for nothing else."""
  refreshed, versions = [], itertools.count(5)

  def policy(actions, unused_output, state):
    version = np.full([len(actions)], next(versions), np.int64)
    return actor.initial_output(len(actions), _NUM_ACTIONS), state, version

  acting = actor.Actor(
      ['level'] * 2, _NUM_ACTIONS, policy, (), 2, 1, lambda unroll: None, None,
      timing.StageTimes(),
      refresh=lambda versions: refreshed.append(versions.tolist()))
  for step, ids in enumerate([[0, 1], [0], [0, 1], [1]]):
    ids = np.array(ids, np.int32)
    first = np.full([len(ids)], step == 0)
    acting.act(ids, _output(ids), first, np.zeros_like(first))
  # Environment 0 begins its second unroll while 1 is within its first.
  assert refreshed == [[0, 0], [5], [5]]


class _CountlessFakePool(_FakePool):
  """Its episodes always seem to be at step 0."""

  def recv(self):
    output = super().recv()
    output.step_output.info.episode_step[:] = 0
    return output


def test_only_the_first_output_of_an_environment_drops_an_unroll():
  """An output of step 0 drops nothing, unless `is_first` says so."""
  unrolls = []
  with pytest.raises(environments.PoolError):
    _run(_CountlessFakePool(num_recvs=150), _CountingPolicy(),
         _initial_state(len(_LENGTHS)), 4, unrolls.append)
  expected, _ = _unrolls(4)
  assert len(unrolls) == len(expected) > 10
  for unroll, other in zip(unrolls, expected):
    np.testing.assert_array_equal(
        unroll.env_outputs.observation[0], other.env_outputs.observation[0])
    assert not unroll.env_outputs.info.episode_step.any()


def test_agent_output_led_to_the_environment_output():
  """Of each entry: its action earned the reward, on the frame before."""
  unrolls, _ = _unrolls(4)
  for i, mine in enumerate(_by_environment(unrolls)):
    for k, unroll in enumerate(mine):
      env, agent = unroll.env_outputs, unroll.agent_outputs
      step = np.arange(4 * k, 4 * k + 5)
      begin = 1 if k == 0 else 0
      np.testing.assert_array_equal(
          agent.action[begin:], _action_on(i, step[begin:] - 1))
      np.testing.assert_array_equal(
          env.reward[begin:], agent.action[begin:] + 10 * i)
      np.testing.assert_array_equal(agent.policy_logits[begin:, 0], i)
      np.testing.assert_array_equal(
          agent.policy_logits[begin:, 1], step[begin:] - 1)
      np.testing.assert_array_equal(
          env.done[begin:],
          [(s - 1) % _LENGTHS[i] + 1 in (4, _LENGTHS[i]) for s in step[begin:]])


def test_first_entry_of_all():
  """No action led there: zeros, no reward, and done resets the core."""
  unrolls, _ = _unrolls(4)
  for mine in _by_environment(unrolls):
    env, agent = mine[0].env_outputs, mine[0].agent_outputs
    assert env.done[0] and env.reward[0] == 0.
    assert agent.action[0] == 0 and agent.baseline[0] == 0.
    assert not agent.policy_logits[0].any()


def test_state_is_the_one_before_entry_0():
  """As many calls as there are frames before that one."""
  unrolls, _ = _unrolls(4)
  for i, mine in enumerate(_by_environment(unrolls)):
    for k, unroll in enumerate(mine):
      np.testing.assert_array_equal(unroll.agent_state.c, [4 * k])
      np.testing.assert_array_equal(unroll.agent_state.h, [i if k else 0])


def test_policy_version_is_the_first_actions():
  """Entry 1 holds the first action: the baseline there is its version."""
  unrolls, _ = _unrolls(4)
  for unroll in unrolls:
    assert unroll.policy_version == unroll.agent_outputs.baseline[1]
    assert unroll.agent_outputs.baseline[4] > unroll.policy_version


def test_unrolls_do_not_share_memory():
  """What was put into the queue does not change while the actor goes on."""
  kept, policy = [], _CountingPolicy()

  def put(unroll):
    kept.append((unroll, tree.map_structure(np.copy, unroll[1:])))

  with pytest.raises(environments.PoolError):
    _run(_FakePool(num_recvs=60), policy, _initial_state(5), 3, put)
  for unroll, copy in kept:
    tree.map_structure(np.testing.assert_array_equal, unroll[1:], copy)


def test_episodes_are_reported():
  """Each once, with its return and its length in environment frames."""
  episodes = []
  unrolls, _ = _unrolls(4, report_episode=episodes.append, repeats=4)
  for i, mine in enumerate(_by_environment(unrolls)):
    its = [e for e in episodes if e.level_name == f'level_{i}']
    assert len(its) >= (4 * len(mine)) // _LENGTHS[i] > 1
    for k, episode in enumerate(its):
      assert episode.episode_frames == 4 * _LENGTHS[i]
      steps = range(k * _LENGTHS[i], (k + 1) * _LENGTHS[i])
      assert episode.episode_return == sum(
          10 * i + _action_on(i, step) for step in steps)


class _A2CLearner:
  """Trains when it is waited for, and knows what it has to have by then."""

  def __init__(self, num_environments):
    self.unrolls = []
    self.updates = 0
    self._num_environments = num_environments

  def wait(self, count):
    assert len(self.unrolls) == count * self._num_environments
    assert count in (self.updates, self.updates + 1)
    self.updates = count

  def policy(self, last_actions, env_outputs, core_state):
    """The baseline is the version of the weights, the action the step."""
    step = env_outputs.observation[0][:, 1]
    version = np.full([len(step)], self.updates, np.int64)
    output = trajectories.AgentOutput(
        action=(step % _NUM_ACTIONS).astype(np.int32),
        policy_logits=np.zeros([len(step), _NUM_ACTIONS], np.float32),
        baseline=version.astype(np.float32))
    return output, core_state, version


@settings(max_examples=25)
@given(unroll_length=st.integers(1, 6), seed=st.integers(0, 1000),
       lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_batched_a2c_acts_with_what_the_learner_made_of_the_last_unrolls(
    unroll_length, seed, lengths):
  learner = _A2CLearner(len(lengths))
  pool = _FakePool(lengths, seed, num_recvs=200, answers_any=True)
  with pytest.raises(environments.PoolError):
    _run(pool, learner.policy, (), unroll_length, learner.unrolls.append,
         rendezvous=batched_a2c.Rendezvous(len(lengths), learner.wait))
  rounds = len(learner.unrolls) // len(lengths)
  assert rounds >= 5 and learner.updates in (rounds, rounds - 1)
  for k in range(rounds):
    unrolls = learner.unrolls[k * len(lengths):(k + 1) * len(lengths)]
    assert {u.level_name for u in unrolls} == set(pool.level_names)
    for unroll in unrolls:
      # Entry 0 repeats the unroll before, which the weights before that acted.
      np.testing.assert_array_equal(unroll.agent_outputs.baseline[1:], k)
      assert unroll.policy_version == k
      steps = unroll.env_outputs.observation[0][:, 1]
      np.testing.assert_array_equal(
          steps, np.arange(unroll_length + 1) + k * unroll_length)
      np.testing.assert_array_equal(
          unroll.agent_outputs.action[1:], steps[:-1] % _NUM_ACTIONS)


def test_batched_a2c_steps_the_others_until_all_are_there():
  """Only the end of an unroll holds an environment back, not each step."""
  learner = _A2CLearner(len(_LENGTHS))
  sizes = []

  def policy(last_actions, *args):
    sizes.append(len(last_actions))
    return learner.policy(last_actions, *args)

  with pytest.raises(environments.PoolError):
    _run(_FakePool(num_recvs=100, answers_any=True), policy, (), 5,
         learner.unrolls.append,
         rendezvous=batched_a2c.Rendezvous(len(_LENGTHS), learner.wait))
  assert sizes.count(5) < len(sizes) / 2
  assert min(sizes) < 3


def test_batched_a2c_waits_for_the_unroll_of_a_replaced_environment():
  """An update takes an unroll of each; what begins anew is not held back."""
  unrolls, waits = [], []
  trained = lambda count: waits.append((count, len(unrolls)))
  acting = actor.Actor(
      ['level'] * 2, _NUM_ACTIONS, _A2CLearner(2).policy, (), 3, 1,
      unrolls.append, lambda episode: None, timing.StageTimes(),
      rendezvous=batched_a2c.Rendezvous(2, trained))
  step = 0

  def act(ids, is_first=()):
    nonlocal step
    ids = np.array(ids, np.int32)
    first = np.isin(ids, is_first)
    output = _output(ids, step)._replace(done=first)
    step += 1
    acted, _ = acting.act(ids, output, first, np.zeros_like(first))
    return sorted(acted.tolist())

  assert act([0, 1], is_first=[0, 1]) == [0, 1]
  assert act([0, 1]) == [0, 1]
  assert act([0, 1], is_first=[1]) == [0, 1]  # Another environment 1.
  assert act([0, 1]) == [1]  # 0 has its unroll, and is held.
  assert act([1]) == [1]
  assert waits == [] and len(unrolls) == 1
  assert act([1]) == [0, 1]
  assert waits == [(1, 2)]


def test_stages_are_timed():
  times = timing.StageTimes()
  with pytest.raises(environments.PoolError):
    _run(_FakePool(num_recvs=20), _CountingPolicy(), _initial_state(5), 3,
         lambda unroll: None, times=times)
  seconds = times.take()
  assert set(seconds) == {'actor_environments', 'actor_unrolls', 'actor_queue',
                          'actor_inference'}
  assert all(value > 0. for value in seconds.values())
  assert times.take() == {}


@pytest.fixture
def start_actors():
  """Starts actors and a staging area, and ends them."""
  started = []

  def start(pools, make_policy, initial_state, unroll_length, batch_size,
            capacity=8):
    queue = staging.TrajectoryQueue(capacity)
    area = staging.StagingArea(queue, batch_size, lambda batch: batch)

    def make_actor(pool):
      _run(pool, make_policy(), initial_state(pool.num_environments),
           unroll_length, queue.put)

    threads = threads_lib.CheckedThreads(pools, make_actor)
    started.append((area, threads))
    return area, threads

  yield start
  for area, threads in started:
    area.close()
    threads.close()


def test_batches_of_the_counting_policy(start_actors):
  """The same facts after queue and staging, time major, from two pools."""
  area, threads = start_actors(
      [_FakePool(seed=seed) for seed in range(2)], _CountingPolicy,
      _initial_state, unroll_length=6, batch_size=4)
  for _ in range(12):
    threads.check()
    batch = area.get(timeout=_LONG).unrolls
    frames = batch.env_outputs.observation[0]
    assert frames.shape == (7, 4, 2)
    assert batch.agent_outputs.policy_logits.shape == (7, 4, _NUM_ACTIONS)
    np.testing.assert_array_equal(
        frames[..., 1], frames[0, :, 1] + np.arange(7)[:, np.newaxis])
    np.testing.assert_array_equal(
        frames[..., 0], np.tile(frames[0, :, 0], [7, 1]))
    np.testing.assert_array_equal(
        batch.agent_state.c[:, 0], frames[0, :, 1])
    np.testing.assert_array_equal(
        batch.agent_outputs.policy_logits[1:, :, :2], frames[:-1])
    np.testing.assert_array_equal(
        batch.env_outputs.reward[1:],
        batch.agent_outputs.action[1:] + 10 * frames[1:, :, 0])
    np.testing.assert_array_equal(
        batch.policy_version, batch.agent_outputs.baseline[1])
    assert batch.level_name == [f'level_{int(i)}' for i in frames[0, :, 0]]


def _make_reactor(num_actions, observation_spec, torso, use_lstm):
  return networks.ReactorAgent(
      num_actions, observation_spec, torso, use_lstm, num_atoms=5, v_min=-1.,
      v_max=3., policy_uniform=.1)


@pytest.mark.parametrize('make_agent, use_lstm', [
    (networks.Agent, True), (networks.Agent, False), (_make_reactor, True)])
def test_learner_computes_what_the_actor_did(
    start_actors, make_agent, use_lstm):
  """With the same weights, learner logits 0..T-1 are behaviour logits 1..T.

  Wherever episodes end in the unrolls, and however unrolls continue.
  """
  pool = _FakePool()
  agent = make_agent(
      pool.num_actions, pool.observation_spec, 'vector', use_lstm)
  params = agents.params(agent)
  policy = policy_lib.Policy(agent, params, 3, 0, '/cpu:0')
  area, threads = start_actors(
      [pool], lambda: policy, agent.initial_state, unroll_length=5,
      batch_size=3)
  unroll = tf.function(agent.unroll)
  done_at = np.zeros([6], bool)
  state_was_used = False
  for _ in range(12):
    threads.check()
    batch = area.get(timeout=_LONG).unrolls
    (logits, values), _ = unroll(
        params, batch.agent_outputs.action,
        batch.env_outputs._replace(info=()), batch.agent_state)
    np.testing.assert_allclose(
        logits[:-1], batch.agent_outputs.policy_logits[1:],
        rtol=1e-4, atol=1e-5)
    if make_agent is _make_reactor:  # Of each action, their distributions.
      means = tf.tensordot(tf.nn.softmax(values), agent.support, 1)
      values = tf.reduce_sum(tf.exp(logits) * means, -1)
    np.testing.assert_allclose(
        values[:-1], batch.agent_outputs.baseline[1:], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(batch.policy_version, [3] * 3)
    done_at |= batch.env_outputs.done.any(axis=1)
    state_was_used |= any(
        (state.any(axis=1) & ~batch.env_outputs.done[0]).any()
        for state in tree.flatten(batch.agent_state))
  # The comparison means something only if all of this occurred.
  assert done_at.all()
  assert state_was_used == use_lstm


def test_full_queue_blocks_the_actor(start_actors):
  """Where queue and staging are full it waits, until a batch is taken."""
  policy = _CountingPolicy()
  area, threads = start_actors(
      [_FakePool()], lambda: policy, _initial_state, unroll_length=2,
      batch_size=2, capacity=2)
  calls, num_equal = 0, 0
  wait = threading.Event()
  for _ in range(300):
    num_equal = num_equal + 1 if 0 < calls == policy.version else 0
    if num_equal == 5:
      break
    calls = policy.version
    wait.wait(.1)
  else:
    raise AssertionError('The actor did not stop.')
  threads.check()
  area.get(timeout=_LONG)
  for _ in range(300):
    if policy.version > calls:
      break
    wait.wait(.1)
  assert policy.version > calls


def test_check_raises_what_ended_an_actor():
  """A dead environment must not go unnoticed."""
  threads = threads_lib.CheckedThreads(
      [_FakePool(), _FakePool(num_recvs=3)],
      lambda pool: _run(pool, _CountingPolicy(), _initial_state(5), 2,
                        lambda unroll: None))
  wait = threading.Event()
  with pytest.raises(environments.PoolError, match='closed'):
    for _ in range(300):
      threads.check()
      wait.wait(.1)
  threads.close()


def test_closing_is_no_error():
  """Neither a closed queue nor closed pools are reported."""
  queue = staging.TrajectoryQueue(1)
  pools = [_FakePool(), _FakePool()]
  threads = threads_lib.CheckedThreads(
      pools, lambda pool: _run(pool, _CountingPolicy(), _initial_state(5), 2,
                               queue.put))
  queue.get_many(1)
  queue.close()
  threads.close()
  threads.check()
  assert not [t for t in threading.enumerate() if t.name.startswith('actor-')]
