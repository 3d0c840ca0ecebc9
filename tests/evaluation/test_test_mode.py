"""Test mode: every level of a run, scores of the suite, videos."""

import dataclasses
import json
import os

from absl import flags
from absl.testing import flagsaver
import numpy as np
from PIL import Image
from PIL import ImageSequence
import pytest

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import suites
from scalable_agent.assembly import agent as agent_assembly
from scalable_agent.assembly import devices as devices_assembly
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.checkpoints import checkpoint
from scalable_agent.config import flags as config_flags
from scalable_agent.environments.engines import atari
from scalable_agent.evaluation import test_mode
from scalable_agent.files import whole_file
from scalable_agent.process import signals
from scalable_agent.sweeps import progress

pytestmark = pytest.mark.usefixtures('bounded')


class ShortGame(environments.Pool):
  """Games of 3 steps. One of game i and environment j returns 100 i + j."""

  def __init__(self, level_name, num_environments, seed, batch_size=0,
               colour=False, width=84, height=84, **unused_kwargs):
    self.num_environments = num_environments
    self.num_actions = 18
    self.observation_spec = (environments.ArraySpec(
        (height, width, 3 if colour else 4), np.dtype(np.uint8)),)
    self.level_names = [level_name] * num_environments
    self._ids = np.arange(num_environments, dtype=np.int32)
    self._return = (100. * atari57.GAMES.index(level_name) + self._ids).astype(
        np.float32)
    self._step = 0

  def recv(self):
    over = self._step > 0 and self._step % 3 == 0
    size = self.num_environments
    (spec,) = self.observation_spec
    return environments.PoolOutput(
        self._ids, environments.StepOutput(
            np.zeros([size], np.float32),
            environments.StepOutputInfo(
                self._return, np.full([size], 3, np.int32)),
            np.full([size], over or not self._step),
            (np.full((size,) + spec.shape, self._step, np.uint8),)),
        is_first=np.full([size], not self._step), is_last=np.full([size], over))

  def send(self, ids, actions):
    assert len(actions) == self.num_environments
    self._step += 1

  def close(self):
    pass


def _config(logdir, **values):
  values.update(logdir=logdir, mode='test')
  with flagsaver.flagsaver():
    flags.FLAGS(['experiment'] + [
        f'--{name}={value}' for name, value in values.items()])
    return config_lib.resolve(config_flags.given())


def _save(config):
  """Leaves a run that has not learned anything yet."""
  facts = suites.find_facts(config)
  agent = agent_assembly.create_agent(config, facts)
  learner = learner_assembly.create_learner(
      config, agent,
      devices_assembly.Devices(['/cpu:0'], '/cpu:0', False))
  checkpoint.Checkpointer(
      config.logdir, learner, config.to_json(), config.keep_checkpoints).save()


def test_atari57_tests_every_game_and_scores_the_suite(tmp_path, monkeypatch):
  monkeypatch.setattr(atari, 'AtariPool', ShortGame)
  config = _config(
      tmp_path, level_name='atari57', test_num_episodes=3, network='shallow',
      width=36, height=36, video_dir=tmp_path / 'videos')
  _save(config)
  scores = test_mode.test(config)
  assert json.loads((tmp_path / 'test_scores.json').read_text()) == scores
  assert list(scores['levels']) == list(atari57.GAMES)
  means = {}
  for i, (game, level) in enumerate(scores['levels'].items()):
    assert sorted(level['episode_returns']) == [100 * i + j for j in range(3)]
    means[game] = [100 * i + 1]
  assert scores['mean_human_normalized_score'] == pytest.approx(
      atari57.compute_human_normalized_score(means))
  assert scores['median_human_normalized_score'] == pytest.approx(
      atari57.compute_human_normalized_score(means, statistic=np.median))
  assert scores['capped_human_normalized_score'] == pytest.approx(
      atari57.compute_human_normalized_score(means, per_level_cap=100))
  assert {f'{game}.gif' for game in atari57.GAMES} == set(
      os.listdir(tmp_path / 'videos'))
  with Image.open(tmp_path / 'videos' / 'zaxxon.gif') as gif:
    assert gif.size == (160, 210)
    assert gif.n_frames == 3


def test_a_test_that_was_ended_goes_on_with_the_rest(
    tmp_path, monkeypatch, capsys):
  """What is known of an earlier one stays until all is there."""
  games = []

  class Dies(ShortGame):

    def __init__(self, *args, **kwargs):
      super().__init__(*args, **kwargs)
      games.append(self.level_names[0])  # The first finds out the facts.

    def recv(self):
      if self.level_names[0] == 'asterix' and games.count('asterix') == 1:
        raise environments.PoolError('asterix died.')
      return super().recv()

  monkeypatch.setattr(atari, 'AtariPool', Dies)
  config = _config(tmp_path, level_name='atari57', test_num_episodes=2,
                   network='shallow', width=36, height=36)
  _save(config)
  with pytest.raises(environments.PoolError, match='asterix died'):
    test_mode.test(config)
  assert not (tmp_path / 'test_scores.json').exists()
  (unfinished,) = tmp_path.glob('test_scores.unfinished-*.json')
  before = json.loads(unfinished.read_text())['levels']
  assert list(before) == ['alien', 'amidar', 'assault']
  source, *lines = capsys.readouterr().out.splitlines()
  assert 'Table C.1' in source
  assert [line.split()[:2] for line in lines] == [
      ['level', 'mean'], ['alien', '0.5'], ['amidar', '100.5'],
      ['assault', '200.5']]
  # A test with other flags is another test.
  for changed in (dict(test_num_episodes=3), dict(seed=9),
                  dict(precision='bfloat16'), dict(dataset_path='/images'),
                  # Of the levels that were played there are no films.
                  dict(video_dir=str(tmp_path / 'videos'))):
    tester = test_mode._Tester(
        dataclasses.replace(config, **changed), signals.Stop())
    assert tester.unfinished.read() == {}
  tester = test_mode._Tester(config, signals.Stop())
  assert list(tester.unfinished.read()) == list(before)
  # And so is one of other weights of the same frame.
  other = tmp_path / 'other'
  other.mkdir()
  _save(dataclasses.replace(config, logdir=str(other), seed=2))
  tester = test_mode._Tester(dataclasses.replace(
      config, checkpoint=str(other / 'ckpt-0')), signals.Stop())
  assert tester.unfinished.read() == {}
  # Another test is played to its end meanwhile.
  test_mode.test(dataclasses.replace(config, seed=9))
  capsys.readouterr()
  games.clear()
  games.append('asterix')
  scores = test_mode.test(config)
  assert games[2:] == list(atari57.GAMES[3:])
  assert {name: scores['levels'][name] for name in before} == before
  assert list(scores['levels']) == list(atari57.GAMES)
  assert json.loads((tmp_path / 'test_scores.json').read_text()) == scores
  assert len(capsys.readouterr().out.splitlines()) == 2 + 57
  # A test that was done is made again, as a whole.
  assert not unfinished.exists()
  games.clear()
  games.append('asterix')
  test_mode.test(config)
  assert games[2:] == list(atari57.GAMES)


def test_what_an_environment_of_gymnasium_renders_is_recorded(tmp_path):
  level_name = 'gym:tests.environments.rendering:Rendering-v0'
  config = _config(tmp_path, level_name=level_name, test_num_episodes=2,
                   environment_threads=1, video_dir=tmp_path / 'videos')
  _save(config)
  scores = test_mode.test(config)
  assert scores['levels'][level_name]['mean'] == 5.
  (path,) = (tmp_path / 'videos').iterdir()
  with Image.open(path) as gif:
    assert (gif.size, gif.n_frames) == ((120, 100), 5)
    colours = [image.convert('RGB').getpixel((60, 50))
               for image in ImageSequence.Iterator(gif)]
  assert colours == [(50 * step, 0, 0) for step in range(5)]


def test_videos_that_cannot_be_are_refused_before_any_episode(tmp_path):
  for name in ('vector', 'image'):
    (tmp_path / name).mkdir()
  config = _config(tmp_path / 'vector', level_name='synthetic:size=3',
                   video_dir=tmp_path / 'videos')
  _save(config)
  with pytest.raises(config_lib.ConfigError, match=(
      'cannot work: synthetic:size=3 cannot be shown: .* are no images. Leave '
      'it out.$')):
    test_mode.test(config)
  (tmp_path / 'file').write_text('')
  config = _config(tmp_path / 'image', level_name='synthetic:',
                   network='shallow', video_dir=tmp_path / 'file')
  _save(config)
  with pytest.raises(config_lib.ConfigError, match='cannot be written'):
    test_mode.test(config)
  config = dataclasses.replace(config, video_dir='/proc')
  with pytest.raises(config_lib.ConfigError,
                     match='^--video_dir=/proc cannot be written: '):
    test_mode.test(config)
  assert not list(tmp_path.glob('*/test_scores*'))


def test_scores_that_cannot_be_written_are_refused_before_any_episode(
    tmp_path, monkeypatch):
  config = _config(tmp_path, level_name='synthetic:', network='shallow')
  _save(config)
  monkeypatch.setattr(whole_file, 'temporary_name', lambda _: str(tmp_path))
  monkeypatch.delattr(test_mode.play, 'play_level')
  with pytest.raises(config_lib.ConfigError, match=(
      f'^--logdir={tmp_path} cannot be written: Is a directory')):
    test_mode.test(config)


def test_a_test_of_an_older_checkpoint_than_the_damaged_newest_is_one(
    tmp_path, monkeypatch):
  """Until there is another, also if that is of the same frame."""
  monkeypatch.setattr(atari, 'AtariPool', ShortGame)
  config = _config(tmp_path, level_name='pong', test_num_episodes=2,
                   network='shallow', width=36, height=36)
  _save(config)
  (tmp_path / 'ckpt-800.index').write_text('damaged')
  assert test_mode.test(config)['frames'] == 0
  assert progress.is_tested(config)
  (tmp_path / 'ckpt-800.index').unlink()
  assert not progress.is_tested(config)
  test_mode.test(config)
  assert progress.is_tested(config)
  _save(dataclasses.replace(config, seed=2))
  assert not progress.is_tested(config)


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
  with pytest.raises(config_lib.ConfigError, match='has no checkpoint'):
    test_mode.test(_config(tmp_path, level_name='pong'))
