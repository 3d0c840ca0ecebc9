"""The score of an agent on a level and on a suite, and what it is from."""

import collections

import numpy as np

from scalable_agent.results import published
from scalable_agent.results import runs as runs_lib
from scalable_agent.suites.scores import WINDOW

Score = collections.namedtuple(
    'Score', 'mean standard_error source frames trained_frames total_frames '
    'is_finished runs seeds episodes')
Score.__doc__ = """What an agent has got to on a level.

  mean: Over runs of the mean return, None if there is no episode.
  standard_error: Of the mean: over runs, or over the episodes of a single one.
  source: 'test', 'training' (the last 100 episodes of each run), 'no episode'
    if none has finished, or 'no run'.
  frames: Environment frames behind it, of the run that has the fewest.
  trained_frames: Those that the run with the fewest has trained on by now.
  total_frames: Environment frames the runs are to take, None if not known.
  is_finished: Whether all runs have taken as many, or that is not known.
  runs: Runs behind it.
  seeds: Different seeds among these.
  episodes: Episodes behind it.
"""

NO_RUN = Score(None, None, 'no run', None, None, None, True, 0, 0, 0)


def num_seeds(agent_runs):
  """Counts different seeds; a run that does not say its own has another one.

  Args:
    agent_runs: A list of `runs.Run`s.
  """
  seeds = [run.config.get('seed') for run in agent_runs]
  return len(set(seeds) - {None}) + seeds.count(None)


def seeds_text(num_runs, seeds):
  """Returns as in '3 seeds', or '3 runs of 1 seed' if some share theirs."""
  text = f'{seeds} seed' + ('' if seeds == 1 else 's')
  return text if num_runs == seeds else f'{num_runs} runs of {text}'


def count_text(agent_runs):
  """As `seeds_text`, of a list of `runs.Run`s."""
  return seeds_text(len(agent_runs), num_seeds(agent_runs))


def _standard_error(values):
  if len(values) < 2:
    return None
  return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def score(agent_runs, level):
  """Scores an agent on a level.

  Test episodes are what counts where there are any, of each run alike.

  Args:
    agent_runs: A list of `runs.Run`s, the agent's on any level.
    level: The level's name, as it is scored.

  Returns:
    A `Score`.
  """
  tested, trained, idle = [], [], []
  for run in agent_runs:
    for name in runs_lib.levels_of(run):
      if published.find(name)[1] != level:
        continue
      if len(run.tested.get(name, ())):
        tested.append((run, run.tested_frames, run.tested[name]))
      elif name in run.episodes:
        trained.append((run, run.frames, run.episodes[name].returns[-WINDOW:]))
      else:
        idle.append((run, run.frames, np.zeros([0])))
  found = tested or trained or idle
  if not found:
    return NO_RUN
  total_frames = found[0][0].config.get('total_environment_frames')
  means = [np.mean(returns) for _, _, returns in found if len(returns)]
  episodes = [returns for _, _, returns in found]
  return Score(
      mean=float(np.mean(means)) if means else None,
      standard_error=_standard_error(means if len(means) > 1 else episodes[0]),
      source='test' if tested else 'training' if trained else 'no episode',
      frames=min(frames for _, frames, _ in found),
      trained_frames=min(run.frames for run, _, _ in found),
      total_frames=total_frames,
      is_finished=all(run.frames >= (total_frames or 0)
                      for run, _, _ in found),
      runs=len(found),
      seeds=num_seeds([run for run, _, _ in found]),
      episodes=sum(map(len, episodes)))


def percentages(benchmark, means):
  """Human-normalised scores of the levels that have one.

  Args:
    benchmark: A `published.Benchmark`.
    means: A dict of level to mean return, or None.

  Returns:
    A dict of level to percent.
  """
  return {level: float(benchmark.normalize(level, means[level]))
          for level in benchmark.levels if means.get(level) is not None}


def statistics(benchmark, values):
  """A dict of name to the suite's statistic of percentages, empty for none."""
  values = list(values)
  if not values:
    return {}
  return {name: float(f(values)) for name, f in benchmark.statistics.items()}
