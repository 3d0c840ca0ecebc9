"""Settings of a run as such: what it saves, logs and tests, and how often."""

import dataclasses

from scalable_agent.config import settings
from scalable_agent.config.settings import setting

# A seed plus the number of a run of a sweep, or of a member of a population,
# has to fit 31 bits.
_MAX_SEED = 2_000_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
  """Settings of a run as such."""

  seed: int = setting(
      1, 'Random seed of weights, actions and levels, from 0 to 2,000,000,000.',
      settings.NOWHERE, settings.Check(
          lambda value: 0 <= value <= _MAX_SEED,
          f'it has to be from 0 to {_MAX_SEED:,}'))
  save_checkpoint_secs: float = setting(
      120., 'Seconds between two checkpoints.', settings.NOWHERE,
      settings.POSITIVE)
  keep_checkpoints: int = setting(
      3, 'Checkpoints to keep.', settings.NOWHERE, settings.ONE_OR_MORE)
  max_failed_saves: int = setting(
      10, 'Saves of logs and checkpoint that may fail in a row before training '
      'gives up.', settings.NOWHERE, settings.ONE_OR_MORE)
  log_interval_secs: float = setting(
      10., 'Seconds between two log entries.', settings.NOWHERE,
      settings.POSITIVE)
  test_num_episodes: int = setting(
      10, 'Episodes to play per level in test mode, and in each evaluation of '
      '--evaluate_every_frames.', settings.NOWHERE, settings.ONE_OR_MORE)
  evaluate_every_frames: int = setting(
      0, 'Environment frames of training from one evaluation to the next: an '
      'actor of its own then plays --test_num_episodes whole episodes per '
      'level, as test mode does, while training goes on. 0 evaluates never.',
      settings.NOWHERE, settings.NOT_NEGATIVE)
  batch_timeout_secs: float = setting(
      600., 'Seconds without a batch after which training gives up, from when '
      'the environments of this process have started; in a learner job, those '
      'of an actor job. If it is less than --environment_timeout_secs, the run '
      'ends before an environment that hangs is replaced.',
      settings.NOWHERE, settings.POSITIVE)
