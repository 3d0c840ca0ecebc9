"""Settings of the environments and of what is observed of them."""

import dataclasses

from scalable_agent.config import settings
from scalable_agent.config.settings import derived
from scalable_agent.config.settings import setting

# Of settings that decide whether weights fit.
_WEIGHTS = settings.IDENTITY | settings.LEARNERS
# Of settings that decide what steps mean, for jobs that exchange them.
_STEPS = settings.ACTORS | settings.REPLAY


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
  """Settings of the environments."""

  level_name: str = setting(
      'explore_goal_locations_small',
      'A DeepMind Lab level, dmlab30 for that suite, an Atari game in snake '
      'case (space_invaders), atari57 for all of them, gym:<id> of a Gymnasium '
      'environment with Discrete actions and Box observations '
      '(gym:CartPole-v1), or synthetic:<options> of one that only takes time '
      '(synthetic:step_ms=5,std=0.5).', _WEIGHTS | _STEPS)
  suite: str = derived(
      'The suite that the level is of.', _WEIGHTS)
  num_action_repeats: int = setting(
      4, 'Environment frames per agent step. (gym: 1, but gym:ALE/<id>: 4.)',
      _WEIGHTS | _STEPS | settings.AGENT, settings.between(1, 10_000))
  width: int = setting(
      96, 'Width of the observation in pixels. (Atari: 84. gym: unused.)',
      _WEIGHTS | _STEPS | settings.AGENT, settings.between(1, 4096))
  height: int = setting(
      72, 'Height of the observation in pixels. (Atari: 84. gym: unused.)',
      _WEIGHTS | _STEPS | settings.AGENT, settings.between(1, 4096))
  full_action_set: bool = setting(
      False, 'Use all 18 actions of Atari instead of the game\'s own. '
      '(atari57: yes. gym: unused.)', _WEIGHTS | _STEPS | settings.AGENT)
  environment_timeout_secs: float = setting(
      480., 'Seconds for a step, the start of an episode, or the making of an '
      'environment. One that takes longer hangs, and is replaced; several that '
      'share a process are replaced together. (Atari: unused.)',
      settings.NOWHERE, settings.POSITIVE)
  environment_start_timeout_secs: float = setting(
      3600., 'Seconds for the making of an environment that a run begins with, '
      'and for its first observation. If one takes longer, the run ends. '
      '(DeepMind Lab compiles maps for up to 40 s each, and '
      'longer where there are more processes than cores.)', settings.NOWHERE,
      settings.POSITIVE)
  dataset_path: str = setting(
      '', 'Directory of the images that two psychlab_* levels show.',
      settings.NOWHERE, is_path=True)
  runfiles_path: str = setting(
      '', 'Directory of DeepMind Lab\'s own files, where the engine does not '
      'find them by itself, as when it runs from Bazel\'s output.',
      settings.NOWHERE, is_path=True)
  level_cache_dir: str = setting(
      '', 'Where to keep the maps that DeepMind Lab compiles, so that none is '
      'compiled twice: a directory, or any path that tf.io.gfile knows. '
      'Processes and machines may share it. Empty keeps none.',
      settings.NOWHERE, is_path=True)
