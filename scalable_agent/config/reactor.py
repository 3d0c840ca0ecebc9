"""Settings of Reactor alone, and its defaults for those of all agents.

Sections and tables are those of the Reactor paper (Gruslys et al., 2018).
"""

import dataclasses

from scalable_agent.config import settings
from scalable_agent.config.learning import LEARNING
from scalable_agent.config.learning import NETWORK
from scalable_agent.config.settings import setting

_OF = dict(agent='reactor')

# Where the paper is silent: decay and epsilon as Adam has them, the entropy
# cost of IMPALA, a network by the observation. Its momentum is zero, and not
# Adam's .9, "because asynchronous updates induce implicit momentum" (3.4.1).
DEFAULTS = dict(
    unroll_length=32, batch_size=4, learning_rate=.00005,
    learning_rate_schedule='constant', decay=.999, momentum=0., epsilon=1e-8,
    gradient_norm_clip=0., entropy_cost=.01, frame_stack=1, network='auto',
    use_lstm=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReactorSettings:
  """Settings of Reactor alone."""

  target_update_period: int = setting(
      1000, 'Updates after which the target network gets the weights (4.1).',
      LEARNING, settings.ONE_OR_MORE, **_OF)
  retrace_lambda: float = setting(
      1., 'lambda of Retrace, in [0, 1]; 0 bootstraps after every step.',
      LEARNING, settings.FRACTION, **_OF)
  policy_gradient: str = setting(
      'beta_loo', 'Which policy gradient (3.1): beta_loo, beta-leave-one-out; '
      'or tislr, truncated importance sampling with a correction.', LEARNING,
      choices=('beta_loo', 'tislr'), **_OF)
  beta_loo_clip: float = setting(
      1., 'c of the policy gradient, where its weight of the action that was '
      'taken is truncated; inf truncates none (3.1).', LEARNING,
      settings.NOT_NEGATIVE, **_OF)
  policy_uniform: float = setting(
      .01, 'Share of the uniform policy in the agent\'s (6.4).', NETWORK,
      settings.Check(lambda value: 0 < value < 1,
                     'it has to be more than 0 and less than 1'), **_OF)
  num_atoms: int = setting(
      51, 'Atoms of the distributions of returns.', NETWORK,
      settings.between(2, 10_000), **_OF)
  v_min: float = setting(
      -10., 'Smallest discounted return that distributions can tell apart. Has '
      'to be given if rewards are not clipped to [-1, 1].', NETWORK, **_OF)
  v_max: float = setting(
      10., 'Largest such return; has to be given likewise. The middle of the '
      'two is what every return is thought to be at first.', NETWORK, **_OF)
  steps_per_update: float = setting(
      5., 'Agent steps acted for each update, over all learners (3.4: 4 to 6).',
      LEARNING, settings.FINITE_POSITIVE, **_OF)
  replay_steps: int = setting(
      1_000_000, 'Agent steps that replay has room for at each learner, in '
      'memory: one of Atari is 7.2 kB. More than the machine has memory for is '
      'refused. (gym: 100,000.)', LEARNING,
      settings.ONE_OR_MORE, **_OF)
  replay_min_steps: int = setting(
      10_000, 'Agent steps that each learner has before its first update. '
      '(gym: 1,000.)', LEARNING, settings.ONE_OR_MORE, **_OF)
  replay_uniform: float = setting(
      .1, 'The probability that a sequence is drawn uniformly, and not by '
      'priority, in (0, 1].', LEARNING,
      settings.Check(lambda value: 0 < value <= 1,
                     'it has to be more than 0, and 1 at the most'), **_OF)
