"""Log directories, finished or not, and which of them are one agent."""

import dataclasses

import numpy as np
import pytest

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent.results import runs
from tests import test_report

_make = test_report.make_run


def test_episodes_are_read_by_level_in_order(tmp_path):
  logdir = _make(tmp_path / 'run', [
      (100, 'pong', -21), (200, 'breakout', 1.5), (300, 'pong', -20)])
  episodes = runs.read_episodes(logdir)
  assert set(episodes) == {'pong', 'breakout'}
  np.testing.assert_array_equal(episodes['pong'].frames, [100, 300])
  np.testing.assert_array_equal(episodes['pong'].returns, [-21., -20.])


@pytest.mark.parametrize('end', [
    '3', '300,pong', '300,pong,-2', '300,pong,-2,'])
def test_a_line_that_is_being_written_is_left_out(tmp_path, end):
  logdir = _make(tmp_path / 'run', [(100, 'pong', -21)])
  with open(logdir + '/episodes.csv', 'a') as f:
    f.write(end)
  assert len(runs.read_episodes(logdir)['pong'].frames) == 1


def test_frames_are_the_last_that_anything_tells(tmp_path):
  logdir = _make(tmp_path / 'run', [(100, 'pong', -21)], level_name='pong')
  assert runs.read(logdir).frames == 100
  with open(logdir + '/metrics.jsonl', 'w') as f:
    f.write('{"frames": 400}\n{"frames": 900}\n{"frames": 99')
  assert runs.read(logdir).frames == 900


def test_a_run_that_has_just_begun(tmp_path):
  """It has a level, and nothing else yet."""
  logdir = _make(tmp_path / 'run', [], level_name='pong')
  (tmp_path / 'run' / 'episodes.csv').unlink()
  run = runs.read(logdir)
  assert (run.episodes, run.tested, run.frames) == ({}, {}, 0)
  assert runs.levels_of(run) == ['pong']


def test_a_run_on_a_suite_has_all_of_its_levels(tmp_path):
  run = runs.read(_make(tmp_path / 'run', [(1, 'pong', 1), (2, 'qbert', 1)],
                        level_name='atari57', tested={'alien': [3.]}))
  levels = runs.levels_of(run)
  assert levels[:4] == ['pong', 'qbert', 'alien', 'amidar']
  assert sorted(levels) == sorted(atari57.GAMES)
  assert run.tested_frames == 2_000_000


def test_seeds_of_an_agent_are_put_together(tmp_path):
  """Runs that differ in level, seed or machine, and in nothing else."""
  make = lambda name, **values: runs.read(_make(tmp_path / name, [], **values))
  experts = [make('a', level_name='pong', seed=1, num_actors=32),
             make('b', level_name='pong', seed=2, num_actors=64),
             make('c', level_name='qbert', seed=1)]
  deep = make('d', level_name='pong', network='deep', batch_size=8)
  suite = make('e', level_name='atari57', network='deep',
               full_action_set=True)
  unknown = [make('f'), make('g')]
  agents = runs.group([*experts, deep, suite, *unknown])
  assert agents == {
      'shallow, batch_size=32': experts, 'deep, batch_size=8': [deep],
      'deep, multi-task, batch_size=32': [suite], 'f': [unknown[0]],
      'g': [unknown[1]]}


def test_frames_of_an_agent_are_named_in_millions(tmp_path):
  both = [runs.read(_make(tmp_path / name, [], level_name='pong',
                          total_environment_frames=frames))
          for name, frames in (('a', 200_000_000), ('b', 500_000))]
  assert list(runs.group(both)) == [
      'shallow, for 200M frames', 'shallow, for 0.5M frames']


def test_agents_of_one_name_are_told_apart(tmp_path):
  both = [runs.read(_make(tmp_path / path / 'pong', [])) for path in 'ab']
  assert list(runs.group(both)) == ['pong', f'pong ({tmp_path}/b/pong)']


def test_settings_are_fields_of_the_configuration():
  assert set(runs.SETTINGS) <= {
      field.name for field in dataclasses.fields(config_lib.Config)}


def _agents(tmp_path, **settings_by_name):
  """The names of the runs of each agent, by the agent's name."""
  made = {_make(tmp_path / name, [], level_name='pong', **settings): name
          for name, settings in settings_by_name.items()}
  return {agent: [made[run.logdir] for run in seeds]
          for agent, seeds in runs.group(map(runs.read, made)).items()}


def test_runs_with_and_without_replay_are_two_agents(tmp_path):
  assert _agents(
      tmp_path, none=dict(replay_proportion=0., replay_capacity=10_000),
      half=dict(replay_proportion=.5, replay_capacity=10_000),
      small=dict(replay_proportion=.5, replay_capacity=1000),
      again=dict(replay_proportion=.5, replay_capacity=1000, seed=2)) == {
          'shallow, replay_proportion=0.0': ['none'],
          'shallow, replay_proportion=0.5, replay_capacity=10000': ['half'],
          'shallow, replay_proportion=0.5, replay_capacity=1000':
              ['small', 'again']}


def test_a_capacity_without_replay_makes_no_agent(tmp_path):
  assert _agents(
      tmp_path, a=dict(replay_proportion=0., replay_capacity=10_000),
      b=dict(replay_proportion=0., replay_capacity=5)) == {
          'shallow': ['a', 'b']}


def test_runs_from_before_a_setting_have_its_default(tmp_path):
  """Here from before there was replay, lambda and precision."""
  assert _agents(
      tmp_path, old=dict(),
      new=dict(replay_proportion=0., replay_capacity=10_000, vtrace_lambda=1.,
               precision='float32'),
      other=dict(vtrace_lambda=.9)) == {
          'shallow, vtrace_lambda=1.0': ['old', 'new'],
          'shallow, vtrace_lambda=0.9': ['other']}


@pytest.mark.parametrize('text', ['[]', '{"levels": {"pong": {}}}',
                                  '{"levels": 3}'])
def test_broken_scores_are_named(tmp_path, text):
  logdir = _make(tmp_path / 'run', [])
  (tmp_path / 'run' / 'test_scores.json').write_text(text)
  with pytest.raises(ValueError, match='test_scores.json'):
    runs.read(logdir)
