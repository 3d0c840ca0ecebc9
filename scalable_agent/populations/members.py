"""The members of a population: ordinary runs that stop, evolve, and go on.

A member evolves just before its process starts, while nobody else works on it.
It first copies the donor's checkpoint, then writes the evolution to the
history. If the program is killed in between, the member has not evolved, and
evolves at its next start. After an evolution the member starts from the copy,
until it has a newer checkpoint of its own.
"""

import contextlib
import dataclasses
import math
import os
import shutil
import time
import typing

from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.files import log_file
from scalable_agent.populations import evolution
from scalable_agent.sweeps import progress
from scalable_agent.sweeps import run_processes

# A donor may remove a checkpoint that is being copied. Then its newest one is
# tried.
_COPY_ATTEMPTS = 10


class Member:
  """One of a population.

  Attributes:
    index: Its index.
    run: Its `run_processes.ManagedRun`.
  """

  def __init__(self, population, index, logdir, total_frames, make_command,
               evaluate_every_frames):
    """Initializes the member; starts nothing.

    Args:
      population: The `Population` it is of.
      index: Its index there.
      logdir: Its directory.
      total_frames: Environment frames it is to take.
      make_command: A function of a dict of setting to value that returns the
        command of a process with these settings, a list of strings. It is
        called before each start.
      evaluate_every_frames: As the setting.
    """
    self.index = index
    self._population = population
    self._history = population.history
    self._logdir = logdir
    self._copies = os.path.join(logdir, 'warm_start')
    self._make_command = make_command
    self._total_frames = total_frames
    self._start_frames = 0
    self._turn_begin = None
    self._seen_bytes = 0
    is_trained = lambda: progress.is_trained(logdir, total_frames)
    self.run = run_processes.ManagedRun(
        os.path.basename(logdir), logdir, total_frames, self._prepare,
        lambda: is_trained() and progress.is_evaluated(
            logdir, evaluate_every_frames),
        is_trained, ends_with_parent=True)

  @property
  def saved_frames(self):
    """Environment frames of its newest checkpoint, 0 if there is none."""
    return checkpoint_files.newest_frames(self._logdir)

  def _copy_directory(self, frames):
    """The directory of what it copies in the evolution at some frames."""
    return os.path.join(self._copies, str(frames))

  def _episodes(self, after, until):
    """Returns its last episodes in a range of frames, as many as count."""
    return progress.last_episodes(
        self._logdir, self._population.episodes, after, until)

  def score(self):
    """Returns the score, in percent, of the weights that others would copy.

    None if the member has too few episodes since it got these weights, or no
    checkpoint of them.
    """
    copied_at = self._history.last_copy_frames(self.index)
    episodes = self._episodes(copied_at, self.saved_frames)
    if len(episodes) < self._population.episodes:
      return None
    return self._population.fitness(episodes)

  def _is_ready(self, frames):
    """Whether it can evolve, by what it has logged up to a frame."""
    population = self._population
    episodes = self._episodes(self._history.last(self.index).frames, frames)
    return (
        frames < self._total_frames and
        evolution.is_ready(frames, len(episodes), population.burn_in_frames,
                           population.episodes) and
        population.fitness(episodes) is not None)

  def _has_new_episodes(self):
    """Whether its log has grown since the last call."""
    before = self._seen_bytes
    # A log that cannot be looked at now is looked at again.
    with contextlib.suppress(OSError):
      self._seen_bytes = os.path.getsize(
          os.path.join(self._logdir, log_file.EPISODES))
    return self._seen_bytes > before

  def leave_if_ready(self):
    """Ends its process if it can evolve."""
    if self.run.state == 'running' and self._has_new_episodes():
      newest = progress.last_episodes(self._logdir, 1, -1)
      if (newest and self._is_ready(newest[-1].frames) and
          not self.has_trained()):
        self.run.terminate()

  @property
  def logged_frames(self):
    """Environment frames by its log, 0 if it has none."""
    return progress.read(self._logdir).frames or 0

  def has_trained(self):
    """Whether its process has only an evaluation to end, by its log."""
    return self.logged_frames >= self._total_frames

  def trained_seconds(self):
    """How long its process has trained, 0 if it has none that does.

    Its start does not count: a turn without an update would be lost.
    """
    if self.run.state != 'running':
      return 0.
    if self._turn_begin is None:
      if self.logged_frames <= self._start_frames:
        return 0.
      self._turn_begin = time.monotonic()
    return time.monotonic() - self._turn_begin

  def _prepare(self):
    """Evolves if it is time, and returns the command of the next process."""
    frames = self.saved_frames
    if self._is_ready(frames):
      self._evolve(frames)
    record = self._history.last(self.index)
    settings = dict(record.parameters)
    if record.donor is not None and frames <= record.frames:
      settings['warm_start'] = checkpoint_files.path_of(
          self._copy_directory(record.frames), record.donor_frames)
    # A process that was killed has logged more than it has saved.
    self._start_frames = max(frames, self.logged_frames)
    self._turn_begin = None
    return self._make_command(settings)

  def _evolve(self, frames):
    history, population = self._history, self._population
    rng = evolution.generator(
        population.seed, self.index, len(history.of(self.index)))
    score = self.score()
    drawn = evolution.draw_other(self.index, len(population.members), rng)
    other = population.members[drawn]
    drawn_score = other.score()
    donor = donor_frames = None
    if evolution.is_better(score, drawn_score):
      shutil.rmtree(self._copies, ignore_errors=True)
      donor = drawn
      donor_frames = other.copy_weights(self._copy_directory(frames))
    source = self.index if donor is None else donor
    adapted = {
        name: value for name, value in history.last(source).parameters.items()
        if name in population.adapt}
    history.add(evolution.Record(
        self.index, frames, score, drawn, drawn_score, donor, donor_frames,
        dict(history.last(self.index).parameters,
             **evolution.perturb(adapted, rng))))

  def copy_weights(self, directory):
    """Copies its newest checkpoint, while it may be running.

    Args:
      directory: Where to; it is made.

    Returns:
      The environment frames of the checkpoint.

    Raises:
      OSError: It cannot be copied.
    """
    os.makedirs(directory)
    for attempt in range(_COPY_ATTEMPTS):
      frames = self.saved_frames
      try:
        checkpoint_files.copy(
            checkpoint_files.path_of(self._logdir, frames), directory)
        return frames
      except FileNotFoundError:
        if attempt == _COPY_ATTEMPTS - 1:
          raise


@dataclasses.dataclass
class Population:
  """All members, and what their evolutions go by.

  Attributes:
    history: An `evolution.History`.
    fitness: A function of a list of `log_lines.EpisodeLine`s, see `fitness`.
    burn_in_frames: Environment frames before which a member does not evolve.
    episodes: New episodes from one evolution to the next.
    turn_seconds: How long a member may train while others wait.
    adapt: Names of the parameters that evolve. Others stay as they are.
    seed: Random seed of all evolutions, a whole number from 0.
    members: A list of `Member`s.
  """

  history: evolution.History
  fitness: typing.Callable
  burn_in_frames: int
  episodes: int
  turn_seconds: float
  adapt: list
  seed: int
  members: list = dataclasses.field(default_factory=list)

  def rank(self, run):
    """Orders members that wait: fewest environment frames first.

    One whose frames cannot be read now is the last.
    """
    try:
      return checkpoint_files.newest_frames(run.logdir)
    except OSError:
      return math.inf

  def on_poll(self):
    """Ends processes of members that can evolve, or whose turn is over.

    One that plays its last evaluation ends by itself.
    """
    for member in self.members:
      member.leave_if_ready()
    # No more members leave than can start, and none that would be the next to
    # start: who has the fewest frames trains on.
    waiting = sorted(self.rank(member.run) for member in self.members
                     if member.run.state == 'waiting' and not member.run.rests)
    waiting = waiting[sum(member.run.is_told for member in self.members):]
    if not waiting:
      return
    over = [member for member in self.members
            if not member.run.is_told and
            member.trained_seconds() >= self.turn_seconds and
            not member.has_trained()]
    over.sort(key=lambda member: (
        member.logged_frames, member.trained_seconds()), reverse=True)
    for frames, member in zip(waiting, over):
      if frames <= member.logged_frames:
        member.run.terminate()
