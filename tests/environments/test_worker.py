"""A worker in a thread of this process: what it checks of every step."""

import json
import os
import socket
import threading

import numpy as np
import pytest

from scalable_agent.environments.pools import worker as worker_lib
from scalable_agent.environments.pools import worker_messages

_SECONDS = 20.  # After which a worker that does not answer fails a test.


class _Client:
  """Speaks to a worker with environments 4 to 4 + N, as their pool would.

  Attributes:
    arrays: The `SharedArrays`.
  """

  def __init__(self, factory, kwargs):
    self._control, remote = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_SEQPACKET)
    self._control.settimeout(_SECONDS)
    memory_fd = os.memfd_create('test')
    self._mine = os.dup(memory_fd)

    def run():
      with remote:
        worker_lib._Worker(remote, memory_fd).run()

    self._thread = threading.Thread(target=run, daemon=True)
    self._thread.start()
    size = 4 + len(kwargs)
    self._send(json.dumps({'factory': 'tests.fakes:' + factory, 'first_id': 4,
                           'kwargs': kwargs, 'num_environments': size}))
    kind, info = self.receive()
    assert kind == worker_messages.INFO
    specs = json.loads(info)[0][2]
    self.arrays = worker_messages.map_arrays(
        self._mine, size, worker_messages.specs_from_json(specs))
    self._send(json.dumps(specs))

  def _send(self, text):
    self._control.send(text.encode())

  def receive(self):
    """Returns the next message that says more than that it is alive."""
    message = worker_messages.ALIVE
    while message == worker_messages.ALIVE:
      message = self._control.recv(worker_messages.MAXIMUM_MESSAGE_BYTES)
    return message[:1], message[1:]

  def step(self, environment_id):
    self._control.send(np.array([environment_id], np.int32).tobytes())
    return self.receive()

  def close(self):
    self._control.close()
    self._thread.join(_SECONDS)
    os.close(self._mine)


@pytest.fixture
def make_client():
  clients = []

  def make(factory, kwargs):
    clients.append(_Client(factory, kwargs))
    return clients[-1]

  yield make
  for client in clients:
    client.close()


def _ready(*ids):
  return worker_messages.READY, np.array(ids, np.int32).tobytes()


_OBSERVATION = [
    ('vector', 'np.zeros([1], np.float32)', 'float32 (1,)', 'float32 (2,)'),
    ('vector', 'np.float32(1)', 'float32 1.0', 'float32 (2,)'),
    ('vector', '1.5', 'float 1.5', 'float32 (2,)'),
    ('vector', 'None', 'None', 'float32 (2,)'),
    ('vector', "'12'", "str '12'", 'float32 (2,)'),
    ('vector', "np.array(['1', '2'])", '<U1 (2,)', 'float32 (2,)'),
    ('vector', 'np.zeros(2)', 'float64 (2,)', 'float32 (2,)'),
    ('vector', 'np.zeros(2, np.int64)', 'int64 (2,)', 'float32 (2,)'),
    ('observation', 'None', 'None', 'a tuple of length 2'),
    ('observation', 'np.zeros([2, 2], np.float32)', 'float32 (2, 2)',
     'a tuple of length 2'),
    ('observation', '(np.zeros(2, np.float32),)',
     'tuple (array([0., 0.], dtype=float32),) of length 1',
     'a tuple of length 2'),
]
_OTHERS = [
    ('reward', 'None', 'None', 'a number'),
    ('reward', "'3.5'", "str '3.5'", 'a number'),
    ('reward', 'np.zeros(2)', 'float64 (2,)', 'a number'),
    ('done', 'None', 'None', 'True or False'),
    ('done', '1', 'int 1', 'True or False'),
    ('done', "'False'", "str 'False'", 'True or False'),
]


@pytest.mark.parametrize('part, value, seen, expected', _OBSERVATION + _OTHERS)
def test_a_broken_contract(make_client, part, value, seen, expected):
  """It is refused in the step that breaks it, and named with its step."""
  client = make_client('broken', [
      dict(part=part, value=value, breaking_step=step, episode_length=2)
      for step in (-1, 3)])
  assert client.receive() == _ready(4, 5)
  # Each has steps of its own, which episodes do not end.
  for environment_id in (4, 5, 4, 5, 4, 4):
    assert client.step(environment_id) == _ready(environment_id)
  kind, content = client.step(5)
  assert kind == worker_messages.ERROR
  name = 'the observation' if part == 'vector' else (
      part if part == 'done' else f'the {part}')
  assert json.loads(content) == [
      5, f'at step 3 {name} is {seen}, expected {expected}', False, True]


@pytest.mark.parametrize('part, value, seen, expected', _OBSERVATION)
def test_a_broken_contract_at_the_first_output(
    make_client, part, value, seen, expected):
  client = make_client('broken', [
      dict(part=part, value=value, breaking_step=0)])
  kind, content = client.receive()
  assert kind == worker_messages.ERROR
  assert json.loads(content) == [
      4, f'at step 0 the observation is {seen}, expected {expected}', False,
      True]


@pytest.mark.parametrize('value', [
    'None', '(1., False)', '(1., False, None, {})', '7'])
def test_a_step_that_returns_no_triple(make_client, value):
  client = make_client('broken', [
      dict(part='result', value=value, breaking_step=1)])
  client.receive()
  kind, content = client.step(4)
  assert kind == worker_messages.ERROR
  environment_id, text, is_complete, is_final = json.loads(content)
  assert (environment_id, is_complete, is_final) == (4, False, True)
  assert text.startswith('at step 1 what it returned is ')
  assert text.endswith(', expected (reward, done, observation)')


@pytest.mark.parametrize('part, value, expected', [
    ('reward', 'np.float64(1.5)', (1.5, False, [0., 1.])),
    ('reward', '2', (2., False, [0., 1.])),
    ('reward', 'np.array([1.5])', (1.5, False, [0., 1.])),
    ('reward', '1e300', (np.inf, False, [0., 1.])),
    ('done', 'np.bool_(True)', (.25, True, [0., 1.])),
    ('vector', 'np.array([3, 4], np.float32)[::-1]', (.25, False, [4., 3.])),
    ('observation', '[np.ones(2, np.float32), np.ones(3, np.int32)]',
     (.25, False, [1., 1.])),
])
def test_what_keeps_the_contract(make_client, part, value, expected):
  client = make_client('broken', [
      dict(part=part, value=value, breaking_step=1)])
  assert client.receive() == _ready(4)
  assert client.step(4) == _ready(4)
  arrays = client.arrays
  assert (arrays.reward[4], arrays.done[4],
          arrays.observation[0][4].tolist()) == expected


def test_a_reward_that_is_not_a_number_arrives(make_client):
  client = make_client('broken', [
      dict(part='reward', value="float('nan')", breaking_step=1)])
  client.receive()
  assert client.step(4) == _ready(4)
  assert np.isnan(client.arrays.reward[4])


def test_other_errors_are_those_of_an_environment_that_may_be_replaced(
    make_client):
  client = make_client('failing', [
      dict(failure='raise', failing_step=1)])
  client.receive()
  kind, content = client.step(4)
  assert kind == worker_messages.ERROR
  environment_id, text, is_complete, is_final = json.loads(content)
  assert (environment_id, is_complete, is_final) == (4, False, False)
  assert 'the engine\\nwent away' in text


def test_what_is_being_stepped_is_seen(make_client):
  client = make_client('counting', [{}] * 3)
  client.receive()
  assert client.arrays.stepping[4] == 6
  client.step(6)
  client.step(5)
  assert client.arrays.stepping[4] == 5


def test_episodes_add_up(make_client):
  """An infinite return ends with its episode."""
  client = make_client('broken', [
      dict(part='reward', value="float('inf')", breaking_step=2,
           episode_length=2)])
  client.receive()
  seen = []
  for _ in range(5):
    seen.append([values[4] for values in client.arrays[2:-1]])
    client.step(4)
  # Reward, return and step, done, is_first and is_last.
  assert seen == [[0, 0, 0, True, True, False],
                  [.25, .25, 1, False, False, False],
                  [np.inf, np.inf, 2, True, False, True],
                  [.25, .25, 1, False, False, False],
                  [.5, .75, 2, True, False, True]]
