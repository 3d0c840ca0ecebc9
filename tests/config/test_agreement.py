"""Whoever has to agree on a setting compares it: derived from its scopes."""

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.environments import ArraySpec
from scalable_agent.remote import protocol
from scalable_agent.training import logdir as logdir_lib

_FACTS = dict(num_actions=6, observation_shapes=[[84, 84, 4]])
_SPEC = (ArraySpec((84, 84, 4), np.dtype(np.uint8)),)
# Another value for settings of the example below, where it is not just greater.
_OTHERS = dict(
    level_name='qbert', network='deep', use_lstm=True, full_action_set=True,
    precision='bfloat16', inference='learner', reward_clipping='none',
    learner_hosts=['a:1', 'b:3'], replay_proportion=.25, discounting=.5,
    decay=.5, vtrace_lambda=.5, batch_size=64, collective_hosts=['a:5', 'b:6'])


def _config(task=0, **values):
  return config_lib.resolve(dict(dict(
      level_name='pong', learner_hosts=['a:1', 'b:2'], task=task,
      insecure_network=True, replay_proportion=.5), **values))


def _other(name):
  value = _OTHERS.get(name)
  return 2 * getattr(_config(), name) + 1 if value is None else value


def _agreement(**values):
  return protocol.agreement(_config(**values), 6, _SPEC)


@pytest.mark.parametrize('name', config_lib.names(config_lib.ACTORS))
def test_an_actor_that_differs_is_told(name):
  assert protocol.difference(
      _agreement(), _agreement(**{name: _other(name)})).startswith(
          f'--{name} is ')


def test_an_actor_may_differ_in_what_is_the_learners():
  assert protocol.difference(_agreement(), _agreement(
      learning_rate=1., replay_proportion=0., task=3, job_name='actor')) == ''


def _begin_run(logdir):
  logdir_lib.write(_config(logdir=str(logdir)), _FACTS)
  (logdir / 'ckpt-0.index').touch()


@pytest.mark.parametrize(
    'name', sorted(set(config_lib.names(config_lib.IDENTITY)) - {'suite'}))
def test_a_log_directory_is_that_of_the_same_weights(tmp_path, name):
  _begin_run(tmp_path)
  with pytest.raises(config_lib.ConfigError, match=f'with {name}='):
    logdir_lib.check(
        _config(logdir=str(tmp_path), **{name: _other(name)}), _FACTS)


def test_a_log_directory_may_go_on_otherwise(tmp_path):
  _begin_run(tmp_path)
  names = set(config_lib.names(config_lib.LEARNERS)) - set(
      config_lib.names(config_lib.IDENTITY)) - {'learner_hosts'}
  changed = {name: _other(name) for name in names}
  told = logdir_lib.check(_config(logdir=str(tmp_path), **changed), _FACTS)
  assert {line.split(' was ')[0] for line in told} == names | {'queue_capacity'}
