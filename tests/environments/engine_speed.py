"""Times our processes of DeepMind Lab against the engine's own loop.

    python -m tests.environments.engine_speed --level_name=seekavoid_arena_01

makes the same environments twice: in a `ProcessPool`, stepped as `run_actor`
steps it, and in processes that hold nothing but the engine. Both take the same
random actions, so that they play the same frames, and read what the agent
reads. They run in turns, one of them waiting while the other is timed, and each
turn prints the ratio of their steps per second.

Needs `deepmind_lab`.
"""

import multiprocessing
import time

from absl import app
from absl import flags
import numpy as np

from scalable_agent import dmlab30
from scalable_agent import environments
from scalable_agent.environments import level_cache
from scalable_agent.environments.engines import dmlab

FLAGS = flags.FLAGS

flags.DEFINE_string('level_name', 'seekavoid_arena_01', 'The level.')
flags.DEFINE_integer('processes', 8, 'How many processes, of one engine each.')
flags.DEFINE_integer('minimum_batch_size', 1, 'As for a `ProcessPool`.')
flags.DEFINE_integer('turns', 5, 'How often each of the two is timed.')
flags.DEFINE_integer('steps', 500, 'Steps of each environment in a turn.')
flags.DEFINE_string('level_cache_dir', '', 'As for the experiment.')

_WIDTH, _HEIGHT, _REPEATS = 96, 72, 4


def _actions(seed):
  """Yields random actions for ever, the same ones for the same seed."""
  random = np.random.RandomState(seed)
  while True:
    yield int(random.randint(dmlab.NUM_ACTIONS))


def _play(channel, level_name, seed, cache_dir):
  """Steps the engine as many times as asked, whenever it is asked."""
  import deepmind_lab
  if level_name in dmlab30.ALL_LEVELS:
    level_name = dmlab30.LEVEL_PREFIX + level_name
  lab = deepmind_lab.Lab(
      level_name, ['RGB_INTERLEAVED', 'INSTR'],
      dict(width=str(_WIDTH), height=str(_HEIGHT), logLevel='WARN'),
      level_cache=level_cache.LocalLevelCache(cache_dir) if cache_dir else None)
  episode_seeds = np.random.RandomState(seed)
  actions = np.array(environments.DEFAULT_ACTION_SET, np.intc)
  lab.reset(seed=int(episode_seeds.randint(2**31 - 1)))
  lab.observations()
  chosen = _actions(seed)
  channel.send(None)
  while (num_steps := channel.recv()):
    for _ in range(num_steps):
      lab.step(actions[next(chosen)], num_steps=_REPEATS)
      if not lab.is_running():
        lab.reset(seed=int(episode_seeds.randint(2**31 - 1)))
      lab.observations()
    channel.send(None)


class _Engines:
  """Processes that hold nothing but the engine."""

  def __init__(self):
    context = multiprocessing.get_context('spawn')
    self._channels, self._processes = [], []
    for seed in range(FLAGS.processes):
      ours, theirs = context.Pipe()
      self._processes.append(context.Process(
          target=_play, daemon=True,
          args=(theirs, FLAGS.level_name, seed, FLAGS.level_cache_dir)))
      self._processes[-1].start()
      self._channels.append(ours)
    self._wait()

  def _wait(self):
    for channel in self._channels:
      channel.recv()

  def run(self, num_steps):
    """Steps each environment so many times."""
    for channel in self._channels:
      channel.send(num_steps)
    self._wait()

  def close(self):
    for channel in self._channels:
      channel.send(0)
    for process in self._processes:
      process.join()


class _Pool:
  """Our processes, each with one environment, as in training."""

  def __init__(self):
    self._pool = dmlab.make_pool(
        [FLAGS.level_name] * FLAGS.processes, 0, _HEIGHT, _WIDTH, _REPEATS,
        level_cache_dir=FLAGS.level_cache_dir, num_processes=FLAGS.processes,
        step_timeout_seconds=600., start_timeout_seconds=600.,
        minimum_batch_size=FLAGS.minimum_batch_size)
    self._chosen = [_actions(seed) for seed in range(FLAGS.processes)]
    num_ready = 0
    while num_ready < FLAGS.processes:
      num_ready += len(self._pool.recv().ids)

  def run(self, num_steps):
    """Steps each environment so many times."""
    left = [num_steps] * FLAGS.processes
    num_left = sum(left)
    ids = range(FLAGS.processes)
    while num_left:
      if ids:
        self._pool.send(np.array(ids, np.int32), np.array(
            [next(self._chosen[i]) for i in ids], np.int32))
      ready = self._pool.recv().ids.tolist()
      num_left -= len(ready)
      for i in ready:
        left[i] -= 1
      ids = [i for i in ready if left[i]]

  def close(self):
    self._pool.close()


def _time(player):
  begin = time.monotonic()
  player.run(FLAGS.steps)
  return time.monotonic() - begin


def main(argv):
  del argv
  players = pool, engines = _Pool(), _Engines()
  ratios = []
  for turn in range(FLAGS.turns):
    # Neither is always the first.
    seconds = {player: _time(player) for player in players[::(-1)**turn]}
    ratios.append(seconds[engines] / seconds[pool])
    rates = [FLAGS.steps * FLAGS.processes / seconds[p] for p in players]
    print('pool {:.1f}, engine alone {:.1f} steps/s, ratio {:.3f}'.format(
        *rates, ratios[-1]), flush=True)
  error = np.nan
  if len(ratios) > 1:
    error = np.std(ratios, ddof=1) / len(ratios)**.5
  print(f'{FLAGS.level_name}: {np.mean(ratios):.3f} ± {error:.3f}')
  pool.close()
  engines.close()


if __name__ == '__main__':
  app.run(main)
