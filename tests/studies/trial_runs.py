"""Writes the directories of runs of a sweep."""

import json


def write(root, name, returns, variant=(), sample=(), seed=1,
          level='gym:CartPole-v1', total=1000, marked=True, updates=None,
          sweep_seed=None, **settings):
  """Writes a run whose episodes end at equal distances up to `total` frames.

  Args:
    root: A `pathlib.Path`.
    name: Of the directory.
    returns: A list of floats, or of pairs of level and float.
    variant: A list of dicts.
    sample: A dict.
    seed: An int.
    level: --level_name.
    total: --total_environment_frames.
    marked: Whether the directory says that it is of a sweep.
    updates: Those it has made by its log; None for no log.
    sweep_seed: The seed of its sweep, if its own is another.
    **settings: Others of the configuration.

  Returns:
    Its path, a string.
  """
  logdir = root / name
  logdir.mkdir(parents=True)
  (logdir / 'config.json').write_text(json.dumps(dict(
      settings, level_name=level, seed=seed, total_environment_frames=total)))
  if marked:
    (logdir / 'sweep.json').write_text(json.dumps(dict(
        variant=list(variant), sample=dict(sample), sweep_seed=sweep_seed)))
  if updates is not None:
    (logdir / 'metrics.jsonl').write_text(json.dumps(dict(
        frames=total, learner_steps=updates)) + '\n')
  lines = ['frames,level,episode_return,episode_frames']
  for i, value in enumerate(returns):
    name, value = value if isinstance(value, tuple) else (level, value)
    lines.append(f'{total * (i + 1) // len(returns)},{name},{value},10')
  (logdir / 'episodes.csv').write_text('\n'.join(lines) + '\n')
  return str(logdir)
