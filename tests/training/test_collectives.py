"""Two real learners against each other, and against one."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from scalable_agent import config as config_lib
from scalable_agent.training import collectives
from tests import learners
from tests import ports as ports_lib
from tests.training import learner_pair

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  """What two learners found, a list of two dicts, and what they printed."""
  directory = tmp_path_factory.mktemp('pair')
  process = subprocess.run(
      [sys.executable, '-m', 'tests.training.learner_pair', str(directory)],
      cwd=_ROOT,
      # They do not look for each other behind a web proxy.
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2',
               http_proxy='http://127.0.0.1:9'), timeout=400,
      stdin=subprocess.DEVNULL, capture_output=True, text=True)
  assert process.returncode == 0, process.stderr[-4000:]
  found = [dict(np.load(directory / f'{task}.npz')) for task in range(2)]
  return found, process.stderr


def test_the_first_learners_state_arrives_bit_for_bit(pair):
  """Weights, slots and int64 counters of any bit pattern."""
  (first, second), _ = pair
  assert (first['before'] != second['before']).any()
  for each in (first, second):
    np.testing.assert_array_equal(each['after'], first['before'])


def test_two_learners_equal_one(pair):
  """Weights, slots and logs after 20 steps on halves of the same batches."""
  found, _ = pair
  np.testing.assert_array_equal(found[0]['state'], found[1]['state'])
  for each in found:
    weights, targets = np.split(
        each['state'][:2 * each['num_weight_bytes']], 2)
    np.testing.assert_array_equal(weights, targets)
  one = learners.make_learner(
      learners.make_language_agent(), optimizer=learner_pair.OPTIMIZER)
  before = {name: value.numpy() for name, value in one.weights().items()}
  logs = [one.step(one.place(learner_pair.make_batch(i)))[0]
          for i in range(learner_pair.NUM_STEPS)]
  for name, value in one.weights().items():
    least = 1e-4 if name.startswith('instruction/') else 1e-3
    assert np.abs(value - before[name]).max() > least, name
    for each in found:
      np.testing.assert_allclose(
          each[f'weights/{name}'], value, rtol=1e-4, atol=1e-6, err_msg=name)
  for name in logs[0]:
    for each in found:
      np.testing.assert_allclose(
          each[f'logs/{name}'], [entry[name] for entry in logs], rtol=1e-3,
          err_msg=name)
  norms = [entry['grad_norm'] for entry in logs]
  assert min(norms) < learner_pair.OPTIMIZER.gradient_norm_clip < max(norms)


def test_hashes_tell_weights_apart_and_differences_are_mended(pair):
  (first, second), output = pair
  assert first['hashes'][0] == second['hashes'][0]
  assert first['hashes'][1] != second['hashes'][1]
  assert len(set(first['hashes'])) == 1
  assert second['hashes'][2] == first['hashes'][0]
  assert (f'The weights of the learners differ: {first["hashes"][1]}, '
          f'{second["hashes"][1]}.') in output


def test_gather_takes_payloads_of_any_length(pair):
  found, _ = pair
  for each in found:
    assert each['gathered'].tolist() == [b'', b'abcdefghi']


def test_settings_that_differ_are_named_at_every_learner(pair):
  found, _ = pair
  for each in found:
    assert str(each['settings_error']) == (
        '--learning_rate is 0.001 at learner 0 and 0.002 at learner 1; all '
        'learners need the same.')


@pytest.mark.parametrize('devices, flag', [
    (['/cpu:0', '/cpu:1'], '--num_learner_devices=2'),
    (['/gpu:1', '/gpu:2'], '--inference_device')])
def test_devices_that_tensorflow_would_not_take(devices, flag):
  with pytest.raises(config_lib.ConfigError, match=flag):
    collectives.Collectives(['localhost:1', 'localhost:2'], 0, devices)


# The first of two learners, which ends if the other one comes.
_FIRST = """
import sys
from scalable_agent.process import signals
from scalable_agent.training import collectives
with signals.stop_on_signals():
  collectives.Collectives(sys.argv[1:], 0, ['/cpu:0'])
"""


@contextlib.contextmanager
def _first(program, ports):
  """Starts the first of two learners by another program; yields its `Popen`."""
  process = subprocess.Popen(
      ['env', '--default-signal=INT,HUP', *program, sys.executable, '-c',
       _FIRST, *(f'localhost:{port}' for port in ports)],
      cwd=_ROOT, env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'),
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT, text=True)
  try:
    yield process
  finally:
    process.kill()
    process.communicate()


def test_signals_end_a_learner_that_waits_for_another():
  """At once, but for a SIGHUP that is ignored from the start."""
  # By what it is started, and signals, of which the last is to end it.
  cases = (((), (signal.SIGTERM,)), ((), (signal.SIGHUP,)),
           (('nohup',), (signal.SIGHUP, signal.SIGINT)))
  ports = ports_lib.free_ports(2 * len(cases))
  with contextlib.ExitStack() as stack:
    processes = [stack.enter_context(_first(program, ports[2 * i:2 * i + 2]))
                 for i, (program, _) in enumerate(cases)]
    deadline = time.monotonic() + 240
    for process, port in zip(processes, ports[::2]):
      while not collectives._listens(f'localhost:{port}'):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(.1)
    time.sleep(2)  # For TensorFlow to take the handlers that it takes.
    for process, (_, signals) in zip(processes, cases):
      for number in signals[:-1]:
        process.send_signal(number)
    time.sleep(.5)
    for process, (_, signals) in zip(processes, cases):
      assert process.poll() is None, signals
      process.send_signal(signals[-1])
      assert process.wait(10) == -signals[-1]


@pytest.fixture
def coordination(monkeypatch):
  """A dict that gets the settings of a coordination that does not start."""
  settings = {}
  context = types.SimpleNamespace(
      configure_coordination_service=lambda *_, **kwargs: settings.update(
          kwargs))
  monkeypatch.setattr(collectives.context, 'context', lambda: context)
  return settings


def test_a_learner_is_missed_within_what_is_promised(monkeypatch, coordination):
  """Tests in which one is killed have it shorter."""
  monkeypatch.setattr(
      collectives.tf.distribute, 'MultiWorkerMirroredStrategy',
      lambda resolver: None)
  collectives._create_strategy(
      [f'localhost:{ports_lib.free_port()}'], 0, ['/cpu:0'])
  assert coordination['heartbeat_timeout_in_ms'] == 20_000


@pytest.mark.usefixtures('coordination')
@pytest.mark.parametrize('hangup, inside', [
    (signal.SIG_IGN, signal.SIG_IGN), (print, signal.SIG_DFL)])
def test_handlers_are_put_back_once_learners_have_met(
    monkeypatch, hangup, inside):
  numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  handlers = lambda: [signal.getsignal(number) for number in numbers]
  monkeypatch.setattr(
      collectives.tf.distribute, 'MultiWorkerMirroredStrategy',
      lambda resolver: handlers())
  before = handlers()
  try:
    for number, handler in zip(numbers, (repr, print, hangup)):
      signal.signal(number, handler)
    assert collectives._create_strategy(
        [f'localhost:{ports_lib.free_port()}'], 0, ['/cpu:0']) == [
            signal.SIG_DFL, signal.SIG_DFL, inside]
    assert handlers() == [repr, print, hangup]
  finally:
    for number, handler in zip(numbers, before):
      signal.signal(number, handler)


def test_learners_wait_until_all_listen():
  """However often somebody looks whether one is there."""
  hosts = [f'localhost:{port}' for port in ports_lib.free_ports(3)]
  servers = []

  def come(task):
    collectives._meet(hosts, task)
    servers.append(collectives._listen(hosts[task]))  # As TensorFlow does.

  threads = [threading.Thread(target=come, args=(task,), daemon=True)
             for task in range(3)]
  for thread in threads[:2]:
    thread.start()
  deadline = time.monotonic() + 30
  while not all(map(collectives._listens, hosts[:2])):
    assert time.monotonic() < deadline
  for _ in range(300):
    assert collectives._listens(hosts[0])
    time.sleep(.005)
  assert not servers
  threads[2].start()
  for thread in threads:
    thread.join(30)
  assert len(servers) == 3
  for server in servers:
    server.close()


def test_who_is_waited_for_is_said(monkeypatch, caplog):
  """And why: an address may be misspelt, or a machine down."""
  monkeypatch.setattr(collectives, '_LOG_SECONDS', .5)
  ports = ports_lib.free_ports(3)
  hosts = [f'localhost:{port}' for port in ports[:2]]
  hosts.append(f'lerner2.invalid:{ports[2]}')
  lines = []

  def listens(host):
    lines.extend(caplog.messages)
    return bool(lines)

  with collectives._listen(hosts[1]):
    monkeypatch.setattr(collectives, '_listens', listens)
    collectives._meet(hosts, 0)
  (line,) = set(lines)
  assert line.startswith(
      f'Learner 0 still waits for learner 2 at {hosts[2]} (--collective_hosts)'
      ': ')


def test_a_port_that_is_taken_is_refused():
  with collectives._listen(f'localhost:{ports_lib.free_port()}') as server:
    host = f'localhost:{server.getsockname()[1]}'
    with pytest.raises(config_lib.ConfigError, match=(
        f'--collective_hosts: .*{host} .Address already in use.')):
      collectives._listen(host)
