"""What a report is made of."""

import numpy as np

from scalable_agent import atari57
from scalable_agent.results import document
from scalable_agent.results import runs
from scalable_agent.results import tables


def _run(level, played=True, **config):
  episodes = {level: runs.Episodes(np.array([1, 2]), np.array([3., 4.]))}
  return runs.Run(level, dict(level_name=level, **config), 2,
                  episodes if played else {}, {}, None)


def test_an_agent_is_in_the_sections_of_its_levels():
  a, b = [_run('gym:X'), _run('pong')], [_run('gym:Y')]
  atari, others = document.sections({'a': a, 'b': b})
  assert atari.benchmark.name == 'Atari-57'
  assert tuple(atari.levels) == atari57.GAMES
  assert atari.agents == {'a': a}
  assert (others.benchmark, others.levels) == (None, ['gym:X', 'gym:Y'])
  assert others.agents == {'a': a, 'b': b}


def test_blocks():
  """Every level has a picture, or is named as having none."""
  blocks = document.build(
      {'a': [_run('qbert', played=False), _run('gym:X')]})
  assert [b.text for b in blocks if isinstance(b, document.Heading)] == [
      'Runs', 'Atari-57', 'Other levels', 'Learning curves']
  runs_table, suite, levels, others = (
      b for b in blocks if isinstance(b, tables.Table))
  assert [row[0] for row in runs_table.rows] == ['qbert', 'gym:X']
  assert suite.rows[0][:2] == ['a', '–']
  assert len(levels.rows) == 57
  assert others.rows == [['gym:X', '3.5 ± 0.5',
                          'training, 2 episodes, 1 seed, 2e-06M frames']]
  (picture,) = (b for b in blocks if isinstance(b, document.Picture))
  assert picture.level == 'gym:X' and picture.png.startswith(b'\x89PNG')
  for game in atari57.GAMES:
    assert game in blocks[-1].text
