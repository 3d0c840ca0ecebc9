"""How far a run is, by its files."""

import dataclasses
import json

import pytest

from scalable_agent import config as config_lib
from scalable_agent.evaluation import scores as scores_lib
from scalable_agent.sweeps import progress


def _write_checkpoint(logdir, frames):
  (logdir / f'ckpt-{frames}.index').touch()


def test_is_trained(tmp_path):
  """By the checkpoints that are there, whatever is noted of them."""
  assert not progress.is_trained(tmp_path, 2560)
  _write_checkpoint(tmp_path, 2560)
  _write_checkpoint(tmp_path, 1280)
  (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "ckpt-1280"\n')
  assert progress.is_trained(tmp_path, 2560)
  assert not progress.is_trained(tmp_path, 2561)


def test_is_evaluated(tmp_path):
  """As the run itself would find."""
  assert progress.is_evaluated(tmp_path, 0)
  assert progress.is_evaluated(tmp_path, 1000)
  _write_checkpoint(tmp_path, 2560)
  assert progress.is_evaluated(tmp_path, 0)
  assert progress.is_evaluated(tmp_path, 3000)
  assert not progress.is_evaluated(tmp_path, 1000)
  path = tmp_path / 'evaluations.csv'
  path.write_text('frames,level,episode_return,episode_frames\n'
                  '1990,pong,2,4\n')
  assert not progress.is_evaluated(tmp_path, 1000)
  with path.open('a') as f:
    f.write('2010,pong,2,4\n')
  assert progress.is_evaluated(tmp_path, 1000)


@pytest.mark.parametrize('text, expected', [
    ('{"test": TEST, "levels": {"pong": {"num_episodes": 10}}}', True),
    ('{"test": TEST, "levels": {"pong": {"num_episodes": 9}}}', False),
    ('{"levels": {"pong": {"num_episodes": 10}}}', False),
    ('{"test": TEST, "levels": {}}', False), ('{"test": TEST, ', False)])
def test_is_tested(tmp_path, text, expected):
  config = config_lib.resolve(dict(
      logdir=str(tmp_path), level_name='pong', mode='test'))
  assert not progress.is_tested(config)
  _write_checkpoint(tmp_path, 80)
  (tmp_path / 'test_scores.json').write_text(
      text.replace('TEST', json.dumps(scores_lib.identity(config))))
  assert progress.is_tested(config) == expected
  # What is to be filmed too is not done without its film.
  config = dataclasses.replace(config, video_dir=str(tmp_path))
  assert not progress.is_tested(config)
  (tmp_path / 'pong.gif').touch()
  assert progress.is_tested(config) == expected


def test_another_test_is_not_tested_yet(tmp_path):
  """Of other images, another seed, or another run of the same frames."""
  config = config_lib.resolve(dict(
      logdir=str(tmp_path), level_name='pong', mode='test'))
  for frames in 40, 80:
    _write_checkpoint(tmp_path, frames)
  scores = dict(frames=80, test=scores_lib.identity(config),
                levels=dict(pong=dict(num_episodes=10)))
  # If the newest checkpoint is damaged, an older one is tested.
  for frames in 80, 40:
    (tmp_path / 'test_scores.json').write_text(
        json.dumps(dict(scores, frames=frames)))
    assert progress.is_tested(config)
  for changes in (dict(seed=9), dict(dataset_path='/images'),
                  dict(checkpoint=str(tmp_path / 'ckpt-40'))):
    assert not progress.is_tested(dataclasses.replace(config, **changes))
  _write_checkpoint(tmp_path, 120)
  assert not progress.is_tested(config)
  (tmp_path / 'ckpt-120.index').unlink()
  assert progress.is_tested(config)
  (tmp_path / 'ckpt-80.index').write_text('other checksums')
  assert not progress.is_tested(config)
  (tmp_path / 'ckpt-80.index').unlink()
  (tmp_path / 'ckpt-40.index').unlink()
  assert not progress.is_tested(config)


def test_progress_is_read_from_the_ends(tmp_path):
  """Of long files too, and while a line is being written."""
  assert progress.read(tmp_path) == (None, None, None)
  (tmp_path / 'metrics.jsonl').write_text(
      '{"frames": 10, "fps": 1.5}\n' * 9999 +
      '{"frames": 20, "fps": 2.5}\n{"frames": 30, "f')
  (tmp_path / 'episodes.csv').write_text(
      'frames,level,episode_return,episode_frames\n' +
      '1,pong,99,4\n' * 9999 + '1,pong,1,4\n' * 50 + '1,pong,3,4\n' * 50 +
      '2,pong,7')
  assert progress.read(tmp_path) == (20, 2.5, 2.)


def test_the_last_episodes_are_those_of_a_range_of_frames(tmp_path):
  path = tmp_path / 'episodes.csv'
  assert progress.last_episodes(tmp_path, 5, 0) == []
  path.write_text('frames,level,episode_return,episode_frames\n' + ''.join(
      f'{i},pong,{"nan" if i == 19_000 else i},4\n' for i in range(20_000)))

  def frames(*args):
    return [episode.frames
            for episode in progress.last_episodes(tmp_path, *args)]

  assert frames(3, 0) == [19_997, 19_998, 19_999]
  assert frames(3, 19_998) == [19_999]
  # Far from the end, which takes more than one look.
  assert frames(3, 0, 100) == [98, 99, 100]
  assert frames(9, 98, 100) == [99, 100]
  assert frames(2, 0, 19_000) == [18_998, 18_999]
  assert len(frames(10 ** 6, -1)) == 19_999
