"""Acts: steps environments with a policy, and puts unrolls into the queue.

One thread drives a pool of environments. Each environment fills its own unroll,
so that unrolls finish when their environment does, not when the slowest does.
Batched A2C is the same loop with a wait in it, a `batched_a2c.Rendezvous`.
"""

import itertools

import numpy as np
import tree

from scalable_agent import trajectories


# Names the environments of this process, and those that take their places.
_STREAMS = itertools.count()


def finished_episodes(level_names, ids, info, is_last, num_action_repeats):
  """Returns the episodes that ended.

  Args:
    level_names: A list of N level names, by environment.
    ids: int32 [K], environments.
    info: Their `StepOutputInfo`, [K].
    is_last: bool [K], whose episode ended.
    num_action_repeats: Environment frames per agent step.

  Returns:
    A list of `Episode`s, in the order of `ids`.
  """
  return [trajectories.Episode(
      level_names[ids[i]], float(info.episode_return[i]),
      int(info.episode_step[i]) * num_action_repeats)
          for i in np.flatnonzero(is_last)]


def initial_output(num_environments, num_actions):
  """Returns what stands for an `AgentOutput` before the first, arrays [N, ...].
  """
  return trajectories.AgentOutput(
      action=np.zeros([num_environments], np.int32),
      policy_logits=np.zeros([num_environments, num_actions], np.float32),
      baseline=np.zeros([num_environments], np.float32))


class UnrollBuffer:
  """The unfinished unrolls of N environments, T + 1 entries each.

  Entry t of an unroll is an environment output and the agent output that led to
  it. The last entry of an unroll is the first of the next.
  """

  def __init__(self, level_names, unroll_length, env_output, agent_output,
               initial_state, is_staggered=False):
    """Initializes the buffer.

    Args:
      level_names: A list of N level names.
      unroll_length: T.
      env_output: A `StepOutput` of arrays [K, ...], for shapes and dtypes.
      agent_output: An `AgentOutput` of arrays [K, ...], likewise.
      initial_state: Core state [N, ...].
      is_staggered: Whether environments that begin together make their first
        unrolls in turn, over T steps, so that they do not finish together from
        then on. What they step before their turn is in no unroll.
    """
    num_environments = len(level_names)
    allocate = lambda a: np.zeros(
        (num_environments, unroll_length + 1) + a.shape[1:], a.dtype)
    self._level_names = level_names
    self._length = unroll_length
    self._entries = tree.map_structure(allocate, (env_output, agent_output))
    self._flat_entries = tree.flatten(self._entries)
    self._states = tree.map_structure(np.copy, initial_state)
    self._versions = np.zeros([num_environments], np.int64)
    # The entry that comes next; below 0, the steps until then.
    self._time = np.zeros([num_environments], np.int32)
    self._start = np.zeros([num_environments], np.int32)
    if is_staggered:
      self._start -= (np.arange(num_environments, dtype=np.int32)
                      * unroll_length // num_environments)
    self._streams = [next(_STREAMS) for _ in level_names]

  def append(self, ids, env_output, agent_output):
    """Adds one entry each to the unrolls of some environments.

    Args:
      ids: int32 [K], the environments.
      env_output: A `StepOutput` of arrays [K, ...].
      agent_output: The `AgentOutput` that led to it, [K, ...].

    Returns:
      A list of the `ActorOutput`s that this finished. They do not share memory
      with the buffer.
    """
    time = self._time[ids]
    for entries, values in zip(
        self._flat_entries, tree.flatten((env_output, agent_output))):
      entries[ids, time] = values
    self._time[ids] += 1

    finished = ids[time == self._length]
    unrolls = [self._unroll(i) for i in finished]
    if len(finished):
      for entries in self._flat_entries:
        entries[finished, 0] = entries[finished, self._length]
      self._time[finished] = 1
    return unrolls

  def drop(self, ids):
    """Drops the unfinished unrolls of environments that are gone, int32 [K]."""
    self._time[ids], self._start[ids] = self._start[ids], 0
    for i in ids:
      self._streams[i] = next(_STREAMS)

  def begin(self, ids, states, versions):
    """Notes what unrolls start from that have just begun.

    Args:
      ids: int32 [K], environments; those in the middle of an unroll are left
        out.
      states: Their core states before entry 0 is processed, [K, ...].
      versions: int64 [K], versions of the weights that process entry 0.
    """
    starts = self.at_start(ids)
    if not starts.any():
      return
    ids = ids[starts]
    for mine, theirs in zip(tree.flatten(self._states), tree.flatten(states)):
      mine[ids] = theirs[starts]
    self._versions[ids] = versions[starts]

  def at_start(self, ids):
    """Returns which environments have just begun an unroll, bool [K]."""
    return self._time[ids] == 1

  def versions(self, ids):
    """Returns the versions of the weights that began their last unrolls.

    Args:
      ids: int32 [K], environments.

    Returns:
      int64 [K], 0 for those that have not begun any.
    """
    return self._versions[ids]

  def _unroll(self, i):
    copy = lambda a: a[i].copy()
    env_outputs, agent_outputs = self._entries
    # Field by field, which is several times as fast as a map over a nest.
    # Without an LSTM there is no state to map.
    return trajectories.ActorOutput(
        level_name=self._level_names[i],
        agent_state=self._states and tree.map_structure(copy, self._states),
        env_outputs=env_outputs._replace(
            reward=copy(env_outputs.reward),
            info=type(env_outputs.info)(*map(copy, env_outputs.info)),
            done=copy(env_outputs.done),
            observation=tuple(map(copy, env_outputs.observation))),
        agent_outputs=trajectories.AgentOutput(*map(copy, agent_outputs)),
        policy_version=self._versions[i],
        stream=self._streams[i])


class Actor:
  """Acts in N environments, and makes unrolls of what comes of it.

  Attributes:
    times: A `timing.StageTimes`.
  """

  def __init__(self, level_names, num_actions, policy, initial_state,
               unroll_length, num_action_repeats, put_unroll, report_episode,
               times, rendezvous=None, refresh=None, is_staggered=False):
    """Initializes the actor.

    Args:
      level_names: A list of N level names.
      num_actions: Size of the action set.
      policy: A function of last actions, environment outputs and core state, as
        `policy.Policy`.
      initial_state: The core state of N environments, arrays [N, ...].
      unroll_length: T, in agent steps.
      num_action_repeats: Environment frames per agent step.
      put_unroll: A function that takes an `ActorOutput`, such as
        `TrajectoryQueue.put`; it may block.
      report_episode: A function that takes an `Episode`.
      times: A `timing.StageTimes`.
      rendezvous: None, or, for batched A2C, a `batched_a2c.Rendezvous`.
      refresh: None, or a function to call before unrolls begin, with the
        versions of the weights that began the ones before, int64 [<= N].
      is_staggered: As for `UnrollBuffer`.
    """
    num_environments = len(level_names)
    self.times = times
    self._level_names = level_names
    self._policy = policy
    self._initial_state = initial_state
    self._unroll_length = unroll_length
    self._num_action_repeats = num_action_repeats
    self._put_unroll = put_unroll
    self._report_episode = report_episode
    self._refresh = refresh
    self._is_staggered = is_staggered
    self._core_state = tree.map_structure(np.copy, initial_state)
    self._agent_output = initial_output(num_environments, num_actions)
    self._buffer = None
    self._rendezvous = rendezvous

  def act(self, ids, env_output, is_first, is_last):
    """Takes outputs of some environments, and says what is to be done next.

    Args:
      ids: int32 [K], environments.
      env_output: Their `StepOutput`, [K, ...].
      is_first: bool [K], which are the first of a new environment.
      is_last: bool [K], whose episode ended.

    Returns:
      A pair of ids and actions, int32 [K]. With batched A2C they may be of
      other environments, or of none.

    Raises:
      staging.Closed: The queue was closed.
    """
    for episode in finished_episodes(self._level_names, ids, env_output.info,
                                     is_last, self._num_action_repeats):
      self._report_episode(episode)

    if self._buffer is None:
      self._buffer = UnrollBuffer(
          self._level_names, self._unroll_length, env_output,
          self._agent_output, self._initial_state, self._is_staggered)
    buffer = self._buffer
    if is_first.any():
      self._begin_anew(ids[is_first])
    last_output = trajectories.AgentOutput(
        *(values[ids] for values in self._agent_output))
    with self.times.stage('actor_unrolls'):
      unrolls = buffer.append(ids, env_output, last_output)
    with self.times.stage('actor_queue'):
      for unroll in unrolls:
        self._put_unroll(unroll)

    ready = self._wait_for_weights(is_first, (ids, env_output, last_output))
    if ready is None:
      return ids[:0], ids[:0]
    ids, env_output, last_output = ready

    # Without an LSTM there is nothing to map.
    states = self._core_state and tree.map_structure(
        lambda a: a[ids], self._core_state)
    with self.times.stage('actor_inference'):
      output, next_states, versions = self._policy(
          last_output.action, env_output._replace(info=()), states)
    buffer.begin(ids, states, versions)
    for all_values, values in zip(
        tree.flatten((self._agent_output, self._core_state)),
        tree.flatten((output, next_states))):
      all_values[ids] = values
    return ids, output.action

  def _wait_for_weights(self, is_first, inputs):
    """Waits, where that is configured, for the weights to act with.

    Args:
      is_first: As for `act`.
      inputs: A tuple of ids, their `StepOutput` and their last `AgentOutput`.

    Returns:
      Such a tuple of the environments that act now, or None if none does.
    """
    ids, *_ = inputs
    if self._rendezvous:
      # A new environment has not finished an unroll yet.
      with self.times.stage('actor_update_wait'):
        inputs = self._rendezvous.pass_on(
            self._buffer.at_start(ids) & ~is_first, inputs)
      if inputs is None:
        return None
      ids, *_ = inputs
    if self._refresh:
      starts = ids[self._buffer.at_start(ids)]
      if len(starts):
        with self.times.stage('actor_weights'):
          self._refresh(self._buffer.versions(starts))
    return inputs

  def _begin_anew(self, ids):
    """Forgets the environments that had these ids before."""
    self._buffer.drop(ids)
    for values in self._agent_output:
      values[ids] = 0
    for values, initial in zip(tree.flatten(self._core_state),
                               tree.flatten(self._initial_state)):
      values[ids] = initial[ids]


def run_actor(pool, actor):
  """Drives a pool until something raises.

  Args:
    pool: An `environments.Pool`.
    actor: An `Actor` for its environments.

  Raises:
    staging.Closed: The queue was closed.
    environments.PoolError: An environment died, or the pool was closed.
  """
  while True:
    with actor.times.stage('actor_environments'):
      output = pool.recv()
    ids, actions = actor.act(*output)
    if len(ids):
      pool.send(ids, actions)
