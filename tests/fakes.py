"""Fake environments, made in worker processes as 'tests.fakes:<function>'."""

import os
import subprocess
import sys
import time

import numpy as np

from scalable_agent.environments import ArraySpec
from scalable_agent.environments import PoolError


class CountingEnvironment:
  """Ends each episode after a number of steps, and shows where it is.

  The reward of the k-th step of an episode (from 1) is action + k / 4. The
  observation is float32 [identity, steps in this episode], and int32 [steps in
  all, process id, whether TensorFlow is imported].
  """

  num_actions = 5

  def __init__(self, level_name='counting', identity=0, episode_length=3,
               seconds=0.0):
    self.level_name = level_name
    self.observation_spec = (
        ArraySpec((2,), np.float32), ArraySpec((3,), np.int32))
    self._identity = identity
    self._episode_length = episode_length
    self._seconds = seconds
    self._episode_step = 0
    self._total_step = 0

  def _observe(self):
    has_tensorflow = any(
        name.split('.')[0] == 'tensorflow' for name in sys.modules)
    return (np.array([self._identity, self._episode_step], np.float32),
            np.array([self._total_step, os.getpid(), has_tensorflow], np.int32))

  def initial(self):
    return self._observe()

  def step(self, action):
    time.sleep(self._seconds)
    self._total_step += 1
    self._episode_step += 1
    reward = action + self._episode_step / 4
    done = self._episode_step == self._episode_length
    if done:
      self._episode_step = 0
    return reward, done, self._observe()

  def close(self):
    pass


class FailingEnvironment(CountingEnvironment):
  """Does something bad in the step of a given number, from 1."""

  def __init__(self, failure, failing_step, **kwargs):
    super().__init__(**kwargs)
    self._failure = failure
    self._failing_step = failing_step

  def step(self, action):
    if self._total_step + 1 == self._failing_step:
      if self._failure == 'raise':
        time.sleep(self._seconds)
        raise KeyError('the engine\nwent away')
      if self._failure == 'exit':
        print('emulator: out of cheese', file=sys.stderr)
        print('emulator: good bye')
        os._exit(23)
      if self._failure == 'abort':
        os.abort()
      if self._failure == 'check':
        print('F1123 12:00:00 engine.cc:12] Check failed: map != nullptr')
        for i in range(2000):
          print(f'@ 0x{i:08x}  (unknown)')
        os.abort()
      if self._failure == 'hang':
        time.sleep(1000.0)
      while self._failure == 'print for ever':
        print('x' * 10000)
      if self._failure == 'print':
        for _ in range(100):
          print('x' * 10000)
    return super().step(action)


class WrongObservationEnvironment(CountingEnvironment):
  """Does not keep to its own spec, but so that NumPy would put up with it."""

  def initial(self):
    vector, numbers = super().initial()
    return vector.astype(np.float64), numbers


class BrokenEnvironment(CountingEnvironment):
  """Returns something else in the step of a given number, 0 the first output.

  `part` is what is replaced by `value`, a Python expression: 'vector' (the
  first array of the observation), 'observation', 'reward', 'done' or 'result',
  which is all of these.
  """

  def __init__(self, part, value, breaking_step, **kwargs):
    super().__init__(**kwargs)
    self._part = part
    self._value = value
    self._breaking_step = breaking_step

  def _replaced(self, part, value):
    if (part, self._total_step) != (self._part, self._breaking_step):
      return value
    return eval(self._value, {'np': np})  # pylint: disable=eval-used

  def _observe(self):
    vector, numbers = super()._observe()
    return self._replaced(
        'observation', (self._replaced('vector', vector), numbers))

  def step(self, action):
    reward, done, observation = super().step(action)
    return self._replaced('result', (
        self._replaced('reward', reward), self._replaced('done', done),
        observation))


def counting(**kwargs):
  return CountingEnvironment(**kwargs)


def failing(**kwargs):
  return FailingEnvironment(**kwargs)


def wrong_observation(**kwargs):
  return WrongObservationEnvironment(**kwargs)


def cannot_make(level_name, error=None):
  """Makes an environment, or raises the `error`, 'pool' or 'value'."""
  if error == 'pool':
    raise PoolError(level_name + ': no such level here')
  if error == 'value':
    raise ValueError('episode length of -1')
  return CountingEnvironment(level_name)


def with_actions(num_actions, **kwargs):
  environment = CountingEnvironment(**kwargs)
  environment.num_actions = num_actions
  return environment


def broken(**kwargs):
  return BrokenEnvironment(**kwargs)


def with_child(is_forked=False, **kwargs):
  """Makes an environment that has a process; its identity is the child's id."""
  if is_forked:
    pid = os.fork()
    if not pid:
      time.sleep(1000.0)
      os._exit(0)
  else:
    pid = subprocess.Popen(['sleep', '1000']).pid
  return CountingEnvironment(identity=pid, **kwargs)


def of_environment_variable(name, **kwargs):
  """Makes an environment whose identity is the number in a variable."""
  return CountingEnvironment(identity=float(os.environ[name]), **kwargs)


def of_childs_variables(**kwargs):
  """Makes an environment whose identity says which variables a child has.

  1 for PYTHONPATH, 2 for PYTHONSAFEPATH, 3 for both.
  """
  child = subprocess.run(
      ['sh', '-c', 'echo $((${PYTHONPATH:+1}+0 + ${PYTHONSAFEPATH:+2}+0))'],
      check=True, capture_output=True)
  return CountingEnvironment(identity=float(child.stdout), **kwargs)


def slow_to_start(seconds, **kwargs):
  """Makes an environment whose first output takes a while."""
  environment = CountingEnvironment(**kwargs)
  initial = environment.initial

  def initial_later():
    time.sleep(seconds)
    return initial()

  environment.initial = initial_later
  return environment


def awaiting_file(path, **kwargs):
  """Makes an environment without a first output until there is a file."""
  environment = CountingEnvironment(**kwargs)
  initial = environment.initial

  def initial_later():
    while path and not os.path.exists(path):
      time.sleep(.01)
    return initial()

  environment.initial = initial_later
  return environment


def slow_to_make(seconds, **kwargs):
  """Makes an environment after a while."""
  time.sleep(seconds)
  return CountingEnvironment(**kwargs)


def with_slow_successors(seed, first_seed, **kwargs):
  """Makes an environment that is never made anew in any time."""
  if seed != first_seed:
    time.sleep(1000.0)
  return CountingEnvironment(**kwargs)


def seeded(seed, **kwargs):
  """Makes an environment whose identity is its seed."""
  return CountingEnvironment(identity=seed, **kwargs)
