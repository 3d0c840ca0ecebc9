"""Runs some of the environments of a `ProcessPool`, as a process of its own.

Started as `python -m scalable_agent.environments.pools.worker CONTROL MEMORY
DIRECTORY ENVIRON`. Two of these are file descriptors inherited from the pool's
process:

  CONTROL: A socket that keeps message boundaries, for `worker_messages`. When
    it ends, so does the worker, and all that its environments started.
  MEMORY: A file without a name that holds everything of `SharedArrays`.
  DIRECTORY: Where temporary files go; removed at the end.
  ENVIRON: For `python_environ.restore`, so that programs that environments
    start have the user's own variables.

This process must never import TensorFlow: there may be hundreds of it.
"""

import contextlib
import faulthandler
import importlib
import json
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

from scalable_agent.environments import contract
from scalable_agent.environments import PoolError
from scalable_agent.environments import python_environ
from scalable_agent.environments.pools import worker_messages

# A worker that was sent several steps reports after this time those that it has
# taken. So the policy acts for slow environments while the others step, and
# fast ones share one message.
_REPORT_SECONDS = 0.001

_ARRAY = np.ndarray  # It is looked up in every step.
_MAXIMUM_TEXT_LENGTH = 2000
_ABANDONED_GRACE_SECONDS = 3.0


def _error_text(error):
  """Returns one line for an exception and where it was raised."""
  if isinstance(error, PoolError):
    return str(error)[:_MAXIMUM_TEXT_LENGTH]
  lines = traceback.format_exception_only(type(error), error)
  text = ' '.join(''.join(lines).split())[:_MAXIMUM_TEXT_LENGTH]
  frames = traceback.extract_tb(error.__traceback__)
  if frames:
    last = frames[-1]
    text += f' ({last.filename}, line {last.lineno}, in {last.name})'
  return text


class _Slot:
  """An environment, and the rows that its observations go to.

  Attributes:
    environment: See `ProcessPool`.
    step: Its method.
    num_steps: Steps that were begun since it was made.
    episode_return: Of the episode that goes on, up to now.
    episode_step: Likewise.
  """
  __slots__ = ('environment', 'step', 'num_steps', 'episode_return',
               'episode_step', '_rows')

  def __init__(self, environment):
    self.environment = environment
    self.step = environment.step
    self.num_steps = 0
    self.episode_return = 0.0
    self.episode_step = 0

  def set_rows(self, arrays, environment_id):
    """Takes the environment's rows of arrays [N, ...], in a tuple."""
    self._rows = [(array[environment_id, ...], array.shape[1:], array.dtype)
                  for array in arrays]

  def write(self, observation):
    """Writes an observation, or raises `ContractError`."""
    rows = self._rows
    if type(observation) is not tuple or len(observation) != len(rows):
      contract.check_length(observation, len(rows))
    for index, value in enumerate(observation):
      row, shape, dtype = rows[index]
      if (type(value) is not _ARRAY or value.dtype is not dtype or
          value.shape != shape):
        value = contract.to_array(value, shape, dtype)
      row[...] = value


class _Worker:
  """Makes the environments and steps them for as long as it is asked."""

  def __init__(self, control, memory_fd):
    self._control = control
    self._memory_fd = memory_fd
    self._slots = {}
    self._first_id = None
    self._current_id = None  # Of what is being made.
    self._stepping = None

  def run(self):
    """Serves until the control channel ends."""
    try:
      if self._make_environments() and self._start():
        self._serve()
    except BaseException as error:  # Whatever it is, the pool has to know.
      self._report(error)
    finally:
      self._close_environments()

  def _receive(self):
    return self._control.recv(worker_messages.MAXIMUM_MESSAGE_BYTES)

  def _make_environments(self):
    """Makes the environments and describes them, unless the channel ended."""
    message = self._receive()
    if not message:
      return False
    request = json.loads(message)
    self._num_environments = request['num_environments']
    self._first_id = request['first_id']
    module, function = request['factory'].split(':')
    factory = getattr(importlib.import_module(module), function)
    for index, kwargs in enumerate(request['kwargs']):
      self._current_id = self._first_id + index
      self._slots[self._current_id] = _Slot(factory(**kwargs))
      self._control.send(worker_messages.ALIVE)
    environments = [slot.environment for slot in self._slots.values()]
    info = [[environment.level_name, int(environment.num_actions),
             worker_messages.specs_to_json(environment.observation_spec)]
            for environment in environments]
    self._control.send(worker_messages.INFO + json.dumps(info).encode())
    return True

  def _start(self):
    """Fills in the initial outputs, unless the channel ended."""
    message = self._receive()
    if not message:
      return False
    spec = worker_messages.specs_from_json(json.loads(message))
    arrays = worker_messages.map_arrays(
        self._memory_fd, self._num_environments, spec)
    os.close(self._memory_fd)
    # Their elements are read and written faster than those of arrays.
    self._shared = worker_messages.SharedArrays(
        *map(memoryview, arrays[:-1]), None)
    self._stepping = self._shared.stepping
    for i, slot in self._slots.items():
      self._stepping[self._first_id] = i
      slot.set_rows(arrays.observation, i)
      slot.write(slot.environment.initial())
      self._write(slot, i, 0.0, True)
      # Nothing was played yet that could end.
      self._shared.is_first[i], self._shared.is_last[i] = True, False
      self._control.send(worker_messages.ALIVE)
    ids = np.array(list(self._slots), np.int32)
    self._control.send(worker_messages.READY + ids.tobytes())
    return True

  def _serve(self):
    buffer = memoryview(bytearray(worker_messages.MAXIMUM_MESSAGE_BYTES))
    ids = buffer.cast('i')
    while num_bytes := self._control.recv_into(buffer):
      self._step(ids[:num_bytes // ids.itemsize])

  def _step(self, ids):
    # A process that steps one of many environments wakes up with cold caches,
    # and feels every call of NumPy.
    slots, stepping, first_id = self._slots, self._stepping, self._first_id
    actions = self._shared.action
    first, due = 0, time.monotonic() + _REPORT_SECONDS
    for end, i in enumerate(ids, 1):
      stepping[first_id] = i
      slot = slots[i]
      slot.num_steps += 1
      slot.episode_step += 1
      result = slot.step(actions[i])
      try:
        reward, done, observation = result
      except (TypeError, ValueError) as e:
        raise contract.refusal(
            'what it returned', result, '(reward, done, observation)') from e
      if type(reward) is not float:
        reward = contract.to_reward(reward)
      if type(done) is not bool:
        done = contract.to_bool(done)
      slot.write(observation)
      self._write(slot, i, reward, done)
      if end == len(ids) or time.monotonic() >= due:
        self._control.send(worker_messages.READY + ids[first:end].tobytes())
        first, due = end, time.monotonic() + _REPORT_SECONDS

  def _write(self, slot, i, reward, done):
    """Writes all of an output but the observation."""
    shared = self._shared
    slot.episode_return += reward
    shared.reward[i] = reward
    shared.episode_return[i] = slot.episode_return
    shared.episode_step[i] = slot.episode_step
    shared.done[i] = shared.is_last[i] = done
    shared.is_first[i] = False
    if done:
      slot.episode_return = 0.0
      slot.episode_step = 0

  def _report(self, error):
    current_id = (self._current_id if self._stepping is None else
                  self._stepping[self._first_id])
    text, slot = _error_text(error), self._slots.get(current_id)
    is_final = isinstance(error, contract.ContractError) and slot is not None
    if is_final:
      text = f'at step {slot.num_steps} {text}'
    content = [current_id, text,
               isinstance(error, PoolError) and not is_final, is_final]
    try:
      self._control.send(worker_messages.ERROR + json.dumps(content).encode())
    except OSError:
      pass  # The pool is gone, which may well be the error.

  def _close_environments(self):
    for slot in self._slots.values():
      try:
        slot.environment.close()
      except Exception:
        traceback.print_exc()


def _end_group():
  """Ends this process, and with it all that its environments started."""
  # If this process leads no group, there is no group of this id.
  os.killpg(os.getpid(), signal.SIGKILL)


def _end_when_abandoned(control, directory):
  """Ends a process whose environment hangs when the pool's process died.

  It cannot while an environment keeps the interpreter's lock, as a library in C
  may. The pool itself could, but is gone.
  """
  poll = select.poll()
  poll.register(control, select.POLLRDHUP)
  poll.poll()
  time.sleep(_ABANDONED_GRACE_SECONDS)
  shutil.rmtree(directory, ignore_errors=True)
  _end_group()


def _do_not_interrupt_others():
  """Lets other processes end their slice of time when this one has to step.

  Where processes outnumber cores, it would be another environment's step that
  is interrupted.
  """
  # Anything else was chosen by whoever started this.
  if os.sched_getscheduler(0) == os.SCHED_OTHER:
    with contextlib.suppress(OSError):
      os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main(argv):
  """Runs a worker on what is named in `argv`."""
  # What environments start is in this group too, unless it leaves it. Ctrl-C
  # reaches the pool's group alone; ending workers is up to the pool.
  os.setpgrp()
  _do_not_interrupt_others()
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  faulthandler.enable()
  python_environ.restore(argv[4])
  control = socket.socket(fileno=int(argv[1]))
  memory_fd = int(argv[2])
  # The pool sees by the channel that this process ended: nobody else may hold
  # it open.
  control.set_inheritable(False)
  os.set_inheritable(memory_fd, False)
  os.register_at_fork(after_in_child=control.close)
  threading.Thread(
      target=_end_when_abandoned, args=(control, argv[3]), daemon=True
  ).start()
  try:
    _Worker(control, memory_fd).run()
  finally:
    shutil.rmtree(argv[3], ignore_errors=True)


if __name__ == '__main__':
  main(sys.argv)
  # The environments are closed, and to take the interpreter down in an orderly
  # way costs more than all else when a hundred workers end together.
  _end_group()
