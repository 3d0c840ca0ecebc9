"""From flags to a learner: each value comes where it belongs."""

import collections
import dataclasses
import types

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent import trajectories
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import impala as impala_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.assembly import reactor as reactor_assembly
from scalable_agent.config import seeds
from scalable_agent.environments import ArraySpec
from scalable_agent.process import timing
from tests.replay import streams

# None of these is a default, as in the next two.
_OF_BOTH = dict(
    level_name='pong', discounting=.9, reward_clipping='soft_asymmetric',
    entropy_cost=.2, learning_rate=.5, momentum=.6, decay=.7, epsilon=.8,
    unroll_length=10, gradient_norm_clip=5., total_environment_frames=4000,
    seed=13)
_REACTOR = dict(
    _OF_BOTH, agent='reactor', retrace_lambda=.3, policy_gradient='tislr',
    beta_loo_clip=4., replay_steps=20_000, replay_min_steps=300,
    steps_per_update=11., replay_uniform=.12, frame_stack=4, num_actors=4,
    v_min=-2., v_max=3.)
_IMPALA = dict(
    _OF_BOTH, baseline_cost=.3, clip_rho_threshold=2.,
    clip_pg_rho_threshold=3., vtrace_lambda=.7, replay_proportion=.5,
    entropy_on_replay=False, trust_region_threshold=.04)


@pytest.fixture(name='calls')
def _calls(monkeypatch):
  """What is called in place of the classes, by name."""
  calls = {}

  def record(module, name):
    monkeypatch.setattr(module, name, lambda *args, **kwargs: calls.update(
        {name: (args, kwargs)}))

  record(impala_assembly.impala, 'make_loss_fn')
  record(impala_assembly.rmsprop, 'RMSProp')
  record(reactor_assembly.reactor, 'make_loss_fn')
  record(reactor_assembly.adam, 'Adam')
  record(reactor_assembly.prioritized_sequences, 'PrioritizedSequences')
  record(learner_assembly.learner_lib, 'Learner')
  return calls


def _loss_settings(calls, algorithm, config):
  """The settings of the loss that a configuration has, a dict."""
  algorithm.create_loss_fn(config, 'agent')
  (agent, settings), others = calls['make_loss_fn']
  assert (agent, others) == ('agent', {})
  return settings._asdict()


def test_every_value_of_reactor_comes_where_it_belongs(calls):
  config = config_lib.resolve(_REACTOR)
  algorithm = reactor_assembly.ALGORITHM
  assert _loss_settings(calls, algorithm, config) == dict(
      discounting=.9, reward_clipping='soft_asymmetric', entropy_cost=.2,
      lambda_=.3, policy_gradient='tislr', beta_loo_clip=4.)
  algorithm.create_optimizer(config)
  assert calls['Adam'] == ((), dict(beta_1=.6, beta_2=.7, epsilon=.8))
  times = timing.StageTimes()
  learner_assembly.create_source(config, 'queue', times, 'agent', None)
  assert calls['PrioritizedSequences'] == (
      ('queue', 20_000, 300, 10, 11., .12, seeds.derive(13, seeds.REPLAY),
       times, True, 4), {})


def test_learners_draw_from_their_replays_on_their_own(monkeypatch):
  """They have one --seed, which the same command gives them."""
  calls = []
  monkeypatch.setattr(impala_assembly.buffer, 'Buffer',
                      lambda capacity, seed: calls.append(seed))
  for task in (-1, 0, 1):
    learner_assembly.create_source(types.SimpleNamespace(
        agent='impala', num_replayed_unrolls=1, train_on_new=True,
        replay_state='stored', replay_capacity=5, seed=3, task=task),
        None, None, None, None)
  assert calls[0] == calls[1] != calls[2]


_Part = collections.namedtuple(
    '_Part', 'name args publish', defaults=['publish'])


@pytest.fixture(name='made')
def _made(monkeypatch):
  """Has each part of replay be a `_Part`."""
  for module, name in [
      (impala_assembly.replayed_queue, 'ReplayedQueue'),
      (impala_assembly.replayer, 'Replayer'),
      (impala_assembly.episode_buffer, 'EpisodeBuffer'),
      (impala_assembly.buffer, 'Buffer')]:
    monkeypatch.setattr(
        module, name, lambda *args, name=name: _Part(name, args))


@pytest.mark.parametrize('shared', [None, 'shared'])
@pytest.mark.parametrize('train_on_new', [True, False])
@pytest.mark.parametrize('replay_state', ['stored', 'recomputed'])
def test_batches_are_replayed_from_the_buffer_that_is_configured(
    made, shared, train_on_new, replay_state):
  config = config_lib.resolve(dict(
      _IMPALA, batch_size=8, entropy_on_replay=True, replay_capacity=70,
      replay_state=replay_state, train_on_new=train_on_new, use_lstm=True))
  devices = devices_assembly.Devices(['/gpu:1'], '/cpu:0', True)
  seed = seeds.derive(13, seeds.REPLAY)
  if replay_state == 'stored':
    buffer, publish = shared or _Part('Buffer', (70, seed)), ()
  else:
    buffer = _Part('Replayer', (
        shared or _Part('EpisodeBuffer', (70, 10, seed)), 'agent', 10,
        '/gpu:1', True))
    publish = (buffer.publish,)
  found = learner_assembly.create_source(
      config, 'queue', None, 'agent', devices, shared)
  assert found == _Part(
      'ReplayedQueue', ('queue', buffer, 4, train_on_new, *publish))


@pytest.mark.parametrize('changes, expected', [
    ({}, {}),
    (dict(off_policy_correction='one_step', q_estimate='baseline',
          trust_region_threshold=0.),
     dict(off_policy_correction='one_step', q_estimate='baseline',
          trust_region_threshold=None)),
    # Each threshold has a meaning of its own, and 0 stands for none.
    (dict(clip_pg_rho_threshold=0.), dict(clip_pg_rho_threshold=None)),
    (dict(clip_rho_threshold=0., trust_region_threshold=0.),
     dict(clip_rho_threshold=None, trust_region_threshold=None)),
    (dict(entropy_on_replay=True), dict(entropy_on_replay=True))])
def test_every_value_of_impala_comes_where_it_belongs(calls, changes, expected):
  config = config_lib.resolve(dict(_IMPALA, **changes))
  algorithm = impala_assembly.ALGORITHM
  assert _loss_settings(calls, algorithm, config) == dict(dict(
      discounting=.9, reward_clipping='soft_asymmetric', baseline_cost=.3,
      entropy_cost=.2, clip_rho_threshold=2., clip_pg_rho_threshold=3.,
      lambda_=.7, off_policy_correction='vtrace', q_estimate='target',
      trust_region_threshold=.04, entropy_on_replay=False), **expected)
  algorithm.create_optimizer(config)
  assert calls['RMSProp'] == ((.5, .7, .6, .8), {})


def _learner(calls, monkeypatch, config, num_replicas=1, spec=None):
  """The keyword arguments that make a configuration's learner, a dict."""
  for algorithm in impala_assembly, reactor_assembly:
    monkeypatch.setattr(algorithm, 'ALGORITHM', dataclasses.replace(
        algorithm.ALGORITHM, create_loss_fn=lambda *args: 'loss',
        create_optimizer=lambda *args: 'optimizer'))
  agent = types.SimpleNamespace(
      observation_spec=(spec or ArraySpec((84, 84, 4), np.uint8),))
  devices = devices_assembly.Devices(
      ['/cpu:0'] * num_replicas, '/cpu:0', True, num_parts=2)
  learner_assembly.create_learner(config, agent, devices, 'strategy')
  args, kwargs = calls['Learner']
  assert args == (agent, 'loss', 'optimizer', 'strategy')
  return kwargs


@pytest.mark.parametrize('values, target_update_period, rates', [
    (dict(_IMPALA, learning_rate_schedule='constant'), 0, (.5, .5, .5, .5)),
    # To 0 at the last of 4000 frames.
    (dict(_IMPALA, learning_rate_schedule='linear'), 0, (.5, .375, 0., 0.)),
    (dict(_REACTOR, target_update_period=17), 17, (.5, .5, .5, .5))])
def test_the_learner_gets_what_is_configured(
    calls, monkeypatch, values, target_update_period, rates):
  found = _learner(calls, monkeypatch, config_lib.resolve(values))
  learning_rate = found.pop('learning_rate')
  assert tuple(map(learning_rate, (0, 1000, 4000, 5000))) == rates
  del found['num_parts']  # Tested below.
  # An unroll has 10 steps, each of 4 frames.
  assert found == dict(
      seed=13, frames_per_unroll=40, gradient_norm_clip=5.,
      target_update_period=target_update_period, jit_compile=True)


def test_learners_share_the_steps_of_an_update(calls):
  config = config_lib.resolve(dict(
      _REACTOR, task=0, learner_hosts=['a:1', 'b:2'], insecure_network=True))
  learner_assembly.create_source(config, 'queue', None, 'agent', None)
  args, _ = calls['PrioritizedSequences']
  assert args[4] == 5.5
  # Actor jobs bring the environments, and none of them knows how many.
  assert args[-1] is None


@pytest.mark.parametrize('num_learners', [1, 3, 6, 7])
@pytest.mark.parametrize('steps_per_update', [5., 4.7, .1])
def test_learners_take_their_steps_exactly_when_they_are_due(
    steps_per_update, num_learners):
  """However many updates have been made."""
  config = config_lib.resolve(dict(
      level_name='pong', agent='reactor', task=0, insecure_network=True,
      learner_hosts=[f'host{task}:1' for task in range(num_learners)],
      batch_size=2 * num_learners, steps_per_update=steps_per_update,
      replay_steps=100_000, replay_min_steps=32))
  stream = streams.Stream(0, config.unroll_length)
  queue = types.SimpleNamespace(get=lambda count: trajectories.new_batch(
      [stream.unroll(0)]))
  source = learner_assembly.create_source(
      config, queue, timing.StageTimes(), 'agent', None)
  source.get(1)  # Which fills replay.
  taken = 0
  for update in range(1, 1001):
    taken += len(source.get(1).kept_versions)
    # In tenths of a step, for all learners.
    assert taken == update * round(10 * steps_per_update) // (
        10 * num_learners * config.unroll_length)


@pytest.mark.parametrize('values, spec, num_replicas, expected', [
    (dict(level_name='pong'), ArraySpec((84, 84, 4), np.uint8), 1, 2),
    (dict(level_name='pong', batch_size=8), ArraySpec((84, 84, 4), np.uint8),
     1, 2),
    # A replica has the half of 4 * 21 * 84 * 84 * 4 bytes, or all of them.
    (dict(level_name='pong', batch_size=4), ArraySpec((84, 84, 4), np.uint8),
     1, 2),
    (dict(level_name='pong', batch_size=4), ArraySpec((84, 84, 4), np.uint8),
     2, 1),
    (dict(level_name='pong', agent='reactor'), ArraySpec((84, 84, 1), np.uint8),
     1, 1),
    (dict(level_name='gym:MinAtar/Breakout-v1'),
     ArraySpec((10, 10, 4), np.uint8), 1, 1),
    (dict(level_name='gym:CartPole-v1', batch_size=1),
     ArraySpec((4,), np.float32), 1, 1),
    (dict(level_name='gym:CartPole-v1', batch_size=1, unroll_length=1),
     ArraySpec((250_000,), np.float32), 1, 2),
])
def test_a_small_batch_is_not_split(
    calls, monkeypatch, values, spec, num_replicas, expected):
  found = _learner(
      calls, monkeypatch, config_lib.resolve(values), num_replicas, spec)
  assert found['num_parts'] == expected
