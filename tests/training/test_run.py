"""The parts of a run, connected: who acts with which weights."""

import functools
import threading

from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import experiment
from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_lib
from scalable_agent.training import actor_threads
from scalable_agent.training import run as run_lib

pytestmark = pytest.mark.usefixtures('bounded')

_DEVICES = devices_lib.Devices(['/cpu:0'], '/cpu:0', False, False)


def _largest_log_rho(logdir, architecture, use_lstm, num_steps=6):
  """Of all actions of some batches, against the weights they are to train."""
  with flagsaver.flagsaver():
    flags.FLAGS([
        'experiment', '--level_name=synthetic:step_ms=0,size=3,episode_steps=7',
        f'--logdir={logdir}', f'--architecture={architecture}',
        '--network=vector', f'--use_lstm={use_lstm}', '--unroll_length=5',
        '--batch_size=6', '--num_actors=6', '--environment_threads=2',
        '--learning_rate=0.1'])
    config = experiment.config_from_flags()
  pools = suites.make_pools(
      config, suites.choose_layout(config, config.num_actors), config.seed)
  agent = agent_assembly.create_agent(config, pools[0])
  run = run_lib.Run(
      config, pools[0], _DEVICES,
      functools.partial(actor_threads.ActorThreads, config, pools))
  largest = 0.
  try:
    for _ in range(num_steps):
      staged = run.next_batch(threading.Event())
      unrolls = staged[0].unrolls
      (logits, _), _ = agent.unroll(
          run.learner.weights(), unrolls.agent_outputs.action,
          unrolls.env_outputs, unrolls.agent_state)
      log_pi = tf.nn.log_softmax(logits[:-1])
      log_mu = tf.nn.log_softmax(unrolls.agent_outputs.policy_logits[1:])
      largest = max(largest, np.abs(log_pi - log_mu).max())
      run.train_on(staged)
  finally:
    run.close()
  return largest


@pytest.mark.parametrize('use_lstm', [False, True])
@pytest.mark.parametrize('architecture', ['a2c_sync_step',
                                          'a2c_sync_trajectory'])
def test_batched_a2c_is_on_policy(tmp_path, architecture, use_lstm):
  """All importance weights are 1, whatever large steps the learner takes."""
  assert _largest_log_rho(tmp_path, architecture, use_lstm) < 1e-4


def test_impala_is_off_policy(tmp_path):
  """Which is what makes the test above one."""
  assert _largest_log_rho(tmp_path, 'impala', False) > 1e-2
