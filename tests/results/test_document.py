"""What a report is made of."""

import numpy as np

from scalable_agent import atari57
from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import document
from scalable_agent.results import runs


def _run(level, played=True, **config):
  episodes = {level: runs.Episodes(np.array([1, 2]), np.array([3., 4.]))}
  return runs.Run(level, dict(level_name=level, **config), 2,
                  episodes if played else {}, {}, None)


def test_an_agent_is_in_the_sections_of_its_levels():
  a, b = [_run('gym:X'), _run('pong')], [_run('gym:Y', batch_size=8)]
  atari, gym, lab = document.sections([[_run('my/level')], a, b])[:3]
  assert (atari.title, atari.benchmark.name) == ('Atari-57', 'Atari-57')
  assert tuple(atari.levels) == atari57.GAMES
  assert list(atari.agents.values()) == [a]
  assert (lab.title, lab.levels) == ('Gymnasium', ['gym:X', 'gym:Y'])
  assert list(lab.agents.values()) == [a, b]
  assert (gym.title, gym.benchmark) == ('Other levels of DeepMind Lab', None)


def test_agents_are_named_by_what_differs_within_a_suite():
  """What a CartPole run does otherwise says nothing among games."""
  make = lambda level, **config: [_run(
      level, network='shallow', use_lstm=False, **config)]
  atari, gym = document.sections([
      make('pong', learning_rate=.0006), make('qbert', learning_rate=.1),
      make('gym:X', batch_size=8)])
  assert list(atari.agents) == ['shallow', 'shallow, learning_rate=0.1']
  assert list(gym.agents) == ['shallow']


def _build(*runs_of_agents):
  return document.build(document.sections(list(runs_of_agents)))


def _headings(blocks):
  return [b.text for b in blocks_lib.of_kind(blocks, blocks_lib.Heading)]


def test_blocks():
  """Scores, curves, what has no run; then how to read it, runs, settings."""
  blocks = _build([_run('qbert', played=False), _run('gym:X'), _run('pong')])
  assert _headings(blocks) == [
      'Atari-57', 'Atari-57: learning curves', 'Atari-57: levels without a run',
      'Gymnasium', 'Gymnasium: learning curves', 'How to read this', 'Runs',
      'Atari-57: settings', 'Gymnasium: settings']
  suite, levels, idle, others, runs_table, *settings = (
      blocks_lib.of_kind(blocks, blocks_lib.Table))
  assert suite.rows[0][0] == 'deep, LSTM'
  assert [row[0] for row in levels.rows] == ['pong', 'qbert']
  assert levels.rows[1][-1].startswith('no episode finished yet')
  assert {row[0] for row in idle.rows} == set(atari57.GAMES) - {'pong', 'qbert'}
  assert others.rows == [['gym:X', '3.5 ± 0.5', 'deep, LSTM',
                          'training, 2 episodes, 1 seed, 2 frames']]
  assert [row[0] for row in runs_table.rows] == ['qbert', 'gym:X', 'pong']
  assert len(settings) == 2
  pictures = blocks_lib.of_kind(blocks, blocks_lib.Picture)
  assert [picture.level for picture in pictures] == ['pong', 'gym:X']
  assert all(p.png.startswith(b'\x89PNG') for p in pictures)


def test_curves_over_hours_stand_behind_those_over_frames():
  clock = runs.Clock(np.array([0, 2]), np.array([0., 1.]))
  blocks = _build([_run('pong')._replace(clock=clock), _run('qbert')])
  assert [picture.level for picture in blocks_lib.of_kind(
      blocks, blocks_lib.Picture)] == ['pong', 'pong by hours', 'qbert']
  (runs_table,) = [
      table for table in blocks_lib.of_kind(blocks, blocks_lib.Table)
      if table.header[0] == 'run']
  assert [row[4] for row in runs_table.rows] == ['1.00', '–']


def test_videos_of_test_episodes(tmp_path):
  """Of the levels of the section, each with its agent and seed."""
  (tmp_path / 'videos').mkdir()
  for name in ('pong', 'gym_X', 'other'):
    (tmp_path / 'videos' / f'{name}.gif').write_bytes(b'GIF')
  logdir = str(tmp_path)
  blocks = _build([_run('pong', seed=3)._replace(logdir=logdir),
                   _run('gym:X')._replace(logdir=logdir), _run('qbert')])
  found = blocks_lib.of_kind(blocks, blocks_lib.Video)
  assert [video.caption for video in found] == [
      'pong: deep, LSTM, seed 3', 'gym:X: deep, LSTM']
  assert [video.source for video in found] == [
      f'{logdir}/videos/pong.gif', f'{logdir}/videos/gym_X.gif']
  assert len({video.path for video in found}) == 2
  assert _headings(blocks)[2] == 'Atari-57: test episodes'
