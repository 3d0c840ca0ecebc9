"""Keeps every step of many environments once, and cuts sequences out of them.

Gruslys et al., "The Reactor", 2018, https://arxiv.org/abs/1704.04651, section
3.3. A sequence may start at every step, so neighbours share all but one entry.

    lane      consecutive entries of one environment, a power of two of them
    position  an entry's number, which no other ever has: number of its lane
              times the length of lanes, plus its place in the lane
    row       the position modulo the number of rows: where the entry is kept

An environment that has filled its lane goes on in a new one, which takes the
rows of the oldest. So any number of environments may come, and the lanes of
those that are gone make room in their turn.

Neighbours within a lane are of one environment, those beyond its ends mostly
not: so lanes are long. But the last lane of each environment is half empty on
average: so they are not so long that this leaves too much room unused.
"""

from absl import logging
import numpy as np
import tree

from scalable_agent import trajectories
from scalable_agent.replay import columns

# At least so many for each environment. Where all fill theirs at the same time,
# they leave between none and a quarter of the room unused.
_LANES_EACH = 4
# At least so many in all, since what is left beside whole lanes is not used.
_FEWEST_LANES = 32
# If nobody knows how many environments there are: so many, or up to twice.
_LANES_FOR_ANY = 1024


def lane_length(num_steps, unroll_length, num_environments=None):
  """Returns how many entries a lane has.

  Args:
    num_steps: Steps to keep in all.
    unroll_length: T. A sequence of T + 1 entries lies in two lanes at the most.
    num_environments: How many environments there are, None if nobody knows.
  """
  num_lanes = (_LANES_FOR_ANY if num_environments is None else
               max(_LANES_EACH * num_environments, _FEWEST_LANES))
  usual = max(num_steps // num_lanes, 1)
  return max(1 << (usual.bit_length() - 1),
             1 << (2 * unroll_length + 1).bit_length())


class _Run:
  """Entries of an environment, from the start of a lane on.

  Attributes:
    length: How many, an int.
    first: The index of the first one after the last gap.
    lanes: The numbers of the last two lanes, a list.
    added: The number of the last unroll, counted over all environments.
  """

  def __init__(self):
    self.length = self.first = self.added = 0
    self.lanes = []


class SequenceStore:
  """The last steps of many environments; for one thread at a time."""

  def __init__(self, num_steps, unroll_length, has_stacks=False,
               num_environments=None):
    """Initializes an empty store.

    Args:
      num_steps: Steps to keep, an int.
      unroll_length: T, of unrolls that come in and of sequences that go out.
      has_stacks: Whether an observation is a stack of the last frames, as
        `frame_stacks` packs it. Then each frame is kept once.
      num_environments: As for `lane_length`.

    Raises:
      ValueError: There is no room for two lanes.
    """
    self._num_entries = unroll_length + 1
    self._lane_length = lane_length(
        num_steps, unroll_length, num_environments)
    self._num_lanes = num_steps // self._lane_length
    self._has_stacks = has_stacks
    if self._num_lanes < 2:
      raise ValueError(
          f'{num_steps} steps are too few for sequences of {unroll_length}, '
          f'expected {2 * self._lane_length} or more.')
    self._num_begun = self._num_added = 0
    self._runs = {}  # By stream.
    self._is_crowded = False
    # Of each lane that has rows: the number of the lane that goes on from it,
    # its stream, its level.
    self._next = np.zeros([self._num_lanes], np.int64)
    self._streams = [None] * self._num_lanes
    self._level_names = [None] * self._num_lanes
    self._columns = []

  @property
  def num_rows(self):
    """How many entries there is room for."""
    return self._num_lanes * self._lane_length

  @property
  def first_position(self):
    """The first position of the oldest lane."""
    return max(self._num_begun - self._num_lanes, 0) * self._lane_length

  def add(self, unroll):
    """Takes the entries of an unroll that are not here yet.

    Entry 0 repeats the last one of the stream's unroll before. If it does not,
    something is missing in between, and no sequence spans that.

    Args:
      unroll: An `ActorOutput` of one unroll.

    Returns:
      A pair of int64 arrays: the positions at which, with this unroll, a whole
      sequence starts; and those at which none can start any more.
    """
    entries = unroll.env_outputs, unroll.agent_outputs
    values = tree.flatten(entries)
    if not self._columns:
      self._allocate(unroll, entries, values)
    is_new = unroll.stream not in self._runs
    run = self._runs.setdefault(unroll.stream, _Run())
    self._num_added += 1
    run.added = self._num_added
    if is_new:
      self._warn_if_crowded()
    begin = int(not is_new and self._continues(run, values))
    if not begin:
      run.first = run.length
    old_length, removed = run.length, []
    while begin < len(values[0]):
      place = run.length % self._lane_length
      if place == 0:
        removed.append(self._begin_lane(run, unroll))
      end = min(begin + self._lane_length - place, len(values[0]))
      row = run.lanes[-1] % self._num_lanes * self._lane_length + place
      for column, a in zip(self._columns, values):
        column.write(row, a, begin, end)
      run.length += end - begin
      begin = end
    starts = np.arange(max(old_length + 1 - self._num_entries, run.first),
                       max(run.length + 1 - self._num_entries, run.first))
    keys = self._positions(run, starts)
    return (keys[keys >= self.first_position],
            np.concatenate([np.zeros([0], np.int64), *removed]))

  def _allocate(self, unroll, entries, values):
    self._nest = entries
    self._agent_state = tree.map_structure(np.zeros_like, unroll.agent_state)
    stacks = unroll.env_outputs.observation if self._has_stacks else ()
    self._columns = [
        columns.StackedFrames(self.num_rows, self._lane_length, a.shape[1:])
        if any(a is stack for stack in stacks) else
        columns.Values(self.num_rows, a.shape[1:], a.dtype) for a in values]

  def _continues(self, run, values):
    """Whether entry 0 is the last of a run."""
    row = self._positions(run, np.array([[run.length - 1]])) % self.num_rows
    return all(column.read(row).tobytes() == a[0].tobytes()
               for column, a in zip(self._columns, values))

  def _positions(self, run, indices):
    """The positions of entries of a run, by index from its beginning.

    They must be in its last two lanes.
    """
    lanes_back = (run.length - 1) // self._lane_length - (
        indices // self._lane_length)
    numbers = np.array([run.lanes[-1], run.lanes[0]])[lanes_back]
    return numbers * self._lane_length + indices % self._lane_length

  def _warn_if_crowded(self):
    # A lane that is full, and one that fills.
    most = self._num_lanes // 2
    if self._is_crowded or len(self._runs) <= most:
      return
    # The other environments are gone, and their lanes make room in turn.
    since = self._num_added - 2 * most
    if sum(run.added > since for run in self._runs.values()) <= most:
      return
    self._is_crowded = True
    logging.warning(
        'More than %d environments write into replay, and push each other out. '
        'It is kept in lanes of %d steps of an environment, of which each '
        'needs two: raise --replay_steps.', most, self._lane_length)

  def _begin_lane(self, run, unroll):
    """Lets a run go on in a new lane; returns the positions that are gone."""
    number = self._num_begun
    self._num_begun += 1
    slot = number % self._num_lanes
    old = number - self._num_lanes
    ended = self._runs.get(self._streams[slot])
    if ended and ended is not run and ended.lanes[-1] == old:
      del self._runs[self._streams[slot]]
    if run.lanes:
      self._next[run.lanes[-1] % self._num_lanes] = number
    self._streams[slot] = unroll.stream
    self._level_names[slot] = unroll.level_name
    run.lanes = [*run.lanes[-1:], number]
    if old < 0:
      return np.zeros([0], np.int64)
    return old * self._lane_length + np.arange(self._lane_length)

  def read(self, positions):
    """Returns the sequences that start at positions.

    Args:
      positions: int64 [K], of those that `add` has returned and that are not
        gone.

    Returns:
      A list of K `ActorOutput`s of T + 1 entries, whose core states are zeros,
      without policy version and stream.
    """
    numbers, places = np.divmod(positions, self._lane_length)
    following = self._next[numbers % self._num_lanes]
    lanes_on, places = np.divmod(
        places[:, np.newaxis] + np.arange(self._num_entries),
        self._lane_length)
    lanes = np.where(lanes_on, following[:, np.newaxis],
                     numbers[:, np.newaxis]) % self._num_lanes
    rows = lanes * self._lane_length + places
    values = [column.read(rows) for column in self._columns]
    unrolls = []
    for i, lane in enumerate(lanes[:, 0]):
      env_outputs, agent_outputs = tree.unflatten_as(
          self._nest, [a[i] for a in values])
      unrolls.append(trajectories.ActorOutput(
          level_name=self._level_names[lane], agent_state=self._agent_state,
          env_outputs=env_outputs, agent_outputs=agent_outputs))
    return unrolls
