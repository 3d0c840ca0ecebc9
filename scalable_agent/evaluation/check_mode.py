"""Starts every level of a suite, and says which can be played here."""

import collections
import contextlib
import dataclasses
import time

from absl import logging
import numpy as np

from scalable_agent import suites
from scalable_agent.environments import PoolError
from scalable_agent.process import errors
from scalable_agent.process import memory_use
from scalable_agent.process import output
from scalable_agent.process import progress as progress_lib
from scalable_agent.process import signals
from scalable_agent.results import blocks
from scalable_agent.results import tables

NUM_STEPS = 200

LevelCheck = collections.namedtuple(
    'LevelCheck', 'level_name problem observation num_words steps_per_second '
    'first_start_secs second_start_secs memory_bytes',
    defaults=('', '', 0, 0., 0., 0., 0))
LevelCheck.__doc__ = """What came of a level.

  level_name: As it is logged.
  problem: Why it cannot be played, in one line; '' if it can. All that follows
    is then missing.
  observation: What the agent sees, in words.
  num_words: Of the longest instruction seen, cut as the agent's are.
  steps_per_second: Agent steps, by random actions, resets included.
  first_start_secs: Until the first observation.
  second_start_secs: The same for another environment, whose map is in the cache
    by then if there is one.
  memory_bytes: Of the environment and its process.
"""

_HEADER = ['level', 'plays', 'observation', 'words', 'agent steps/s',
           'start s', 'again s', 'MB']


def check(config, stop):
  """Plays each level for a moment, and prints a table.

  If a suite is tested on other levels, these are played too.

  Args:
    config: A `config.Config`.
    stop: A `signals.Stop`, which ends it, also within a level.

  Returns:
    Whether all levels that it got through can be played.
  """
  progress = progress_lib.ProgressLine()
  found = []
  configs = _level_configs(config)
  with contextlib.suppress(signals.Interrupted):
    for level_config, level_name in configs:
      progress.show(f'{level_name}: level {len(found) + 1} of {len(configs)}')
      with stop.interrupting():
        found.append(check_level(level_config, level_name))
      if found[-1].problem:
        progress.end()
        logging.error('%s cannot be played: %s', level_name, found[-1].problem)
  progress.end()
  for line in lines(found):
    output.say(line)
  return not any(result.problem for result in found)


def _level_configs(config):
  """Returns pairs of a configuration of one level, and the level's name."""
  train = dataclasses.replace(config, mode='train')
  test = dataclasses.replace(config, mode='test')
  found, seen = [], set()
  for trained, tested in zip(
      suites.level_names(train), suites.level_names(test)):
    for mode, name in ((train, trained), (test, tested)):
      if name not in seen:
        seen.add(name)
        found.append((dataclasses.replace(mode, level_name=trained), name))
  return found


def check_level(config, level_name):
  """Plays a level with random actions, in two environments in turn.

  Args:
    config: A `config.Config` of one level.
    level_name: What it is called.

  Returns:
    A `LevelCheck`.
  """
  try:
    memory = memory_use.of_family()
    pool, first_start = _start(config, config.seed)
    with contextlib.closing(pool):
      num_words, seconds = _play(pool, config.seed)
      memory = memory_use.of_family() - memory
    pool, second_start = _start(config, config.seed + 1)
    pool.close()
  except PoolError as e:
    return LevelCheck(
        level_name, errors.one_line(e).removeprefix(f'{level_name}: '))
  frame = pool.observation_spec[0]
  return LevelCheck(
      level_name,
      observation=' '.join([
          'x'.join(map(str, frame.shape)), np.dtype(frame.dtype).name]),
      num_words=num_words,
      steps_per_second=NUM_STEPS / seconds,
      first_start_secs=first_start,
      second_start_secs=second_start,
      memory_bytes=max(memory, 0))


class _StartedPool:
  """A pool of one environment whose first output has been taken."""

  def __init__(self, pool):
    self._pool = pool
    self.observation_spec = pool.observation_spec
    self.num_actions = pool.num_actions
    self.output = pool.recv()
    self.close = pool.close

  def step(self, action):
    """Makes a step; its output is then `output`."""
    self._pool.send(self.output.ids, np.array([action], np.int32))
    self.output = self._pool.recv()


def _start(config, seed):
  """Returns a started pool, and the seconds that it took."""
  start = time.perf_counter()
  (pool,) = suites.make_pools(config, suites.ONE_ENVIRONMENT, seed)
  try:
    return _StartedPool(pool), time.perf_counter() - start
  except BaseException:
    pool.close()
    raise


def _play(pool, seed):
  """Plays; returns the words of the longest instruction, and the seconds."""
  random = np.random.default_rng(seed)
  num_words = _count_words(pool.output)
  start = time.perf_counter()
  for action in random.integers(pool.num_actions, size=NUM_STEPS):
    pool.step(action)
    num_words = max(num_words, _count_words(pool.output))
  return num_words, time.perf_counter() - start


def _count_words(output):
  """Returns how many words the instruction has that an output came with."""
  instructions = output.step_output.observation[1:]
  return int(sum((ids >= 0).sum() for ids in instructions))


def lines(checks):
  """Lays out `LevelCheck`s.

  Args:
    checks: A list of them.

  Returns:
    A list of lines: a table, and below it why levels cannot be played.
  """
  rows = []
  for result in checks:
    if result.problem:
      rows.append([result.level_name, 'no'] + [tables.MISSING] * 6)
      continue
    rows.append([
        result.level_name, 'yes', result.observation,
        str(result.num_words) if result.num_words else tables.MISSING,
        f'{result.steps_per_second:,.0f}', f'{result.first_start_secs:.2f}',
        f'{result.second_start_secs:.2f}', f'{result.memory_bytes / 1e6:,.0f}'])
  return [*tables.aligned(blocks.Table(_HEADER, rows)), *[
      f'{result.level_name}: {result.problem}'
      for result in checks if result.problem]]
