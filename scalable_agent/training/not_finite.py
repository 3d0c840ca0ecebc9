"""Explains why training ends if gradients are not finite."""

import numpy as np
import tree

from scalable_agent import losses


def explain(config, num_updates, batch):
  """Returns a line on why training cannot go on.

  Args:
    config: A `config.Config`.
    num_updates: How many updates in a row were skipped.
    batch: The last `Batch` of these.
  """
  what = f'The gradients of {num_updates} updates in a row were not finite. '
  again = (
      'move that checkpoint away to resume from the one before it'
      if config.keep_checkpoints > 1 else 'begin again in another --logdir')
  where = (
      'The weights as they are, finite but perhaps useless, are saved in '
      f'{config.logdir}; {again}')
  levels = levels_with_nan(batch, config.reward_clipping)
  if levels:
    return (f'{what}Rewards or observations of {", ".join(levels)} are not '
            'finite (NaN or infinite), or were, and core states still are: '
            f'correct the environment. {where}.')
  return (f'{what}{where}, with a smaller --learning_rate than '
          f'{config.learning_rate:g} or a larger --epsilon than '
          f'{config.epsilon:g}.')


def levels_with_nan(batch, reward_clipping):
  """Returns the levels with values that are not finite.

  Looks at rewards as they are clipped, observations and core states. A core
  state that is not finite stays so until its episode ends.

  Args:
    batch: A `Batch`.
    reward_clipping: One of `losses.REWARD_CLIPPINGS`.

  Returns:
    A sorted list of level names, each once.
  """
  outputs = batch.unrolls.env_outputs
  finite = np.ones(len(batch.unrolls.level_name), bool)
  rewards = losses.clip_rewards(outputs.reward, reward_clipping).numpy()
  for values in tree.flatten((rewards, outputs.observation)):
    if np.issubdtype(values.dtype, np.floating):
      axes = tuple(axis for axis in range(values.ndim) if axis != 1)
      finite &= np.isfinite(values).all(axis=axes)
  for values in tree.flatten(batch.unrolls.agent_state):
    finite &= np.isfinite(values).reshape(len(finite), -1).all(axis=1)
  return sorted({name for name, is_finite in zip(
      batch.unrolls.level_name, finite) if not is_finite})
