"""The choice of devices, on machines with made-up GPUs."""

from absl import logging
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent.assembly import devices
from scalable_agent.machine import cores as machine_cores
from scalable_agent.machine import nvidia


@pytest.fixture
def machine(monkeypatch):
  """Makes TensorFlow report GPUs, and records what it is told."""

  class Machine:
    gpus = 0
    threads = operations = None
    growing = ()
    logical = 1

  def physical(kind):
    return [f'{kind}:{i}' for i in range(machine.gpus if kind == 'GPU' else 1)]

  def grow(gpu, on):
    assert on
    machine.growing += (gpu,)

  machine = Machine()
  monkeypatch.setattr(tf.config, 'list_physical_devices', physical)
  monkeypatch.setattr(tf.config.experimental, 'set_memory_growth', grow)
  monkeypatch.setattr(
      tf.config.threading, 'set_intra_op_parallelism_threads',
      lambda threads: setattr(machine, 'threads', threads))
  monkeypatch.setattr(
      tf.config.threading, 'set_inter_op_parallelism_threads',
      lambda operations: setattr(machine, 'operations', operations))
  monkeypatch.setattr(
      tf.config, 'set_logical_device_configuration',
      lambda device, logical: setattr(machine, 'logical', len(logical)))
  monkeypatch.setattr(machine_cores, 'count', lambda: 8)
  monkeypatch.setattr(machine_cores, 'are_fewer_than_seem', lambda: False)
  return machine


def _choose(count=0, inference='', xla='auto', threads=0, **kwargs):
  return tuple(devices.choose_devices(
      count, inference, xla, threads, **dict(dict(batch_size=32), **kwargs)))


def test_a_cpu_shares_its_cores(machine):
  assert _choose() == (['/cpu:0'], '/cpu:0', False, 2)
  assert machine.threads == 4 and machine.logical == 1
  assert _choose(xla='on') == (['/cpu:0'], '/cpu:0', True, 2)
  _choose(threads=7)
  assert machine.threads == 7
  _choose(has_policy=False)
  assert machine.threads == 8
  _choose(threads=7, has_policy=False)
  assert machine.threads == 7


@pytest.mark.parametrize('values, threads', [
    (dict(), 4), (dict(task=0), 8), (dict(task=0, inference='learner'), 4),
    (dict(task=0, mode='test'), 4), (dict(task=0, intra_op_threads=3), 3)])
def test_a_configuration_says_whether_there_is_a_policy(
    machine, values, threads):
  """Where all acting is left to others, the learner takes all cores."""
  config = config_lib.resolve(
      dict(level_name='pong', num_learner_devices=2, xla='on',
           inference_device='cpu:0', **values))
  assert tuple(devices.choose(config)) == (
      ['/cpu:0', '/cpu:1'], '/cpu:0', True, 2)
  assert (machine.threads, machine.logical) == (threads, 2)


def test_one_core_is_a_thread(machine, monkeypatch):
  monkeypatch.setattr(machine_cores, 'count', lambda: 1)
  _choose()
  assert machine.threads == 1


@pytest.mark.parametrize('gpus, threads, expected', [
    (0, 0, 4), (0, 3, 3), (1, 0, 8), (1, 3, 3)])
def test_tensorflow_has_no_more_threads_than_a_container_has_cores(
    machine, monkeypatch, gpus, threads, expected):
  monkeypatch.setattr(machine_cores, 'are_fewer_than_seem', lambda: True)
  machine.gpus = gpus
  _choose(threads=threads)
  assert (machine.threads, machine.operations) == (expected, 8)


def test_without_a_container_tensorflow_counts_cores(machine):
  machine.gpus = 1
  _choose()
  assert (machine.threads, machine.operations) == (0, 0)


def test_threads_that_cannot_be_changed_are_no_error(machine, monkeypatch):
  def refuse(threads):
    raise RuntimeError('cannot be modified after initialization')

  monkeypatch.setattr(
      tf.config.threading, 'set_intra_op_parallelism_threads', refuse)
  assert _choose(threads=3)[0] == ['/cpu:0']


def test_gpus_that_are_in_use_keep_their_memory(machine, monkeypatch, caplog):
  def refuse(gpu, on):
    raise RuntimeError('cannot be set on an initialized device')

  machine.gpus = 1
  monkeypatch.setattr(tf.config.experimental, 'set_memory_growth', refuse)
  assert _choose()[0] == ['/gpu:0']
  assert 'keeps the memory of the GPUs' in caplog.text


def test_replicas_after_tensorflow_was_used_are_refused(machine, monkeypatch):
  def refuse(device, logical):
    raise RuntimeError('cannot be modified after being initialized')

  monkeypatch.setattr(tf.config, 'set_logical_device_configuration', refuse)
  with pytest.raises(config_lib.ConfigError,
                     match='--num_learner_devices=2 .* in a new process'):
    _choose(2)


def test_replicas_without_gpus_are_logical_cpus(machine):
  assert _choose(2)[0] == ['/cpu:0', '/cpu:1']
  assert machine.logical == 2


@pytest.mark.parametrize('gpus, count, inference, expected', [
    (1, 0, '', (['/gpu:0'], '/gpu:0')),
    (2, 0, '', (['/gpu:0', '/gpu:1'], '/gpu:0')),
    (2, 1, '', (['/gpu:0'], '/gpu:0')),
    (1, 0, 'gpu:0', (['/gpu:0'], '/gpu:0')),
    (2, 0, 'gpu:1', (['/gpu:0'], '/gpu:1')),
    (2, 0, 'gpu:0', (['/gpu:1'], '/gpu:0')),
    (2, 2, 'gpu:0', (['/gpu:1', '/gpu:0'], '/gpu:0')),
    (2, 0, 'cpu:0', (['/gpu:0', '/gpu:1'], '/cpu:0')),
])
def test_gpus(machine, gpus, count, inference, expected):
  machine.gpus = gpus
  for xla, is_compiled in (('auto', False), ('on', True), ('off', False)):
    assert _choose(count, inference, xla=xla) == expected + (is_compiled, 1)
  assert machine.growing == tuple(f'GPU:{i}' for i in range(gpus)) * 3
  assert machine.threads == 0  # TensorFlow's own choice.


@pytest.mark.parametrize('gpus, inference, batch_size, used', [
    (3, '', 32, 2), (4, '', 2, 2), (4, 'gpu:0', 32, 2), (4, '', 1, 1),
    (6, '', 9, 3), (4, '', 32, 4)])
def test_as_many_gpus_train_as_can_share_a_batch(
    machine, caplog, gpus, inference, batch_size, used):
  machine.gpus = gpus
  chosen = _choose(0, inference, batch_size=batch_size)[0]
  assert len(chosen) == len(set(chosen)) == used and inference not in chosen
  assert ('cannot be shared' in caplog.text) == (
      used < gpus - bool(inference))


def test_a_configuration_says_what_a_batch_is(machine):
  machine.gpus = 4
  config = config_lib.resolve(dict(level_name='pong', batch_size=6))
  assert len(devices.choose(config).learner) == 3


@pytest.mark.parametrize('gpus, count, inference, stated', [
    (2, 3, '', ('--num_learner_devices=3', '2 GPUs')),
    (1, 0, 'gpu:1', ('--inference_device=gpu:1', 'cpu:0, gpu:0')),
    (0, 0, 'gpu:0', ('--inference_device=gpu:0',
                     'has cpu:0. TensorFlow registers no GPU: of a library.')),
    (0, 0, 'tpu', ('--inference_device=tpu',)),
])
def test_what_is_not_there_is_named(
    machine, monkeypatch, gpus, count, inference, stated):
  monkeypatch.setattr(nvidia, 'explain', lambda: 'of a library')
  machine.gpus = gpus
  with pytest.raises(config_lib.ConfigError) as caught:
    _choose(count, inference)
  for text in stated:
    assert text in str(caught.value)
  is_of_gpus = not gpus and 'gpu' in inference
  assert ('registers no GPU' in str(caught.value)) == is_of_gpus


@pytest.mark.parametrize('gpus, is_expected, expected', [
    (0, True, ['TensorFlow registers no GPU: of a library.']), (0, False, []),
    (1, True, [])])
def test_a_gpu_that_is_expected_and_not_registered_is_a_warning(
    machine, monkeypatch, gpus, is_expected, expected):
  warnings = []
  monkeypatch.setattr(
      logging, 'warning', lambda text, *args: warnings.append(text % args))
  monkeypatch.setattr(nvidia, 'is_expected', lambda: is_expected)
  monkeypatch.setattr(nvidia, 'explain', lambda: 'of a library')
  machine.gpus = gpus
  _choose()
  assert warnings == expected
