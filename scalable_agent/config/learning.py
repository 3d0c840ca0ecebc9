"""Settings of the agent and of what it learns from."""

import dataclasses
import re

from scalable_agent.config import settings
from scalable_agent.config.settings import setting

_LEARNING = settings.LEARNERS | settings.AGENT
_NETWORK = settings.IDENTITY | settings.ACTORS | _LEARNING
# The keys of `networks.TORSOS`, which this module cannot import, since that
# loads TensorFlow. So it is with `losses.REWARD_CLIPPINGS` below.
TORSOS = ('deep', 'shallow', 'vector')
_OWN_TORSO = re.compile(r'[^:]+:\w+')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningSettings:
  """See the module."""

  architecture: str = setting(
      'impala', 'How actors and learner take turns (paper, section 5.1): '
      'impala, neither waits for the other; or batched A2C, on policy, where '
      'all environments wait for each other at every step, or at the end of '
      'every unroll, and then for the update. A2C needs --batch_size equal to '
      '--num_actors.', settings.AGENT,
      choices=('impala', 'a2c_sync_step', 'a2c_sync_trajectory'))

  network: str = setting(
      'deep', 'Torso of the network: deep or shallow (paper, Figure 3); '
      'vector, which is two linear layers for observations that are no images; '
      'auto, which is vector or shallow, by the observation; or '
      'package.module:Name for a class of your own. (Atari: shallow; atari57: '
      'deep. gym: auto.)', _NETWORK,
      settings.Check(
          lambda value: (
              value in (*TORSOS, 'auto') or _OWN_TORSO.fullmatch(value)),
          f'it has to be {", ".join(TORSOS)}, auto or, for a class of your '
          'own, package.module:Name'))
  use_lstm: bool = setting(
      True, 'Whether the network has an LSTM core. (Atari, gym: no.)', _NETWORK)
  precision: str = setting(
      'float32', 'What the convolutions compute in; everything else is '
      'float32. bfloat16 pays on GPUs, and on CPUs with AVX-512 BF16.',
      settings.ACTORS | _LEARNING, choices=('float32', 'bfloat16'))

  batch_size: int = setting(
      2, 'Unrolls per batch, over all learners and their devices. '
      '(Atari, gym: 32.)', _LEARNING, settings.ONE_OR_MORE)
  unroll_length: int = setting(
      100, 'Length of an unroll in agent steps. (Atari, gym: 20.)',
      settings.ACTORS | _LEARNING, settings.ONE_OR_MORE)
  replay_proportion: float = setting(
      0., 'Proportion of every batch that is drawn from unrolls trained on '
      'before (paper, section 5.2.2: 0.5). Frames and policy lag are counted '
      'without them.', _LEARNING, settings.Check(
          lambda value: 0 <= value < 1, 'it has to be in [0, 1)'))
  replay_capacity: int = setting(
      10_000, 'Unrolls that each learner keeps for replay, in memory: an '
      'unroll of 20 steps of Atari is 0.6 MB, one of 100 of DeepMind Lab '
      '2.1 MB. More than the machine has memory for is refused.', _LEARNING,
      settings.ONE_OR_MORE, needs='replay_proportion')
  total_environment_frames: int = setting(
      int(1e9),
      'Environment frames to train for; the learning rate is 0 at the end. '
      '(Atari: 200 million, and as many for each game of atari57. gym: 10 '
      'million.)', _LEARNING, settings.ONE_OR_MORE)

  entropy_cost: float = setting(
      .00025, 'Multiplier of the entropy loss. (Atari, gym: 0.01.)', _LEARNING,
      settings.FINITE_NOT_NEGATIVE)
  baseline_cost: float = setting(
      .5, 'Multiplier of the baseline loss.', _LEARNING,
      settings.FINITE_NOT_NEGATIVE)
  discounting: float = setting(
      .99, 'Discount factor per agent step.', _LEARNING, settings.FRACTION)
  reward_clipping: str = setting(
      'abs_one', 'How the learner clips rewards. Logged returns are never '
      'clipped. (gym: none. dmlab30 and each of its levels: soft_asymmetric.)',
      _LEARNING, choices=('abs_one', 'soft_asymmetric', 'none'))
  clip_rho_threshold: float = setting(
      1., 'rho_bar of V-trace; 0 does not truncate.', _LEARNING,
      settings.NOT_NEGATIVE)
  clip_pg_rho_threshold: float = setting(
      1., 'Level at which the importance weights of the policy gradient are '
      'truncated; 0 does not truncate.', _LEARNING, settings.NOT_NEGATIVE)
  vtrace_lambda: float = setting(
      1., 'lambda of V-trace (paper, Remark 2), in [0, 1].', _LEARNING,
      settings.FRACTION)

  learning_rate: float = setting(
      .00048, 'Learning rate at the start; it falls linearly to 0. '
      '(Atari, gym: 0.0006.)', _LEARNING, settings.FINITE_NOT_NEGATIVE)
  decay: float = setting(
      .99, 'Decay of RMSProp\'s mean square.', _LEARNING, settings.FRACTION)
  momentum: float = setting(
      0., 'Momentum of RMSProp.', _LEARNING, settings.FINITE_NOT_NEGATIVE)
  epsilon: float = setting(
      .1, 'Epsilon of RMSProp, inside the root. (Atari, gym: 0.01.)', _LEARNING,
      settings.FINITE_POSITIVE)
  gradient_norm_clip: float = setting(
      0., 'Norm to which the gradient over all weights is clipped; 0 does not '
      'clip. (Atari, gym: 40.)', _LEARNING, settings.FINITE_NOT_NEGATIVE)
