"""The agent of a run, with the weights that it is tested or exported with."""

import collections

from absl import logging
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.checkpoints import checkpoint
from scalable_agent.checkpoints import chosen_checkpoint
from scalable_agent.checkpoints import reading
from scalable_agent.training import logdir as logdir_lib

Trained = collections.namedtuple('Trained', 'agent facts saved')
Trained.__doc__ = """An agent and its weights.

  agent: A `networks.Agent` or a `networks.ReactorAgent`.
  facts: The `suites.Facts` of its levels.
  saved: A `checkpoint.TrainedWeights`.
"""


def restore(config):
  """Restores the checkpoint that `config.checkpoint` names.

  Args:
    config: A `config.Config`.

  Returns:
    A `Trained`.

  Raises:
    config.ConfigError: There is no checkpoint, or it is another run's.
    environments.PoolError: An environment cannot be made.
    checkpoint.CheckpointError: The checkpoints are damaged.
  """
  _refuse_another_run(config, chosen_checkpoint.find(config)[-1])
  facts = suites.find_facts(config)
  agent = agent_assembly.create_agent(config, facts)
  for line in logdir_lib.check(config, logdir_lib.facts_of(facts)):
    logging.warning('Differs from the run: %s', line)
  # Only now: a run that trains removes checkpoints while environments start.
  return Trained(agent, facts, checkpoint.restore_weights(
      chosen_checkpoint.find(config), agent))


def _refuse_another_run(config, path):
  """Refuses a checkpoint that was trained for something else.

  Where the log directory does not say what its run is, the flags have to.
  """
  run = logdir_lib.read_config(config.logdir, config.mode)
  try:
    written = reading.settings(tf.train.load_checkpoint(path))
  except reading.ERRORS:
    return  # Restoring it says why.
  for name in logdir_lib.IDENTITY:
    now = run[name] if name in run else getattr(config, name)
    if name not in written or written[name] == now:
      continue
    if run:
      raise config_lib.refusal(
          'checkpoint', path, f'it was trained with {name}={written[name]}, '
          f'but --logdir={config.logdir} holds a run with {name}={now}. Name '
          'the log directory of its own run')
    raise config_lib.refusal(
        name, now, f'{path} was trained with {name}={written[name]}, and '
        f'--logdir={config.logdir} has no {logdir_lib.CONFIG_FILE}, which '
        'would say so. Bring it back, or give the flags of the run')
