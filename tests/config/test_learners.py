"""Which settings learners that update the same weights may differ in.

An update is the same for all of them only if they count the same frames, have
the same loss, and take part in the same collectives. What decides any of that
is compared when they meet; each other setting is listed below, with the reason
why it decides none of it.
"""

import dataclasses

import pytest

from scalable_agent import config as config_lib
from scalable_agent.training import peers as peers_lib

_NO_ENVIRONMENTS = 'Learner jobs have no environments, their actor jobs do.'
_SPEED = 'It changes how fast this machine computes, not what.'
_POLICY = 'It is about acting, whatever weights the policy has.'
_TEST = 'Tests and exports have one process, which meets no other.'
_FIRST = 'The first learner alone writes, by its own clock.'
_DEVICES = 'How many devices it leaves for learning is compared instead.'
_OWN_BUFFERS = 'Several learners of one agent have a buffer each.'
_OWN_FILE = 'It names a file of this machine.'

_MAY_DIFFER = dict(
    # The run as such.
    logdir=_FIRST,
    mode=_TEST,
    checkpoint=_TEST,
    video_dir=_TEST,
    export_dir=_TEST,
    memory_gb='It refuses what this machine has no memory for.',
    profile_updates=_FIRST,
    test_num_episodes=_FIRST,
    evaluate_every_frames=_FIRST,
    seed='All take the weights of the first learner. Besides these, a seed '
         'decides which actions and replayed unrolls are drawn, and those may '
         'be different.',
    save_checkpoint_secs=_FIRST,
    keep_checkpoints=_FIRST,
    max_failed_saves=_FIRST,
    log_interval_secs=_FIRST,
    batch_timeout_secs='A learner that gives up tells the others, whose update '
                       'waits for it.',
    # Environments.
    num_actors=_NO_ENVIRONMENTS,
    dataset_path=_NO_ENVIRONMENTS,
    runfiles_path=_NO_ENVIRONMENTS,
    level_cache_dir=_NO_ENVIRONMENTS,
    environment_timeout_secs=_NO_ENVIRONMENTS,
    environment_start_timeout_secs=_NO_ENVIRONMENTS,
    # Learning.
    architecture='Batched A2C and A3C are refused where there are several '
                 'learners.',
    warm_start='The first learner alone reads it, and all take its weights.',
    # Jobs.
    task='It tells the learners apart.',
    job_name='Actor jobs do not meet the learners like this.',
    replay_host=_OWN_BUFFERS, replay_agents=_OWN_BUFFERS,
    shares_replay=_OWN_BUFFERS,
    collective_hosts='Learners that look for each other at other addresses do '
                     'not meet. Machines may know one address by two names.',
    envs_per_actor=_NO_ENVIRONMENTS,
    inference='A learner agrees on it with its own actor jobs. The unrolls '
              'have the same form either way.',
    auth_token_file=_OWN_FILE,
    tls_cert=_OWN_FILE,
    tls_key=_OWN_FILE,
    tls_ca=_OWN_FILE,
    insecure_network='Each learner refuses to start without it.',
    # The machine.
    xla=_SPEED + ' Only loss and gradients are compiled; the sum over the '
                 'learners and the update are not.',
    num_learner_devices=_DEVICES,
    inference_device=_DEVICES,
    intra_op_threads=_SPEED,
    num_pools=_NO_ENVIRONMENTS,
    pool_batch_size=_NO_ENVIRONMENTS,
    environment_threads=_NO_ENVIRONMENTS,
    inference_minimum_batch_size=_POLICY,
    inference_maximum_batch_size=_POLICY,
    inference_timeout_ms=_POLICY,
    queue_capacity='More wait, or fewer. A batch has as many unrolls.')

_COMPARED = config_lib.names(config_lib.LEARNERS)
# What follows from a setting differs with it, and the setting is named.
_FLAGS = [name for name in _COMPARED
          if not config_lib.SETTINGS[name].is_derived]
_FACTS = dict(num_actions=6, observation_shapes=[[84, 84, 4]])


def _config(task=0, **values):
  return config_lib.resolve(dict(dict(
      level_name='pong', learner_hosts=['a:1', 'b:2'], task=task,
      insecure_network=True), **values))


def _base(name):
  """What a setting needs to make a difference, a dict."""
  is_reactor = config_lib.SETTINGS[name].agent == 'reactor'
  return dict(agent='reactor') if is_reactor else dict(replay_proportion=.5)


def _another(value):
  """Another value of the same type, whether or not it could work."""
  if isinstance(value, bool):
    return not value
  if isinstance(value, list):
    return value + ['c:3']
  return value + ('x' if isinstance(value, str) else 1)


class _Collectives:
  """The part of one of two learners, the second of which knows both."""

  strategy = None

  def __init__(self, task, messages, num_devices):
    self.task = task
    self.num_devices = num_devices
    self.num_sums = 0
    self._messages = messages

  def gather(self, message):
    self._messages.append(message)
    return self._messages

  def sum(self, values):
    self.num_sums += 1
    return values


def _meet(configs, num_devices=(1, 1), facts=(_FACTS, _FACTS)):
  """Has two learners compare their settings; returns what the second says."""
  messages = []
  for task in range(2):
    peers = peers_lib.Peers(_Collectives(task, messages, num_devices[task]))
    try:
      peers.check_settings(configs[task], facts[task])
    except config_lib.ConfigError as e:
      return str(e)
  return ''


def test_every_setting_is_compared_or_has_a_reason():
  assert set(_MAY_DIFFER) | set(_COMPARED) == set(config_lib.SETTINGS)
  assert not set(_MAY_DIFFER) & set(_COMPARED)


@pytest.mark.parametrize('name', _FLAGS)
def test_another_value_is_refused_in_one_line_that_names_the_flag(name):
  base = _base(name)
  value = getattr(_config(**base), name)
  other = dataclasses.replace(_config(1, **base), **{name: _another(value)})
  assert _meet([_config(**base), other]) == (
      f'--{name} is {value} at learner 0 and {_another(value)} at learner 1; '
      'all learners need the same.')


@pytest.mark.parametrize('name', _MAY_DIFFER)
def test_another_value_makes_no_difference(name):
  value = getattr(_config(1), name)
  other = dataclasses.replace(_config(1), **{name: _another(value)})
  assert _meet([_config(), other]) == ''


def test_what_follows_is_not_named_before_what_it_follows_from():
  other = _config(1, level_name='gym:CartPole-v1')
  assert _meet([_config(), other]).startswith('--level_name is pong ')


def test_a_capacity_without_replay_is_not_compared():
  values = dict(replay_proportion=0.)
  other = _config(1, replay_capacity=7, **values)
  assert _meet([_config(**values), other]) == ''


def test_a_refusal_is_heard_by_all_before_one_is_gone():
  """They meet once more, and only then tell their users."""
  messages = []
  first, second = (_Collectives(task, messages, 1) for task in range(2))
  peers_lib.Peers(first).check_settings(_config(), _FACTS)
  with pytest.raises(config_lib.ConfigError):
    peers_lib.Peers(second).check_settings(_config(1, discounting=.5), _FACTS)
  assert first.num_sums == 0 and second.num_sums > 0


def test_other_devices_and_environments_are_refused():
  configs = [_config(), _config(1)]
  assert _meet(configs) == ''
  assert _meet(configs, num_devices=(1, 2)).startswith('devices is 1 ')
  assert _meet(configs, facts=(_FACTS, dict(_FACTS, num_actions=18))) == (
      'num_actions is 6 at learner 0 and 18 at learner 1; all learners need '
      'the same.')


def test_several_learners_have_no_batched_a2c():
  with pytest.raises(config_lib.ConfigError, match='--architecture=a2c_sync'):
    _config(architecture='a2c_sync_step')
