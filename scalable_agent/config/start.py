"""Settings of a single start: which run it is about, and what it does with it.

No later start takes them from the run.
"""

import dataclasses

from scalable_agent.config import settings
from scalable_agent.config.settings import setting


def _is_range(value):
  bounds = value.split(':')
  return not value or (
      len(bounds) == 2 and all(map(str.isdecimal, bounds)) and
      int(bounds[0]) < int(bounds[1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartSettings:
  """Settings of a single start."""

  logdir: str = setting(
      '/tmp/agent',
      'Directory of the run: configuration, checkpoints, logs. If it holds a '
      'run, what no flag says is as it was in that run: training resumes, and '
      '--mode=test and --mode=export take its weights. --mode=check does not '
      'look there.', settings.NOWHERE, settings.Check(
          lambda value: value and settings.LOCAL_NO_PATTERN.holds(value),
          settings.LOCAL_NO_PATTERN.expected))
  mode: str = setting(
      'train',
      'Whether to train, to play whole episodes with a checkpoint, to write '
      'one as a SavedModel, or to check which levels can be played here.',
      settings.NOWHERE, choices=('train', 'test', 'export', 'check'))
  checkpoint: str = setting(
      'latest',
      'Which weights --mode=test and --mode=export take: latest; best, those '
      'of the best mean return of 100 episodes (atari57, dmlab30: of the best '
      'mean capped score); or the path of a checkpoint, such as '
      '/tmp/agent/ckpt-4000000.', settings.NOWHERE, settings.NO_PATTERN)
  video_dir: str = setting(
      '', 'Directory for a GIF of one more episode per level in test mode; the '
      'level has to have images to show.', settings.NOWHERE,
      settings.LOCAL_PATH)
  memory_gb: float = setting(
      0., 'GB of memory that this process may take, a fifth of which is for '
      'all else than its buffers; 0 is all that is free. A sweep or a '
      'population that runs several processes at a time gives each its share '
      'of what is free when it starts.',
      settings.NOWHERE, settings.FINITE_NOT_NEGATIVE)
  profile_updates: str = setting(
      '', 'Updates to write a trace of, FIRST:LAST. TensorFlow\'s profiler '
      'starts after update FIRST and writes to --logdir after update LAST, as '
      'in 100:110 for ten updates. An actor job has no updates.',
      settings.NOWHERE, settings.Check(
          _is_range, 'it has to be FIRST:LAST, two whole numbers of updates, '
          'the first one smaller'))
  export_dir: str = setting(
      '', 'Directory that --mode=export writes to; by default the directory '
      'export in --logdir.', settings.NOWHERE, settings.LOCAL_NO_PATTERN)
