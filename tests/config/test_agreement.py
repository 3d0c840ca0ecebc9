"""Whoever has to agree on a setting compares it: derived from its scopes."""

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.environments import ArraySpec
from scalable_agent.learner_service import protocol
from scalable_agent.suites import Facts
from scalable_agent.training import logdir as logdir_lib
from scalable_agent.unroll_messages import agreements

_FACTS = dict(num_actions=6, observation_shapes=[[84, 84, 4]])
_POOL_FACTS = Facts(6, (ArraySpec((84, 84, 4), np.dtype(np.uint8)),))
# Another value for settings of the example below, where it is not just greater.
_OTHERS = dict(
    level_name='qbert', network='deep', use_lstm=True, full_action_set=True,
    precision='bfloat16', inference='learner', reward_clipping='none',
    learner_hosts=['a:1', 'b:3'], replay_proportion=.25, discounting=.5,
    decay=.5, vtrace_lambda=.5, batch_size=64, collective_hosts=['a:5', 'b:6'],
    replay_state='recomputed', train_on_new=False, entropy_on_replay=False,
    max_policy_lag=9, subtract_background=True,
    off_policy_correction='one_step', q_estimate='baseline',
    learning_rate_schedule='constant', agent='reactor', frame_stack=1,
    policy_uniform=.5, policy_gradient='tislr', retrace_lambda=.5,
    replay_uniform=.5, replay_min_steps=9, v_min=-9.)


def _config(task=0, **values):
  return config_lib.resolve(dict(dict(
      level_name='pong', learner_hosts=['a:1', 'b:2'], task=task,
      insecure_network=True), **values))


def _base(name):
  """What a setting needs to make a difference, a dict."""
  if config_lib.SETTINGS[name].agent == 'reactor':
    return dict(agent='reactor')
  if name == 'replay_state':
    return dict(replay_proportion=.5, use_lstm=True)
  return {} if name == 'agent' else dict(replay_proportion=.5)


def _other(name):
  value = _OTHERS.get(name)
  return 2 * getattr(_config(), name) + 1 if value is None else value


def _agreement(**values):
  return protocol.agreement(_config(**values), _POOL_FACTS)


def _worker_agreement(**values):
  return protocol.agreement(config_lib.resolve(dict(dict(
      level_name='pong', architecture='a3c', task=0), **values)), _POOL_FACTS)


def _difference(ours, theirs):
  return agreements.difference(ours, theirs, protocol.US, protocol.THEM)


@pytest.mark.parametrize('name', sorted(
    set(config_lib.names(config_lib.ACTORS)) - {'architecture'}))
def test_an_actor_that_differs_is_told(name):
  base = _base(name)
  assert _difference(
      _agreement(**base), _agreement(**{**base, name: _other(name)})
  ).startswith(f'--{name} is ')


def test_an_actor_may_differ_in_what_is_the_learners():
  assert _difference(_agreement(), _agreement(
      learning_rate=1., replay_proportion=0., task=3, job_name='actor')) == ''


def test_an_actor_is_no_worker_of_a3c():
  assert _difference(_agreement(), _worker_agreement()).startswith(
      '--architecture is "impala" at the learner, "a3c" at the actor')


@pytest.mark.parametrize('name', config_lib.names(config_lib.WORKERS))
def test_a_worker_whose_loss_differs_is_told(name):
  values = {name: _other(name)}
  assert _difference(
      _worker_agreement(), _worker_agreement(**values)).startswith(
          f'--{name} is ')
  # Other actors compute none.
  base = _base(name)
  assert _difference(
      _agreement(**base), _agreement(**{**base, **values})) == ''


def _begin_run(logdir, base):
  logdir_lib.write(_config(logdir=str(logdir), **base), _FACTS)
  (logdir / 'ckpt-0.index').touch()


@pytest.mark.parametrize(
    'name', sorted(set(config_lib.names(config_lib.IDENTITY)) - {'suite'}))
def test_a_log_directory_is_that_of_the_same_weights(tmp_path, name):
  base = _base(name)
  _begin_run(tmp_path, base)
  with pytest.raises(config_lib.ConfigError, match=f'with {name}='):
    logdir_lib.check(_config(
        logdir=str(tmp_path), **{**base, name: _other(name)}), _FACTS)


@pytest.mark.parametrize(
    'name', sorted(set(config_lib.names(config_lib.LEARNERS)) - set(
        config_lib.names(config_lib.IDENTITY)) - {'learner_hosts'}))
def test_a_log_directory_may_go_on_otherwise(tmp_path, name):
  base = _base(name)
  _begin_run(tmp_path, base)
  told = logdir_lib.check(_config(
      logdir=str(tmp_path), **{**base, name: _other(name)}), _FACTS)
  assert {line.split(' was ')[0] for line in told} == {name} | (
      {'queue_capacity'} if name in ('batch_size', 'replay_proportion')
      else set())
