"""Plays levels of DeepMind Lab, each environment in a process of its own.

The engine is not thread-safe, can crash, and crashes for certain in a process
that has TensorFlow loaded. `deepmind_lab` is the user's own build; only the
processes of a pool import it.
"""

import importlib.util
import os

from absl import logging
import farmhash
import numpy as np

from scalable_agent import dmlab30
from scalable_agent.environments import ArraySpec
from scalable_agent.environments import DEFAULT_ACTION_SET
from scalable_agent.environments import level_cache
from scalable_agent.environments import NUM_HASH_BUCKETS
from scalable_agent.environments import PoolError
from scalable_agent.environments.pools import process_pool
from scalable_agent.files import file_names
from scalable_agent.process import errors

NUM_ACTIONS = len(DEFAULT_ACTION_SET)
# Longer instructions lose their end.
MAX_INSTRUCTION_WORDS = 16

BUILD_URL = ('https://github.com/google-deepmind/lab/blob/master/docs/users/'
             'build.md')
DATASET_URL = ('https://github.com/google-deepmind/lab/blob/master/data/'
               'brady_konkle_oliva2008/README.md')
_DATASET_FILE = '0001.png'
# With this for a path the engine draws plain colours instead.
_DUMMY_DATASET = 'dummy'
_DATASET_LEVELS = ('psychlab_arbitrary_visuomotor_mapping',
                   'psychlab_continuous_recognition')

_OBSERVATIONS = ['RGB_INTERLEAVED', 'INSTR']
# Keeps the episodes of tests apart from those of training, as released.
_TEST_MIXER_SEED = 0x600D5EED
_MAX_SEED = 2**31 - 1


def short_name(level_name):
  """Returns a level's name as it is logged: DMLab-30's have no prefix."""
  name = level_name.removeprefix(dmlab30.LEVEL_PREFIX)
  return name if name in dmlab30.ALL_LEVELS else level_name


def _long_name(level_name):
  return (dmlab30.LEVEL_PREFIX + level_name if level_name in dmlab30.ALL_LEVELS
          else level_name)


def test_twin(level_name):
  """Returns the short name of the level that a level is tested on."""
  return dmlab30.LEVEL_MAPPING.get(level_name, level_name)


def observation_spec(height, width):
  """The observations: the frame, and word ids of the instruction.

  Args:
    height: Of the frame, in pixels.
    width: Of the frame, in pixels.

  Returns:
    A tuple of `ArraySpec`, uint8 [height, width, 3] and int32 [WORDS].
  """
  return (ArraySpec((height, width, 3), np.dtype(np.uint8)),
          ArraySpec((MAX_INSTRUCTION_WORDS,), np.dtype(np.int32)))


def hash_words(instruction):
  """Turns an instruction into word ids, as `networks.hash_instructions`.

  Args:
    instruction: A string.

  Returns:
    int32 [MAX_INSTRUCTION_WORDS], hash buckets, -1 after the last word.
  """
  ids = np.full([MAX_INSTRUCTION_WORDS], -1, np.int32)
  words = instruction.encode().split()[:MAX_INSTRUCTION_WORDS]
  ids[:len(words)] = [
      farmhash.Fingerprint64(word) % NUM_HASH_BUCKETS for word in words]
  return ids


def check_engine(level_name):
  """Refuses a level where there is no engine to play it.

  Raises:
    PoolError: `deepmind_lab` is missing; the message is one line that says
      where to get it.
  """
  if importlib.util.find_spec('deepmind_lab') is None:
    raise PoolError(
        f'{level_name} needs DeepMind Lab, and there is no Python module '
        'deepmind_lab here. It is not on PyPI: build and install it as '
        f'{BUILD_URL} says.')


def check(level_names, dataset_path, level_cache_dir=''):
  """Refuses what cannot run on this machine.

  Args:
    level_names: A list of short names.
    dataset_path: Directory of the images of some psychlab levels; '' for none,
      'dummy' for plain colours in their place.
    level_cache_dir: As of `make_pool`. A directory that is not there is made.
      If it cannot be written, a warning says so.

  Raises:
    PoolError: `deepmind_lab` or the images are missing, or the cache cannot be
      made; the message is one line that says what to do.
  """
  check_engine(level_names[0])
  if level_cache_dir:
    _check_cache(level_cache_dir)
  needing = sorted({name for name in level_names if name in _DATASET_LEVELS})
  if needing and dataset_path == _DUMMY_DATASET:
    logging.warning(
        '--dataset_path=%s: %s plain colours instead of images. Scores there '
        'mean nothing.', dataset_path,
        ' and '.join(needing) + (' shows' if len(needing) == 1 else ' show'))
    return
  if needing and not os.path.isfile(os.path.join(dataset_path, _DATASET_FILE)):
    problem = (f'--dataset_path={dataset_path} holds no {_DATASET_FILE}'
               if dataset_path else '--dataset_path is not set')
    raise PoolError(
        f'{" and ".join(needing)} cannot do without images that come '
        f'separately, and {problem}. {DATASET_URL} says how to download them '
        'and turn them into PNG files; --dataset_path is the directory of '
        'those. With '
        f'--dataset_path={_DUMMY_DATASET} there are plain colours instead, and '
        'scores mean nothing.')


def _check_cache(directory):
  if not file_names.is_remote(directory):
    try:
      os.makedirs(directory, exist_ok=True)
    except OSError as e:
      raise PoolError(f'--level_cache_dir={directory} cannot be made: '
                      f'{errors.first_line(e)}') from e
  try:
    level_cache.check_writable(directory)
    if not file_names.is_remote(directory):
      level_cache.remove_leftovers(directory)
  except OSError as e:
    logging.warning(
        '--level_cache_dir=%s cannot be written: maps that are not there are '
        'compiled each time (%s).', directory, errors.first_line(e))


def make_pool(level_names, seed, height, width, num_action_repeats,
              dataset_path='', runfiles_path='', level_cache_dir='',
              is_test=False, **kwargs):
  """Makes a pool.

  Args:
    level_names: A list of N levels, by their short names.
    seed: An int; environment i is seeded with `seed + i`.
    height: Of the frame, in pixels.
    width: Of the frame, in pixels.
    num_action_repeats: Environment frames per action.
    dataset_path: See `check`.
    runfiles_path: Directory of the engine's own files; '' leaves it to the
      engine to find them.
    level_cache_dir: See `level_cache.LocalLevelCache`; '' for none.
    is_test: Whether the levels are those of a test, with its episodes.
    **kwargs: See `ProcessPool`.

  Returns:
    A `ProcessPool`, whose `level_names` are short.

  Raises:
    PoolError: A level is unknown, or something that it needs is missing.
  """
  check(level_names, dataset_path, level_cache_dir)
  return process_pool.ProcessPool(
      __name__ + ':DmLabEnvironment',
      [dict(level_name=name, seed=(seed + i) % _MAX_SEED, height=height,
            width=width, num_action_repeats=num_action_repeats,
            dataset_path=dataset_path, runfiles_path=runfiles_path,
            level_cache_dir=level_cache_dir, is_test=is_test)
       for i, name in enumerate(level_names)],
      **kwargs)


class DmLabEnvironment:
  """Gives `deepmind_lab.Lab` the interface that `ProcessPool` wants.

  Attributes:
    level_name: The short name.
    num_actions: 9, those of `DEFAULT_ACTION_SET`.
    observation_spec: See the function of that name.
  """

  num_actions = NUM_ACTIONS

  def __init__(self, level_name, seed, height, width, num_action_repeats,
               dataset_path, runfiles_path, level_cache_dir, is_test):
    """Loads the engine and the level; see `make_pool`.

    Raises:
      PoolError: The level is unknown or its settings are refused, or the engine
        cannot be loaded.
    """
    self.level_name = short_name(level_name)
    self.observation_spec = observation_spec(height, width)
    self._num_action_repeats = num_action_repeats
    self._random_state = np.random.RandomState(seed)
    self._actions = np.array(DEFAULT_ACTION_SET, np.intc)
    self._instruction = None
    self._word_ids = hash_words('')
    config = dict(
        width=str(width), height=str(height), logLevel='WARN')
    if dataset_path:
      config.update(datasetPath=dataset_path)
    if is_test:
      config.update(
          allowHoldOutLevels='true', mixerSeed=str(_TEST_MIXER_SEED))
    try:
      import deepmind_lab
      if runfiles_path:
        deepmind_lab.set_runfiles_path(runfiles_path)
      self._lab = deepmind_lab.Lab(
          _long_name(self.level_name), _OBSERVATIONS, config,
          level_cache=(level_cache.LocalLevelCache(level_cache_dir)
                       if level_cache_dir else None))
    except (ImportError, OSError, RuntimeError, ValueError) as e:
      raise PoolError(f'{self.level_name}: {errors.one_line(e)}') from e

  def initial(self):
    """Starts the first episode, and returns its first observation."""
    self._reset()
    return self._observe()

  def step(self, action):
    """Repeats an action; returns reward, done and observation."""
    reward = self._lab.step(self._actions[action], self._num_action_repeats)
    done = not self._lab.is_running()
    if done:
      self._reset()
    return reward, done, self._observe()

  def close(self):
    """Ends the engine."""
    self._lab.close()

  def _reset(self):
    # A plain int: the engine refuses NumPy's.
    self._lab.reset(seed=int(self._random_state.randint(_MAX_SEED)))

  def _observe(self):
    observations = self._lab.observations()
    instruction = observations['INSTR']
    if instruction != self._instruction:
      self._instruction = instruction
      self._word_ids = hash_words(instruction)
    return observations['RGB_INTERLEAVED'], self._word_ids
