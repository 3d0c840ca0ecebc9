"""The best checkpoint: which it is, and which one --checkpoint names."""

import json
import os
import re
import resource

import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import best_checkpoint
from scalable_agent.checkpoints import checkpoint
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.checkpoints import chosen_checkpoint
from scalable_agent.files import open_files
from scalable_agent.suites.scores import Score
from scalable_agent.training import saver as saver_lib
from tests import failing_files
from tests import learners

pytestmark = pytest.mark.usefixtures('bounded')


class _Reporter:
  """Says what score the run has."""

  def __init__(self):
    self.score = None

  def sync(self):
    pass

  def fitness(self):
    return self.score


class _Run:
  """A learner that is saved with a score after each update."""

  def __init__(self, logdir, seed=0):
    self.config = config_lib.resolve(
        dict(level_name='pong', logdir=str(logdir), keep_checkpoints=2))
    self.learner = learners.make_learner(seed=seed)
    os.makedirs(logdir, exist_ok=True)
    self._saver = saver_lib.Saver(self.config, {}, self.learner)
    self._reporter = _Reporter()
    self.saved = {}

  def save(self, value, measure='mean_return'):
    # An update, but for the time it takes to trace.
    self.learner.num_environment_frames.assign_add(80)
    self.learner.learner_steps.assign_add(1)
    for variable in self.learner.params.values():
      variable.assign_add(tf.ones_like(variable))
    self._reporter.score = value if value is None else Score(measure, value)
    self._saver.begin()
    self._saver.save(self._reporter)
    self._saver.check()
    self.saved[self.learner.frames] = {
        name: value.numpy() for name, value in self.learner.weights().items()}


def _choose(run, which, mode='test'):
  return config_lib.resolve(dict(
      level_name='pong', logdir=run.config.logdir, mode=mode, checkpoint=which))


def _find(run, which):
  return chosen_checkpoint.find(_choose(run, which))


def _refusal(run, which):
  with pytest.raises(config_lib.ConfigError) as caught:
    _find(run, which)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def _note(logdir):
  return json.loads((logdir / 'best' / 'best.json').read_text())


def test_the_best_outlives_the_newest(tmp_path):
  run = _Run(tmp_path)
  for value in (None, 1., 3., 3., 2., 2.5):
    run.save(value)
  frames = sorted(run.saved)
  assert checkpoint_files.find(str(tmp_path)) == [
      str(tmp_path / f'ckpt-{number}') for number in frames[-2:]]
  assert _note(tmp_path) == dict(
      checkpoint=f'ckpt-{frames[2]}', frames=frames[2], measure='mean_return',
      value=3., episodes_per_level=100)
  assert sorted(os.listdir(tmp_path / 'best')) == [
      'best.json', f'ckpt-{frames[2]}.data-00000-of-00001',
      f'ckpt-{frames[2]}.index']
  (path,) = _find(run, 'best')
  saved = checkpoint.restore_weights([path], learners.make_agent())
  assert (saved.frames, saved.steps) == (frames[2], 3)
  for name, value in run.saved[frames[2]].items():
    np.testing.assert_array_equal(saved.weights[name], value)
  # These are others.
  newest = checkpoint.restore_weights(
      _find(run, 'latest'), learners.make_agent())
  assert newest.frames == frames[-1]
  assert any((newest.weights[name] != value).numpy().any()
             for name, value in saved.weights.items())


def test_without_a_score_there_is_no_best(tmp_path):
  run = _Run(tmp_path)
  assert 'has no checkpoint' in _refusal(run, 'best')
  for value in (None, float('nan'), float('inf'), -float('inf')):
    run.save(value)
  assert not (tmp_path / 'best').exists()
  assert 'has no best checkpoint' in _refusal(run, 'best')
  assert '100 episodes' in _refusal(run, 'best')


def test_a_resumed_run_goes_on_from_the_best_so_far(tmp_path):
  first = _Run(tmp_path)
  first.save(3.)
  second = _Run(tmp_path, seed=1)
  assert second.learner.frames == first.learner.frames
  second.save(2.)
  assert _note(tmp_path)['frames'] == first.learner.frames
  second.save(4.)
  assert _note(tmp_path)['frames'] == second.learner.frames
  # A score of something else is no match for it.
  second.save(1., 'capped_human_normalized_score')
  assert _note(tmp_path)['value'] == 1.


@pytest.mark.parametrize('content', [
    '', '{}', '[]', '{"frames": -1, "measure": "a", "value": 9}',
    '{"frames": 80, "measure": "a", "value": NaN}',
    '{"frames": 80, "measure": 7, "value": 9}',
    '{"frames": 8, "measure": "a", "value": 9}'])
def test_a_best_that_is_damaged_is_named_and_replaced(
    tmp_path, content, caplog):
  first = _Run(tmp_path)
  first.save(3.)
  path = tmp_path / 'best' / 'best.json'
  path.write_text(content)
  assert re.match(r'--checkpoint=best cannot work: .*/best/best\.json ',
                  _refusal(first, 'best'))
  second = _Run(tmp_path)
  assert str(path) in caplog.text
  second.save(-5.)
  assert _note(tmp_path)['value'] == -5.


def test_a_best_that_cannot_be_read_now_is_not_replaced(tmp_path, monkeypatch):
  first = _Run(tmp_path)
  first.save(3.)
  with monkeypatch.context() as patched:
    failing_files.fail(patched, 'best.json')
    assert _refusal(first, 'best') == (
        f'--checkpoint=best cannot work: {tmp_path}/best/best.json: '
        'Input/output error.')
    with pytest.raises(config_lib.ConfigError, match='cannot be read: Input/'):
      _Run(tmp_path)
  assert best_checkpoint.read(str(tmp_path)).value == 3.


def test_a_new_run_does_not_inherit_the_best_of_another(tmp_path):
  """It would keep none of its own before it is better."""
  _Run(tmp_path).save(3.)
  (tmp_path / 'metrics.jsonl').write_text('{"frames": 80}\n')
  for path in tmp_path.glob('ckpt-*'):
    path.unlink()
  for found in 'metrics.jsonl, best/', 'best/':
    before = sorted(tmp_path.rglob('*'))
    with pytest.raises(config_lib.ConfigError) as caught:
      _Run(tmp_path)
    assert str(caught.value) == (
        f'--logdir={tmp_path} has logs or a best checkpoint ({found}), but no '
        'checkpoint that they go with. Bring the checkpoints back, or move '
        'these away to start afresh, or choose another --logdir.')
    assert sorted(tmp_path.rglob('*')) == before
    (tmp_path / 'metrics.jsonl').unlink(missing_ok=True)
  (tmp_path / 'best').rename(tmp_path / 'old')
  _Run(tmp_path).save(1.)
  assert _note(tmp_path)['value'] == 1.


def test_a_best_that_cannot_be_written_keeps_the_run_going(
    tmp_path, monkeypatch, caplog):
  """The one before stays, and the next save tries again."""
  run = _Run(tmp_path)
  run.save(1.)
  before = _note(tmp_path)

  def fail(*unused_args):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as patched:
    patched.setattr(best_checkpoint.whole_file, 'write', fail)
    patched.setattr(checkpoint_files, 'keep_newest', lambda *unused: None)
    run.save(2.)
  assert 'best checkpoint could not be kept' in caplog.text
  assert 'No space left on device' in caplog.text
  assert _note(tmp_path) == before
  assert _find(run, 'best')[0].endswith(f'ckpt-{before["frames"]}')
  run.save(2.)
  assert _note(tmp_path)['frames'] == run.learner.frames
  assert len(checkpoint_files.find(str(tmp_path / 'best'))) == 1


def test_a_run_is_saved_where_others_take_all_descriptors(tmp_path):
  """Connections of actor jobs, say. And those of the reserve are kept again."""
  run = _Run(tmp_path)
  run.save(0.)
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(
      resource.RLIMIT_NOFILE, (min(soft, open_files.count() + 50), hard))
  taken = []
  try:
    for value in 1., 2.:
      with pytest.raises(OSError, match='Too many open files'):
        while True:
          taken.append(os.open(os.devnull, os.O_RDONLY))
      run.save(value)
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for descriptor in taken:
      os.close(descriptor)
  assert _note(tmp_path)['frames'] == run.learner.frames


def test_what_a_killed_run_left_of_the_best_is_removed(tmp_path):
  run = _Run(tmp_path)
  run.save(1.)
  half = tmp_path / 'best' / 'ckpt-9999_temp'
  half.mkdir()
  (half / 'part').write_text('half')
  (tmp_path / 'best' / 'best.json.here.7.tmp').write_text('half')
  best_checkpoint.clean_up(str(tmp_path))
  assert len(os.listdir(tmp_path / 'best')) == 3
  assert _find(run, 'best')


# -- Choosing -----------------------------------------------------------------


def test_a_path_names_one_checkpoint(tmp_path):
  run = _Run(tmp_path)
  run.save(None)
  run.save(None)
  oldest = checkpoint_files.find(str(tmp_path))[0]
  for name in (oldest, f'{oldest}.index'):
    assert _find(run, name) == [oldest]


def test_what_is_not_there_is_refused(tmp_path):
  run = _Run(tmp_path)
  assert _refusal(run, 'latest') == (
      f'--logdir={tmp_path} has no checkpoint. Train first, or name the log '
      'directory of a run.')
  run.save(None)
  refusal = _refusal(run, 'newest')
  assert '--checkpoint=newest cannot work: there is no file newest.index' in (
      refusal)
  assert 'latest, best or the path' in refusal


def test_training_goes_on_from_the_newest_alone(tmp_path):
  with pytest.raises(config_lib.ConfigError, match='--checkpoint=best cannot'):
    _choose(_Run(tmp_path), 'best', mode='train')


def test_weights_of_a_damaged_checkpoint(tmp_path, caplog):
  """The newest that is whole serves; a single one is refused by its name."""
  run = _Run(tmp_path)
  run.save(None)
  run.save(None)
  good, bad = checkpoint_files.find(str(tmp_path))
  os.truncate(f'{bad}.data-00000-of-00001', 1000)
  agent = learners.make_agent()
  assert checkpoint.restore_weights([good, bad], agent).path == good
  assert f'{bad} cannot be restored' in caplog.text
  with pytest.raises(checkpoint.CheckpointError, match=re.escape(bad)) as e:
    checkpoint.restore_weights([bad], agent)
  assert '\n' not in str(e.value)


def test_weights_of_another_agent_are_refused(tmp_path):
  run = _Run(tmp_path)
  run.save(None)
  (path,) = checkpoint_files.find(str(tmp_path))
  with pytest.raises(checkpoint.CheckpointError, match='cannot be restored'):
    checkpoint.restore_weights([path], learners.make_agent(use_lstm=True))
