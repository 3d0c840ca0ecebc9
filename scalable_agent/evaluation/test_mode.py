"""Plays whole episodes with a checkpoint of a run."""

import contextlib
import dataclasses
import itertools
import os

from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import policy as policy_lib
from scalable_agent import suites
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.checkpoints import weights_hash
from scalable_agent.environments import PoolError
from scalable_agent.evaluation import play
from scalable_agent.evaluation import recording
from scalable_agent.evaluation import scores as scores_lib
from scalable_agent.evaluation import trained as trained_lib
from scalable_agent.files import file_names
from scalable_agent.files import whole_file
from scalable_agent.process import errors
from scalable_agent.process import output
from scalable_agent.process import progress as progress_lib
from scalable_agent.process import signals
from scalable_agent.suites import scores as suite_scores


def test(config, stop=None):
  """Plays `test_num_episodes` episodes of every level.

  `test_scores.json` is written once all levels are played. A test that ended
  before goes on: see `scores.UnfinishedTest`.

  Args:
    config: A `config.Config`.
    stop: A `signals.Stop`, or None to play to the end.

  Returns:
    The scores, a dict, as `scores.write_scores` wrote them.

  Raises:
    config.ConfigError: There is no checkpoint, it is another run's, or videos
      are asked for and cannot be made.
    environments.PoolError: Environments cannot be made, or died.
    checkpoint.CheckpointError: All checkpoints are corrupt.
    signals.Interrupted: `stop` was set.
  """
  stop = stop or signals.Stop()
  # To make or step an environment may take minutes.
  with stop.interrupting():
    tester = _Tester(config, stop)
  return _play_levels(config, tester)


def _play_levels(config, tester):
  level_names = suites.level_names(config)
  table = scores_lib.ScoreTable(level_names)
  for line in table.head():
    output.say(line)
  levels = tester.unfinished.read()
  for level_name in level_names:
    if level_name not in levels:
      levels[level_name] = tester.test(
          dataclasses.replace(config, level_name=level_name))
      with config_lib.writing('logdir', config.logdir):
        tester.unfinished.write(levels)
    output.say(table.row(level_name, levels[level_name]))
  levels = {name: levels[name] for name in level_names}
  with config_lib.writing('logdir', config.logdir):
    scores = scores_lib.write_scores(
        config.logdir, levels, tester.frames, tester.identity,
        suite_scores.compute(config.level_name, {
            name: level['episode_returns'] for name, level in levels.items()}))
    tester.unfinished.remove()
  for name, score in scores.items():
    if name.endswith('score'):
      logging.info('%s: %s %.1f %%', config.level_name, name, score)
  return scores


class _Tester:
  """The agent of a checkpoint.

  Attributes:
    frames: Environment frames it was trained on.
    identity: Of `scores.identity`.
    unfinished: The `scores.UnfinishedTest` of the configuration.
  """

  def __init__(self, config, stop):
    self._stop = stop
    devices = devices_assembly.choose(config)
    # Before the weights are read: a checkpoint that is saved meanwhile is not
    # taken for a tested one.
    self.identity = _identity(config)
    trained = trained_lib.restore(config)
    with config_lib.writing('logdir', config.logdir):
      scores_lib.check_writing(config.logdir)
    if config.video_dir:
      _check_video(config)
    logging.info(
        'Testing %s of %s, trained on %d frames: %d episodes of each level',
        trained.saved.path, config.level_name, trained.saved.frames,
        config.test_num_episodes)
    self._agent = trained.agent
    self.frames = trained.saved.frames
    self.unfinished = scores_lib.UnfinishedTest(
        config.logdir, _kind(config, trained.saved))
    self._policy = policy_lib.Policy(
        self._agent, trained.saved.weights, trained.saved.steps,
        play.seed(config), devices.inference, devices.jit_compile)

  def _act(self, *inputs):
    """Calls the policy, unless a signal says stop."""
    if self._stop.is_set():
      raise signals.Interrupted()
    return self._policy(*inputs)

  def test(self, config):
    """Plays the episodes of one level; returns `scores.of_level` of them."""
    with self._stop.interrupting():
      episodes = self._play(config)
      if config.video_dir:
        with config_lib.writing('video_dir', config.video_dir):
          logging.info('Wrote %s', self._record(config))
    return scores_lib.of_level(config.level_name, episodes)

  def _play(self, config):
    progress = progress_lib.ProgressLine()
    numbers = itertools.count(1)

    def on_episode(episode):
      progress.show(f'{config.level_name}: episode {next(numbers)} of '
                    f'{config.test_num_episodes}, return '
                    f'{episode.episode_return:g}')

    episodes = play.play_level(config, self._act, self._agent, on_episode)
    progress.end()
    return episodes

  def _record(self, config):
    """Plays an episode of one level into a file, and returns its path."""
    path = file_names.video(config.video_dir, config.level_name)
    pool = suites.make_shown_pool(config, play.seed(config))
    with contextlib.closing(pool):
      frames = recording.play(pool, self._act, self._agent.initial_state(1))
      recording.write_gif(path, frames, config.num_action_repeats)
    return path


def _identity(config):
  try:
    return scores_lib.identity(config)
  except OSError as e:
    raise config_lib.ConfigError(f'--logdir={config.logdir} cannot be read: '
                                 f'{errors.first_line(e)}.') from e


def _kind(config, saved):
  """Returns what a test's levels, scores and films depend on, a dict.

  Args:
    config: A `config.Config`.
    saved: A `checkpoint.TrainedWeights`.
  """
  return dict(level_name=config.level_name, frames=saved.frames,
              # Checkpoints of other runs may be of the same frame.
              weights=weights_hash.of(saved.weights),
              seed=config.seed, test_num_episodes=config.test_num_episodes,
              dataset_path=config.dataset_path, video_dir=config.video_dir,
              agent=config_lib.effective_values(
                  dataclasses.asdict(config), config_lib.AGENT))


def _check_video(config):
  """Refuses what would fail only after the episodes were played."""
  level = suites.level_names(config)[0]
  try:
    suites.make_shown_pool(
        dataclasses.replace(config, level_name=level), config.seed).close()
  except PoolError as e:
    raise config_lib.refusal(
        'video_dir', config.video_dir, f'{e}. Leave it out') from e
  with config_lib.writing('video_dir', config.video_dir):
    os.makedirs(config.video_dir, exist_ok=True)
    whole_file.check(os.path.join(config.video_dir, 'video.gif'))
