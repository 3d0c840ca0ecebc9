"""Log directories of runs that have weights, and never were trained."""

import os

from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.checkpoints import checkpoint
from scalable_agent.training import logdir as logdir_lib
from scalable_agent.training import run_config


def make(logdir, mode='export', **settings):
  """Makes one with its first checkpoint.

  Args:
    logdir: Its path.
    mode: In which the level needs no engine.
    **settings: Of the run.

  Returns:
    A pair of a `suites.Facts` and the run's `networks.Agent`.
  """
  config = run_config.resolve(dict(settings, logdir=str(logdir), mode=mode))
  facts = suites.find_facts(config)
  agent = agent_assembly.create_agent(config, facts)
  learner = learner_assembly.create_learner(
      config, agent,
      devices_assembly.Devices(['/cpu:0'], '/cpu:0', False))
  os.makedirs(logdir)
  logdir_lib.write(config, logdir_lib.facts_of(facts))
  checkpoint.Checkpointer(
      config.logdir, learner, config.to_json(), config.keep_checkpoints).save()
  return facts, agent
