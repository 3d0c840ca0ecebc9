"""Settings of the agent and of what it learns from."""

import dataclasses
import re

from scalable_agent.config import settings
from scalable_agent.config.settings import setting

LEARNING = settings.LEARNERS | settings.AGENT
NETWORK = settings.IDENTITY | settings.ACTORS | LEARNING
_LOSS = settings.WORKERS | LEARNING
# The keys of `networks.torsos.TORSOS`, which this module cannot import, since
# that loads TensorFlow. So it is with `losses.REWARD_CLIPPINGS` and the names
# in `algorithms.corrections` below.
TORSOS = ('deep', 'shallow', 'small', 'reactor', 'vector')
_IMPALA = dict(agent='impala')
_OWN_TORSO = re.compile(r'[^:]+:\w+')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningSettings:
  """Settings of the agent and of what it learns from."""

  agent: str = setting(
      'impala', 'What is trained: impala, an actor-critic on V-trace; or '
      'reactor (Gruslys et al., 2018), an actor-critic on prioritized replay '
      'that learns the distribution of every action\'s return.', NETWORK,
      choices=('impala', 'reactor'))
  architecture: str = setting(
      'impala', 'How actors and learner take turns (paper, section 5.1): '
      'impala, neither waits for the other; or batched A2C, on policy, where '
      'all environments wait for each other at every step, or at the end of '
      'every unroll, and then for the update. A2C needs --batch_size equal to '
      '--num_actors. Or a3c: each environment has a worker, which computes the '
      'gradient of every unroll with the weights it acted with; --batch_size '
      'is 1.', settings.ACTORS | settings.AGENT,
      choices=('impala', 'a2c_sync_step', 'a2c_sync_trajectory', 'a3c'),
      **_IMPALA)
  # Workers of A3C are a part of the agent: its policy lag follows from their
  # number. The learner does not know the number of workers that are jobs.
  # Reports name an agent by the first setting that tells it apart, so
  # --architecture is before.
  num_actors: int = setting(
      4, 'Number of environments. (Atari, gym: 16 per core, but no less than '
      '--batch_size, and no more than 4 times that. atari57: a multiple of 57. '
      'dmlab30: 30. a3c: 2 per core. Batched A2C: --batch_size.)',
      settings.AGENT, settings.ONE_OR_MORE,
      only_with=dict(architecture='a3c', task=-1))
  policy_lag: int = setting(
      0, 'Updates by which the weights that actors get are held back. The lag '
      'of batched A2C is then exactly this, once so many updates are made; '
      'impala adds its own. Each update that is held back keeps a copy of the '
      'weights in memory. A run that resumes begins without lag.', LEARNING,
      settings.NOT_NEGATIVE)
  max_policy_lag: int = setting(
      0, 'Updates from the beginning of an unroll to its training at the most. '
      'Unrolls that would be older are dropped, and counted in metrics.jsonl; '
      'replayed ones may be older. 0 drops none, which '
      '--replay_state=recomputed needs.', LEARNING,
      settings.NOT_NEGATIVE, **_IMPALA)

  network: str = setting(
      'deep', 'Torso of the network: deep or shallow (paper, Figure 3); small, '
      'which is a convolution and a linear layer for images under 20 x 20 '
      'pixels, such as MinAtar\'s; reactor (Reactor, Table 3); vector, which '
      'is two linear layers for observations that are no images; auto, which '
      'is vector, small or shallow (Reactor: reactor), by the observation; or '
      'package.module:Name for a class of your own. (Atari: shallow; atari57: '
      'deep. gym, Reactor: auto.)', NETWORK,
      settings.Check(
          lambda value: (
              value in (*TORSOS, 'auto') or _OWN_TORSO.fullmatch(value)),
          f'it has to be {", ".join(TORSOS)}, auto or, for a class of your '
          'own, package.module:Name'))
  channel_multiplier: int = setting(
      1, 'What the channels of the convolutions of deep, shallow, small and '
      'reactor are multiplied by. (LASER on Atari: 4, with deep.)', NETWORK,
      settings.ONE_OR_MORE)
  subtract_background: bool = setting(
      False, 'Whether the network sees of every image how its pixels differ '
      'from its background, which is their median. Without it, what all images '
      'have in common can be all that the first updates move, until no unit '
      'tells images apart.', NETWORK)
  frame_stack: int = setting(
      4, 'Frames of Atari that the network sees at a time: the newest and '
      'those before it, 1 or 4. (Reactor: 1. gym: unused.)',
      NETWORK | settings.REPLAY,
      settings.Check(lambda value: value in (1, 4), 'it has to be 1 or 4'))
  use_lstm: bool = setting(
      True, 'Whether the network has an LSTM core. (Atari, gym: no; Reactor: '
      'yes.)', NETWORK)
  precision: str = setting(
      'float32', 'What the torso computes in, its linear layer too, if it is '
      'one for images; everything else is float32, which TensorFlow multiplies '
      'as TF32 on GPUs that can. bfloat16 pays on GPUs, and on CPUs with '
      'AVX-512 BF16.',
      settings.ACTORS | LEARNING, choices=('float32', 'bfloat16'))

  batch_size: int = setting(
      2, 'Unrolls per batch, over all learners and their devices. '
      '(Atari, gym: 32; Reactor: 4.)', LEARNING, settings.ONE_OR_MORE)
  unroll_length: int = setting(
      100, 'Length of an unroll in agent steps. (Atari, gym: 20; Reactor: '
      '32.)',
      settings.ACTORS | settings.REPLAY | LEARNING, settings.ONE_OR_MORE)
  replay_proportion: float = setting(
      0., 'Proportion of every batch that is drawn from the unrolls kept, the '
      'new ones among them (paper, section 5.2.2: 0.5). Frames and policy lag '
      'are counted without it.', LEARNING, settings.Check(
          lambda value: 0 <= value < 1, 'it has to be in [0, 1)'), **_IMPALA)
  replay_capacity: int = setting(
      10_000, 'Unrolls that each learner, or the replay job that agents share, '
      'keeps in memory: an unroll of 20 steps of Atari is 0.17 MB, one of 100 '
      'of DeepMind Lab 2.1 MB. More than there is free memory for is '
      'refused.', LEARNING, settings.ONE_OR_MORE,
      needs='replay_proportion', **_IMPALA)
  replay_state: str = setting(
      'stored', 'Which LSTM states replayed unrolls start from: stored, those '
      'that they were acted with; or recomputed, of the newest weights, for '
      'which whole episodes are replayed (LASER).',
      settings.REPLAY | LEARNING,
      choices=('stored', 'recomputed'), needs='replay_proportion', **_IMPALA)
  shares_replay: bool = settings.derived(
      'Whether replay is shared with other agents (--replay_host, or '
      '--share_replay of a sweep or a population).',
      settings.AGENT, default=False, needs='replay_proportion')
  train_on_new: bool = setting(
      True, 'Whether new unrolls are in the batch. If not, all of it is '
      'replayed, which learns badly (LASER, Figure 2).', LEARNING,
      needs='replay_proportion', **_IMPALA)
  entropy_on_replay: bool = setting(
      True, 'Whether the entropy loss is computed on replayed unrolls too. '
      '(LASER: no.)', LEARNING, needs='replay_proportion', **_IMPALA)
  total_environment_frames: int = setting(
      int(1e9),
      'Environment frames to train for; a linear learning rate is 0 at the '
      'end. '
      '(Atari: 200 million, and as many for each game of atari57. gym: 10 '
      'million.)', LEARNING, settings.between(1, 2**63 - 1))

  warm_start: str = setting(
      '', 'Path of a checkpoint, such as /tmp/agent/ckpt-4000000, whose '
      'weights and optimizer slots take the place of the run\'s own. Frames '
      'and updates stay the run\'s own. It is taken once: a run that has '
      'saved since goes on from its own checkpoint.', settings.AGENT,
      settings.NO_PATTERN, is_path=True)

  entropy_cost: float = setting(
      .00025, 'Multiplier of the entropy loss. (Atari, gym, Reactor: 0.01.)',
      _LOSS,
      settings.FINITE_NOT_NEGATIVE)
  baseline_cost: float = setting(
      .5, 'Multiplier of the baseline loss.', _LOSS,
      settings.FINITE_NOT_NEGATIVE, **_IMPALA)
  discounting: float = setting(
      .99, 'Discount factor per agent step.', _LOSS, settings.FRACTION)
  reward_clipping: str = setting(
      'abs_one', 'How the learner clips rewards. Logged returns are never '
      'clipped. (gym: none. dmlab30 and each of its levels: soft_asymmetric.)',
      _LOSS, choices=('abs_one', 'soft_asymmetric', 'none'))
  off_policy_correction: str = setting(
      'vtrace', 'What makes up for data of older policies (paper, section '
      '5.2.2): vtrace; one_step, importance weights of the policy gradient '
      'alone; epsilon, 1e-6 added to probabilities in the policy gradient; or '
      'none.', _LOSS, choices=('vtrace', 'one_step', 'epsilon', 'none'),
      **_IMPALA)
  q_estimate: str = setting(
      'target', 'What the policy gradient takes for the value of the next '
      'state (paper, Appendix E.3): target, the baseline\'s target there; or '
      'baseline, the baseline itself.', _LOSS, choices=('target', 'baseline'),
      **_IMPALA)
  clip_rho_threshold: float = setting(
      1., 'rho_bar of V-trace; 0 does not truncate.', _LOSS,
      settings.NOT_NEGATIVE, **_IMPALA)
  clip_pg_rho_threshold: float = setting(
      1., 'Level at which the importance weights of the policy gradient are '
      'truncated; 0 does not truncate.', _LOSS, settings.NOT_NEGATIVE,
      **_IMPALA)
  vtrace_lambda: float = setting(
      1., 'lambda of V-trace (paper, Remark 2), in [0, 1]. The targets of the '
      'other corrections have it too.', _LOSS,
      settings.FRACTION, **_IMPALA)
  trust_region_threshold: float = setting(
      0., 'b of LASER: V-trace learns nothing from a state whose relevance, a '
      'KL divergence in nats, is this or more, as where another agent acted. '
      'inf rejects none, and logs the relevance; 0 does without.', _LOSS,
      settings.NOT_NEGATIVE, **_IMPALA)

  learning_rate: float = setting(
      .00048, 'Learning rate at the start. (Atari, gym: 0.0006; Reactor: '
      '0.00005.)', LEARNING, settings.FINITE_NOT_NEGATIVE)
  learning_rate_schedule: str = setting(
      'linear', 'What becomes of the learning rate: linear, it falls to 0 at '
      '--total_environment_frames; or constant. (Reactor: '
      'constant.)', LEARNING, choices=('linear', 'constant'))
  decay: float = setting(
      .99, 'Decay of RMSProp\'s mean square. (Reactor: 0.999, beta_2 of '
      'Adam.)', LEARNING, settings.FRACTION)
  momentum: float = setting(
      0., 'Momentum of RMSProp. (Reactor: beta_1 of Adam.)', LEARNING,
      settings.FINITE_NOT_NEGATIVE)
  epsilon: float = setting(
      .1, 'Epsilon of RMSProp, inside the root; of Reactor\'s Adam, outside. '
      '(Atari, gym: 0.01; Reactor: 1e-8.)', LEARNING, settings.FINITE_POSITIVE)
  gradient_norm_clip: float = setting(
      0., 'Norm to which the gradient over all weights is clipped; 0 does not '
      'clip. (Atari, gym: 40; Reactor: 0.)', LEARNING,
      settings.FINITE_NOT_NEGATIVE)
