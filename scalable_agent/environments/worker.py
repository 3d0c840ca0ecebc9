"""Runs some of the environments of a `ProcessPool`, as a process of its own.

Started as `python -m scalable_agent.environments.worker CONTROL MEMORY
DIRECTORY`, of which two are file descriptors inherited from the pool's process:

  CONTROL: A socket that keeps message boundaries. The pool sends a JSON object
    saying which environments to make, a JSON list of the observation's specs,
    and from then on int32 ids of environments to step. The worker answers with
    one byte of `INFO`, `READY` or `ERROR` and what those constants say. When
    the socket ends, so does the worker.
  MEMORY: A file without a name that holds everything of `SharedArrays`.
  DIRECTORY: Where temporary files go; removed at the end.

This process must never import TensorFlow: there may be hundreds of it.
"""

import collections
import faulthandler
import importlib
import json
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.environments import PoolError

INFO = b'i'   # JSON, for each environment: [level name, actions, specs].
READY = b'r'  # int32 ids of environments whose rows are filled in.
ERROR = b'e'  # JSON: [id or null, text, whether the text stands by itself].

MAXIMUM_MESSAGE_BYTES = 1 << 18

# Of steps that it was sent together, a worker reports those it has taken for so
# long: the policy acts for slow environments while the next of them step, and
# fast ones cost a message for all.
_REPORT_SECONDS = 0.001

_ALIGNMENT_BYTES = 64
_MAXIMUM_TEXT_LENGTH = 2000
_ABANDONED_GRACE_SECONDS = 3.0

SharedArrays = collections.namedtuple(
    'SharedArrays', 'action reward done observation')
SharedArrays.__doc__ = """What pool and workers exchange, by environment id.

  action: int32 [N], written by the pool before it asks for a step.
  reward: float32 [N], written by the worker, like all that follows.
  done: bool [N].
  observation: A tuple of arrays [N, ...], one for each observation spec.
"""


def map_arrays(memory_fd, num_environments, observation_spec):
  """Maps the memory that the pool shares with its workers.

  Args:
    memory_fd: File descriptor. The file is given the size it needs, which is
      the same whoever computes it.
    num_environments: Number of environments in the whole pool, N.
    observation_spec: A tuple of `ArraySpec`.

  Returns:
    `SharedArrays`; the mapping lives as long as they do.
  """
  specs = [ArraySpec((), np.int32), ArraySpec((), np.float32),
           ArraySpec((), np.bool_), *observation_spec]
  specs = [ArraySpec((num_environments, *spec.shape), np.dtype(spec.dtype))
           for spec in specs]
  offsets = [0]
  for spec in specs:
    num_bytes = int(np.prod(spec.shape)) * spec.dtype.itemsize
    offsets.append(
        offsets[-1] - (-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
  os.ftruncate(memory_fd, offsets[-1])
  memory = mmap.mmap(memory_fd, offsets[-1])
  arrays = [np.ndarray(spec.shape, spec.dtype, memory, offset)
            for spec, offset in zip(specs, offsets)]
  return SharedArrays(*arrays[:3], tuple(arrays[3:]))


def specs_to_json(observation_spec):
  """Returns a JSON-able list for a tuple of `ArraySpec`."""
  return [[[int(size) for size in spec.shape], np.dtype(spec.dtype).str]
          for spec in observation_spec]


def specs_from_json(specs):
  """Returns the tuple of `ArraySpec` that `specs_to_json` was given."""
  return tuple(ArraySpec(tuple(shape), np.dtype(dtype))
               for shape, dtype in specs)


def _error_text(error):
  """Returns one line for an exception and where it was raised."""
  if isinstance(error, PoolError):
    return str(error)[:_MAXIMUM_TEXT_LENGTH]
  lines = traceback.format_exception_only(type(error), error)
  text = ' '.join(''.join(lines).split())[:_MAXIMUM_TEXT_LENGTH]
  frames = traceback.extract_tb(error.__traceback__)
  if frames:
    text += ' ({}, line {}, in {})'.format(
        frames[-1].filename, frames[-1].lineno, frames[-1].name)
  return text


def _check_observation(observation, observation_spec):
  """Raises ValueError where assignment would broadcast or cast silently."""
  if len(observation) != len(observation_spec):
    raise ValueError('an observation of {} arrays where its spec has {}'.format(
        len(observation), len(observation_spec)))
  for value, spec in zip(observation, observation_spec):
    value = np.asarray(value)
    if value.shape != spec.shape or value.dtype != spec.dtype:
      raise ValueError(
          'an observation of {} {} where its spec has {} {}'.format(
              value.dtype, value.shape, spec.dtype, spec.shape))


class _Worker:
  """Makes the environments and steps them for as long as it is asked."""

  def __init__(self, control, memory_fd):
    self._control = control
    self._memory_fd = memory_fd
    self._environments = {}
    self._current_id = None
    self._arrays = None

  def run(self):
    """Serves until the control channel ends. Returns the exit status."""
    try:
      if self._make_environments() and self._start():
        self._serve()
      return 0
    except BaseException as error:  # Whatever it is, the pool has to know.
      self._report(error)
      return 1
    finally:
      self._close_environments()

  def _receive(self):
    return self._control.recv(MAXIMUM_MESSAGE_BYTES)

  def _make_environments(self):
    """Makes the environments and describes them, unless the channel ended."""
    message = self._receive()
    if not message:
      return False
    request = json.loads(message)
    self._num_environments = request['num_environments']
    module, function = request['factory'].split(':')
    factory = getattr(importlib.import_module(module), function)
    for index, kwargs in enumerate(request['kwargs']):
      self._current_id = request['first_id'] + index
      self._environments[self._current_id] = factory(**kwargs)
    info = [[environment.level_name, int(environment.num_actions),
             specs_to_json(environment.observation_spec)]
            for environment in self._environments.values()]
    self._control.send(INFO + json.dumps(info).encode())
    return True

  def _start(self):
    """Fills in the initial outputs, unless the channel ended."""
    message = self._receive()
    if not message:
      return False
    spec = specs_from_json(json.loads(message))
    self._arrays = map_arrays(self._memory_fd, self._num_environments, spec)
    os.close(self._memory_fd)
    for self._current_id, environment in self._environments.items():
      observation = environment.initial()
      _check_observation(observation, spec)
      self._write_observation(observation)
      self._arrays.reward[self._current_id] = 0.0
      self._arrays.done[self._current_id] = True
    ids = np.array(list(self._environments), np.int32)
    self._control.send(READY + ids.tobytes())
    return True

  def _serve(self):
    while message := self._receive():
      self._step(memoryview(message).cast('i'))

  def _step(self, ids):
    # A process that steps one of many environments wakes up with cold caches,
    # and feels every call of NumPy.
    arrays = self._arrays
    first, due = 0, time.monotonic() + _REPORT_SECONDS
    for end, i in enumerate(ids, 1):
      self._current_id = i
      arrays.reward[i], arrays.done[i], observation = (
          self._environments[i].step(arrays.action.item(i)))
      self._write_observation(observation)
      if end == len(ids) or time.monotonic() >= due:
        self._control.send(READY + ids[first:end].tobytes())
        first, due = end, time.monotonic() + _REPORT_SECONDS

  def _write_observation(self, observation):
    for array, value in zip(self._arrays.observation, observation):
      array[self._current_id] = value

  def _report(self, error):
    content = [self._current_id, _error_text(error),
               isinstance(error, PoolError)]
    try:
      self._control.send(ERROR + json.dumps(content).encode())
    except OSError:
      pass  # The pool is gone, which may well be the error.

  def _close_environments(self):
    for environment in self._environments.values():
      try:
        environment.close()
      except Exception:
        traceback.print_exc()


def _exit_when_abandoned(control, directory):
  """Ends a process whose environment hangs when the pool's process died."""
  poll = select.poll()
  poll.register(control, select.POLLRDHUP)
  poll.poll()
  time.sleep(_ABANDONED_GRACE_SECONDS)
  shutil.rmtree(directory, ignore_errors=True)
  os._exit(1)


def main(argv):
  """Runs a worker on what is named in `argv`; returns its status."""
  # Ctrl-C reaches the whole process group; ending workers is up to the pool.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  faulthandler.enable()
  control = socket.socket(fileno=int(argv[1]))
  threading.Thread(
      target=_exit_when_abandoned, args=(control, argv[3]), daemon=True
  ).start()
  try:
    return _Worker(control, memory_fd=int(argv[2])).run()
  finally:
    shutil.rmtree(argv[3], ignore_errors=True)


if __name__ == '__main__':
  status = main(sys.argv)
  # The environments are closed, and to take the interpreter down in an orderly
  # way costs more than all else when a hundred workers end together.
  os._exit(status)
