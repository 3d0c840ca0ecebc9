"""What buffers will hold, against what the machine has."""

import dataclasses
import sys

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest
import tree

from scalable_agent import actor
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import networks
from scalable_agent import trajectories
from scalable_agent.assembly import memory
from scalable_agent.environments import ArraySpec
from scalable_agent.replay import packed_unrolls
from scalable_agent.replay import prioritized_sequences
from scalable_agent.shared_replay import contents
from scalable_agent.shared_replay import protocol
from scalable_agent.suites import Facts
from scalable_agent.unroll_messages import unroll_message
from tests.replay import streams

_ATARI = Facts(6, (ArraySpec((84, 84, 4), np.dtype(np.uint8)),))
_LANGUAGE = Facts(9, (ArraySpec((72, 96, 3), np.dtype(np.uint8)),
                      ArraySpec((16,), np.dtype(np.int32))))
_VECTOR = Facts(2, (ArraySpec((4,), np.dtype(np.float32)),))


def _agent(facts, use_lstm=False):
  torso = 'vector' if len(facts.observation_spec[0].shape) == 1 else 'shallow'
  return networks.Agent(
      facts.num_actions, facts.observation_spec, torso, use_lstm)


def _config(**values):
  return config_lib.resolve(dict(dict(level_name='pong'), **values))


def _job(job_name, **values):
  return _config(job_name=job_name, task=0, insecure_network=True, **values)


@pytest.fixture(name='machine')
def _machine(monkeypatch):
  """Sets how many bytes the machine has, and how many of them are free."""

  def has(num_bytes, num_free=None):
    for name, value in dict(
        total_bytes=num_bytes, free_bytes=num_free or num_bytes).items():
      monkeypatch.setattr(
          memory.machine_memory, name, lambda value=value: value)

  return has


# -- An unroll ----------------------------------------------------------------


def _filled_unroll(config, agent, facts):
  """The `ActorOutput` that an actor makes."""
  step_output = environments.StepOutput(
      reward=np.zeros([1], np.float32),
      info=environments.StepOutputInfo(
          np.zeros([1], np.float32), np.zeros([1], np.int32)),
      done=np.zeros([1], bool),
      observation=tuple(np.zeros((1, *spec.shape), spec.dtype)
                        for spec in facts.observation_spec))
  agent_output = actor.initial_output(1, facts.num_actions)
  buffer = actor.UnrollBuffer(['level'], config.unroll_length, step_output,
                              agent_output, agent.initial_state(1))
  for _ in range(config.unroll_length + 1):
    unrolls = buffer.append(np.array([0]), step_output, agent_output)
  (unroll,) = unrolls
  return unroll


@pytest.mark.parametrize('facts', [_ATARI, _LANGUAGE, _VECTOR])
@pytest.mark.parametrize('use_lstm', [False, True])
@pytest.mark.parametrize('unroll_length', [1, 20])
def test_unroll_bytes_are_those_of_an_unroll(facts, use_lstm, unroll_length):
  config = _config(unroll_length=unroll_length)
  agent = _agent(facts, use_lstm)
  unroll = _filled_unroll(config, agent, facts)
  arrays = [a for a in tree.flatten(unroll) if isinstance(a, np.ndarray)]
  expected = sum(map(sys.getsizeof, arrays))
  found = memory.unroll_bytes(config, agent, facts)
  # Arrays of more dimensions are a few bytes larger.
  assert expected - 128 <= found <= expected


@pytest.mark.parametrize('level_name, is_packed', [
    ('pong', True), ('atari57', True), ('gym:CartPole-v1', False)])
def test_packed_bytes_are_those_of_a_packed_unroll(level_name, is_packed):
  """Where it is not known that images of four channels are stacks, all four."""
  config = _config(level_name=level_name, unroll_length=20)
  agent = _agent(_ATARI)
  unroll = _filled_unroll(config, agent, _ATARI)
  expected = packed_unrolls.size(
      packed_unrolls.pack(unroll) if is_packed else unroll)
  found = memory.unroll_bytes(config, agent, _ATARI, is_packed=True)
  assert expected - 400 <= found <= expected


def _game(num_channels):
  return Facts(
      6, (ArraySpec((10, 10, num_channels), np.dtype(np.uint8)),))


@pytest.mark.parametrize('level_name, facts, unroll_length, is_packed, kb', [
    ('pong', _ATARI, 20, False, 594), ('pong', _ATARI, 20, True, 171),
    ('dmlab30', _LANGUAGE, 79, True, 1670),
    ('gym:MinAtar/Breakout-v1', _game(4), 20, True, 9),
    ('gym:MinAtar/Seaquest-v1', _game(10), 20, True, 22)])
def test_unrolls_take_what_buffers_are_planned_by(
    level_name, facts, unroll_length, is_packed, kb):
  """In kilobytes, without what Python keeps of each array."""
  config = _config(level_name=level_name, unroll_length=unroll_length)
  found = memory.unroll_bytes(config, None, facts, is_packed)
  arrays = len(tree.flatten(memory._entry(facts))) * sys.getsizeof(
      np.empty([0]))
  np.testing.assert_allclose(found - arrays, 1000 * kb, rtol=.01, atol=400)


# -- What is refused ----------------------------------------------------------

_AGENT = _agent(_ATARI)
_UNROLL = memory.unroll_bytes(_config(), _AGENT, _ATARI)
_PACKED = memory.unroll_bytes(_config(), _AGENT, _ATARI, is_packed=True)
_GB = 10**9


def _refusal(config):
  with pytest.raises(config_lib.ConfigError) as caught:
    memory.check(config, _AGENT, _ATARI)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def test_what_is_advised_need_not_be_the_value_to_take(machine):
  """Which has to be a multiple of the pools here: it may be less."""
  machine(300 * _UNROLL)
  config = _config(num_actors=511, num_pools=7)
  message = _refusal(config)
  most = _largest(message)
  assert message.endswith(f'It can be at most {most}.') and most % 7
  memory.check(dataclasses.replace(config, num_actors=most - most % 7), _AGENT,
               _ATARI)


def test_17_terabytes_are_refused(machine):
  machine(25.2 * _GB)
  assert _refusal(_config(replay_proportion=.5, replay_capacity=10**8)) == (
      '--replay_capacity=100000000 cannot work: its unrolls of 171 kB '
      '(--unroll_length=20) take 17.1 TB, those of all buffers 17.1 TB, and '
      'this machine or container has 25.2 GB of memory, of which 25.2 GB are '
      'free. It can be at most '
      f'{int((20.16 * _GB - _UNROLL * (64 + 32 + 16)) / _PACKED)}.')


def _largest(message):
  return int(message.rpartition('It can be at most ')[2][:-1])


def test_what_others_have_taken_is_not_there(machine, caplog):
  """Such as another run, though nothing of the buffer is taken yet."""
  caplog.set_level('WARNING')
  set_to = lambda value: _config(replay_proportion=.5, replay_capacity=value)
  machine(64 * _GB, 8 * _GB)
  message = _refusal(set_to(60_000))
  assert message.startswith(
      '--replay_capacity=60000 cannot work: its unrolls of 171 kB '
      '(--unroll_length=20) take 10.3 GB, those of all buffers 10.3 GB, and '
      'this machine or container has 64 GB of memory, of which 8 GB are free. '
      'It can be at most ')
  assert 36_000 < _largest(message) < 6.4 * _GB / _PACKED
  memory.check(set_to(_largest(message)), _AGENT, _ATARI)
  assert not caplog.messages
  memory.check(set_to(45_000), _AGENT, _ATARI)
  (warning,) = caplog.messages
  assert warning.startswith(
      '--replay_capacity=45000 leaves little memory for the rest: ')
  assert warning.endswith(message[message.index(', and this machine'):])
  # A job has no more than a learner has.
  job = dataclasses.replace(_REPLAY_JOB, replay_capacity=60_000)
  assert memory.room(job) == 6.4 * _GB
  with pytest.raises(config_lib.ConfigError, match='of which 8 GB are free'):
    memory.check(job, None, _ATARI)


@pytest.mark.parametrize('total, free, clause', [
    (64 * _GB, 32 * _GB, 'this machine or container has 64 GB of memory, of '
     'which 32 GB are free, and --memory_gb=8'),
    (None, None, '--memory_gb=8')])
def test_a_process_may_get_less(machine, total, free, clause):
  machine(total, free)
  config = _config(replay_proportion=.5, replay_capacity=60_000, memory_gb=8.)
  message = _refusal(config)
  assert f', those of all buffers 10.3 GB, and {clause}. It ' in message
  assert memory.room(config) == 6.4 * _GB
  memory.check(dataclasses.replace(
      config, replay_capacity=_largest(message)), _AGENT, _ATARI)
  # Not more than there is.
  if free:
    machine(total, 4 * _GB)
    assert memory.room(config) == 3.2 * _GB
    assert memory.room(dataclasses.replace(
        config, memory_gb=1e300)) == 3.2 * _GB


def test_steps_have_to_fit_into_what_a_process_gets(machine):
  machine(64 * _GB)
  with pytest.raises(config_lib.ConfigError, match='and --memory_gb=8. A fif'):
    memory.check(_reactor(memory_gb=8.), _agent(_FRAMES), _FRAMES)


def test_the_memory_of_replay_is_said(machine, caplog):
  caplog.set_level('INFO')
  machine(25 * _GB)
  memory.check(_config(replay_proportion=.5, replay_capacity=50_000), _AGENT,
               _ATARI)
  assert caplog.messages == [
      'Replay will take 8.56 GB of memory when it is full: '
      '--replay_capacity=50000 unrolls of 171 kB.']
  caplog.clear()
  memory.check(_config(), _AGENT, _ATARI)
  assert not caplog.messages


_REPLAY_JOB = _config(job_name='replay', replay_host='a:1')


def test_a_replay_job_keeps_unrolls_and_nothing_else(machine, caplog):
  caplog.set_level('INFO')
  machine(25 * _GB)
  memory.check(dataclasses.replace(_REPLAY_JOB, replay_capacity=50_000), None,
               _ATARI)
  assert caplog.messages == [
      'Replay will take 8.56 GB of memory when it is full: '
      '--replay_capacity=50000 unrolls of 171 kB.']
  with pytest.raises(config_lib.ConfigError) as caught:
    memory.check(dataclasses.replace(
        _REPLAY_JOB, replay_capacity=10**8), None, _ATARI)
  assert str(caught.value).startswith(
      '--replay_capacity=100000000 cannot work: its unrolls of 171 kB')
  assert memory.room(_REPLAY_JOB) == 20 * _GB


@pytest.mark.parametrize('facts', [_ATARI, _LANGUAGE, _VECTOR])
@pytest.mark.parametrize('unroll_length', [1, 20])
def test_the_bytes_of_a_replay_job_are_those_that_it_keeps(
    facts, unroll_length):
  config = _config(
      level_name='pong' if facts is _ATARI else 'gym:CartPole-v1',
      job_name='replay', replay_host='a:1', unroll_length=unroll_length)
  agent = _agent(facts)
  unroll = _filled_unroll(config, agent, facts)
  layout = protocol.unroll_layout(config, facts, 1)
  kept = contents.Contents(layout, 20, 10**9, 0)
  for sequence in range(20):
    kept.insert(layout.encode(unroll_message.UnrollMessage(
        np.uint64(1), np.int64(sequence + 1), np.int32(0), np.int64(0), (),
        unroll.env_outputs, unroll.agent_outputs)), 1)
  expected = 20 * memory.unroll_bytes(config, None, facts, is_packed=True)
  # Names of arrays are as long as what Python keeps of each.
  assert abs(kept.state.num_bytes - expected) < 20 * 600


@pytest.mark.parametrize('config, flag', [
    (_config(queue_capacity=10**9), '--queue_capacity=1000000000'),
    (_config(num_actors=10**9, inference_maximum_batch_size=10**9),
     '--num_actors=1000000000'),
    (_config(batch_size=10**9, num_actors=64), '--batch_size=1000000000'),
    (_config(unroll_length=10**9), '--unroll_length=1000000000'),
    (_config(queue_capacity=10**400), f'--queue_capacity={10**400}'),
    (_job('actor', envs_per_actor=10**7, inference_maximum_batch_size=10**7),
     '--envs_per_actor=10000000')])
def test_every_buffer_counts(machine, config, flag):
  machine(1000 * _GB)
  assert _refusal(config).startswith(f'{flag} cannot work: its unrolls of ')


def test_what_fits_where_one_flag_is_not_enough(machine):
  machine(25 * _GB)
  message = _refusal(_config(batch_size=10**6, num_actors=64))
  assert message.endswith(
      f'{int(20 * _GB / _UNROLL)} unrolls would fit. Lower --unroll_length, or '
      'what decides how many there are: --batch_size=1000000, '
      '--queue_capacity=1000000, --num_actors=64.')


def test_unrolls_that_are_too_long_for_any_number(machine):
  machine(_GB)
  message = _refusal(_config(unroll_length=20_000))
  assert message.startswith('--unroll_length=20000 cannot work: ')
  assert message.endswith(' 1 unrolls as long as that would fit.')


@pytest.mark.parametrize('config', [
    # Replay that there is none of, and that of a replay job.
    _config(replay_capacity=10**9),
    _config(replay_capacity=10**9, replay_proportion=.5, replay_host='a:1'),
    dataclasses.replace(_REPLAY_JOB, num_actors=10**9, queue_capacity=10**9,
                        replay_capacity=9),
    # Environments of other processes.
    _job('learner', num_actors=10**9, envs_per_actor=10**9),
    # Whose learner keeps the unrolls.
    _job('actor', envs_per_actor=10**7, inference='learner',
         inference_maximum_batch_size=10**7),
    _job('actor', queue_capacity=10**9, batch_size=10**8)])
def test_what_a_process_does_not_keep_is_its_own_affair(machine, config):
  machine(_GB)
  memory.check(config, _AGENT, _ATARI)


def test_an_unknown_machine_takes_anything(machine):
  machine(None, None)
  memory.check(_config(queue_capacity=10**9), _AGENT, _ATARI)


def test_the_defaults_fit(machine, caplog):
  machine(_GB)
  for values in (dict(), dict(level_name='gym:CartPole-v1')):
    memory.check(_config(**values), _AGENT, _ATARI)
  assert not caplog.text


_HOSTS = ['a:1', 'b:2', 'c:3']
_CONFIGS = [
    _config(replay_proportion=.5), _config(), _config(num_actors=512),
    _config(queue_capacity=5000), _job('actor', envs_per_actor=64),
    _job('learner', learner_hosts=_HOSTS, batch_size=48, replay_proportion=.5)]


@hypothesis.settings(max_examples=60, suppress_health_check=[
    hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(strategies.sampled_from(_CONFIGS), strategies.data())
def test_refused_if_it_cannot_fit_and_the_value_named_does(
    machine, caplog, config, data):
  flag = data.draw(strategies.sampled_from(
      [buffer.flag for buffer in memory.buffers(config, _AGENT, _ATARI)]))
  value = data.draw(strategies.integers(1, 10**6))
  num_bytes = data.draw(strategies.integers(10**8, 10**12))
  # What others have taken does not count.
  machine(num_bytes * data.draw(strategies.integers(1, 10)), num_bytes)
  set_to = lambda number: dataclasses.replace(config, **{flag: number})
  config = set_to(value)
  caplog.set_level('WARNING')  # What replay takes is said in any case.
  needed = sum(
      getattr(config, buffer.flag) * buffer.per_unit *
      (_PACKED if buffer.flag == 'replay_capacity' else _UNROLL)
      for buffer in memory.buffers(config, _AGENT, _ATARI))

  def text_of(config):
    """The refusal or the warning, '' if there is neither."""
    caplog.clear()
    try:
      memory.check(config, _AGENT, _ATARI)
    except config_lib.ConfigError as e:
      assert not caplog.text
      return str(e)
    assert len(caplog.messages) <= 1
    return caplog.text

  text = text_of(config)
  assert (' cannot work: ' in text) == (needed > num_bytes)
  assert bool(text) == (needed > .8 * num_bytes)
  if f'--{flag}={value} ' in text and 'It can be at most' in text:
    largest = int(text.rstrip().rstrip('.').rpartition(' ')[2])
    assert largest < value
    assert not text_of(set_to(largest))
    if flag != 'batch_size':
      assert text_of(set_to(largest + 1))


@pytest.mark.parametrize('num_bytes, expected', [
    (999, '999 bytes'), (1000, '1 kB'), (999_600, '1 MB'), (57e12, '57 TB'),
    (1.5e18, '1.5 EB'), (10**400, 'over 1000 EB')])
def test_sizes_are_for_people(num_bytes, expected):
  assert memory._size(num_bytes) == expected


# -- Reactor's replay ---------------------------------------------------------

_FRAMES = Facts(6, (ArraySpec((84, 84, 1), np.dtype(np.uint8)),))


def _reactor(**values):
  return _config(agent='reactor', **values)


@pytest.mark.parametrize('frame_stack, facts', [(1, _FRAMES), (4, _ATARI)])
@pytest.mark.parametrize('num_steps', [2**13, 10_000, 2**14 - 1])
@pytest.mark.parametrize('num_actors', [1, 5])
def test_bytes_of_a_step_are_those_of_the_store_and_its_tree(
    num_actors, num_steps, frame_stack, facts):
  config = _reactor(
      replay_steps=num_steps, replay_min_steps=1, frame_stack=frame_stack,
      num_actors=num_actors)
  replay = prioritized_sequences.PrioritizedSequences(
      None, num_steps, 1, config.unroll_length, 5., .1, 0, None,
      has_stacks=frame_stack == 4, num_environments=num_actors)
  unroll = trajectories.ActorOutput(
      'pong', (), *tree.map_structure(
          lambda a: a.repeat(config.unroll_length + 1, axis=0),
          memory._entry(facts)), policy_version=0)
  store = replay._store
  for _ in range(0, store.num_rows, config.unroll_length):
    store.add(unroll)
  taken = sum(map(streams.num_bytes, store._columns)) + sum(
      array.nbytes for array in (replay._tree._counts, replay._tree._means))
  needed = num_steps * memory.step_bytes(config, facts)
  assert taken <= needed < 1.05 * taken


def test_the_memory_of_steps_is_said(machine, caplog):
  machine(2**40)
  with caplog.at_level('INFO'):
    memory.check(_reactor(), _agent(_FRAMES), _FRAMES)
  assert ('Replay will take 7.2 GB of memory when it is full: '
          '--replay_steps=1000000 steps of 7.2 kB.') in caplog.text


def test_more_steps_than_fit_are_refused(machine):
  machine(4 * 10**9)
  with pytest.raises(config_lib.ConfigError) as caught:
    memory.check(_reactor(), _agent(_FRAMES), _FRAMES)
  message = str(caught.value)
  assert message.startswith(
      '--replay_steps=1000000 cannot work: its steps of 7.2 kB')
  most = int(message.rpartition('It can be at most ')[2][:-1])
  assert 400_000 < most < 444_000
  memory.check(_reactor(replay_steps=most), _agent(_FRAMES), _FRAMES)


def test_steps_have_to_fit_into_what_others_leave_free(machine, caplog):
  caplog.set_level('WARNING')
  machine(64 * _GB, 8 * _GB)
  with pytest.raises(config_lib.ConfigError) as caught:
    memory.check(_reactor(), _agent(_FRAMES), _FRAMES)
  message = str(caught.value)
  assert message.startswith(
      '--replay_steps=1000000 cannot work: its steps of 7.2 kB take 7.2 GB, '
      'and this machine or container has 64 GB of memory, of which 8 GB are '
      'free. A fifth is for the rest. ')
  most = int(message.rpartition('It can be at most ')[2][:-1])
  # Besides those of the other buffers.
  assert 0 < int(.8 * 8 * _GB / memory.step_bytes(
      _reactor(), _FRAMES)) - most < 2000
  memory.check(_reactor(replay_steps=most), _agent(_FRAMES), _FRAMES)
  assert not caplog.text
  with pytest.raises(config_lib.ConfigError, match=f'={most + 1} cannot work'):
    memory.check(_reactor(replay_steps=most + 1), _agent(_FRAMES), _FRAMES)
  machine(64 * _GB, 10**7)
  with pytest.raises(config_lib.ConfigError, match='Not even --replay_min_'):
    memory.check(_reactor(), _agent(_FRAMES), _FRAMES)


def test_weights_that_are_held_back_count(machine):
  """Of each update within the lag there is a copy."""
  config = _config(policy_lag=10**6)
  size = sum(a.nbytes for a in _AGENT.initial_params(1).values())
  machine(64 * _GB)
  with pytest.raises(config_lib.ConfigError) as error:
    memory.check(config, _AGENT, _ATARI)
  message = str(error.value)
  assert message.startswith(
      '--policy_lag=1000000 cannot work: its copies of the weights of ')
  most = _largest(message)
  assert .9 < most * size / (.8 * 64 * _GB) <= 1.
  memory.check(dataclasses.replace(config, policy_lag=most), _AGENT, _ATARI)
