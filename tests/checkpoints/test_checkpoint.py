"""Checkpoints of a learner: whole, corrupt, and of others."""

import collections
import glob
import logging as python_logging
import os
import resource
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tree

from scalable_agent import networks
from scalable_agent.checkpoints import checkpoint
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.environments import ArraySpec
from tests import learners

_NUM_ACTIONS = learners.NUM_ACTIONS
_batch = learners.make_batch
_make_learner = learners.make_small_learner

pytestmark = pytest.mark.usefixtures('bounded')


def _step(learner, batch):
  learner.step(learner.place(batch))


def _locals(learner, replica):
  """All variables but the counters, as one replica has them."""
  return [getattr(v, 'values', [v])[replica].numpy()
          for v in learner.variables()[:-2]]


def _assert_equal(actual, expected):
  tree.map_structure(np.testing.assert_array_equal, actual, expected)


def _state(learner):
  return _locals(learner, 0), learner.frames, learner.steps


def _train_and_save(logdir, num_saves, keep=3):
  """Saves after each of some updates; yields the state at each save."""
  learner = _make_learner()
  os.makedirs(logdir, exist_ok=True)
  checkpointer = checkpoint.Checkpointer(str(logdir), learner, '{"a": 1}', keep)
  for i in range(num_saves):
    _step(learner, _batch(i))
    checkpointer.save()
    assert os.path.exists(checkpoint_files.path_of(
        str(logdir), learner.frames) + '.index')
    yield _state(learner)


@pytest.fixture(scope='module')
def copy_run(tmp_path_factory):
  """A function that makes a log directory as a run leaves it.

  It takes the directory and a number of saves, up to 3, and returns the state
  at each. The run is made once.
  """
  logdir = tmp_path_factory.mktemp('run')
  states, copies = [], []
  for state in _train_and_save(logdir, 3):
    states.append(state)
    copies.append(tmp_path_factory.mktemp('copy'))
    shutil.copytree(logdir, copies[-1], dirs_exist_ok=True)

  def copy(target, num_saves):
    shutil.copytree(copies[num_saves - 1], target, dirs_exist_ok=True)
    return states[:num_saves]

  return copy


def _restore(logdir, learner=None):
  learner = learner or _make_learner(seed=99)
  path = checkpoint.Checkpointer(str(logdir), learner, '{"a": 2}').restore()
  return learner, path


def _data_files(logdir):
  """Oldest first."""
  return sorted(glob.glob(os.path.join(logdir, '*.data-*')),
                key=lambda path: int(path.split('-')[-4].split('.')[0]))


def test_checkpoint_round_trip(tmp_path, copy_run):
  """Weights, slots and counters come back bit by bit, and training goes on."""
  states = copy_run(tmp_path, 2)
  learner, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(learner), states[-1])
  other, _ = _restore(tmp_path)
  for some in (learner, other):
    _step(some, _batch(7))
  _assert_equal(_state(learner), _state(other))
  assert learner.frames == 240


def test_checkpoint_changes_number_of_replicas(tmp_path, copy_run, mirrored):
  """Two replicas take up what one left, both of them all of it, and back."""
  states = copy_run(tmp_path, 1)
  two, _ = _restore(tmp_path, _make_learner(strategy=mirrored, seed=99))
  for replica in range(2):
    _assert_equal(_locals(two, replica), states[-1][0])
  _step(two, _batch(5))
  checkpoint.Checkpointer(str(tmp_path), two, '').save()
  one, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(one), _state(two))


def test_nothing_to_restore(tmp_path):
  """None says that there is no checkpoint, and the learner stays as it was."""
  learner = _make_learner()
  before = _state(learner)
  _, path = _restore(tmp_path / 'not there', learner)
  assert path is None
  _assert_equal(_state(learner), before)


def _truncate(path):
  os.truncate(path, os.path.getsize(path) // 2)


def _flip_bytes(path):
  with open(path, 'r+b') as f:
    f.seek(os.path.getsize(path) // 2)
    byte = f.read(1)[0]
    f.seek(-1, os.SEEK_CUR)
    f.write(bytes([byte ^ 0xff]))


def _remove_index(path):
  os.remove(path.split('.data-')[0] + '.index')


@pytest.mark.parametrize(
    'corrupt', [_truncate, _flip_bytes, os.remove, _remove_index])
def test_corrupt_checkpoint_falls_back_to_the_one_before(
    tmp_path, copy_run, caplog, corrupt):
  """All of the state is the older one's, with a warning that names the file."""
  states = copy_run(tmp_path, 3)
  corrupt(_data_files(tmp_path)[-1])
  with caplog.at_level(python_logging.WARNING):
    learner, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(learner), states[-2])
  warnings = [r.getMessage() for r in caplog.records
              if r.levelno == python_logging.WARNING]
  assert any('-240 cannot be restored' in w for w in warnings), warnings


def test_training_goes_on_after_a_corrupt_checkpoint(tmp_path, copy_run):
  """The checkpoint that was corrupt is written anew and can be restored."""
  copy_run(tmp_path, 3)
  _truncate(_data_files(tmp_path)[-1])
  learner = _make_learner(seed=99)
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  checkpointer.restore()
  _step(learner, _batch(11))
  checkpointer.save()
  assert checkpointer.newest_frames == 240
  restored, path = _restore(tmp_path)
  assert path.endswith('-240')
  _assert_equal(_state(restored), _state(learner))


@pytest.mark.parametrize('error', [
    tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.UnknownError])
def test_a_machine_that_cannot_read_now_damages_nothing(
    tmp_path, copy_run, monkeypatch, error):
  """A run on an older checkpoint would lose what came after it."""
  copy_run(tmp_path, 2)
  before = sorted(os.listdir(tmp_path))
  restore = tf.train.Checkpoint.restore

  def fail(self, path):
    if path.endswith('-160'):
      raise error(None, None, 'Stale file handle')
    return restore(self, path)

  monkeypatch.setattr(tf.train.Checkpoint, 'restore', fail)
  # Scores of the older one would pass for those of the newest.
  read_weights = lambda: checkpoint.restore_weights(
      [str(tmp_path / f'ckpt-{frames}') for frames in (80, 160)],
      learners.SmallAgent())
  for read in lambda: _restore(tmp_path), read_weights:
    with pytest.raises(checkpoint.CheckpointError) as caught:
      read()
    assert str(caught.value) == (
        f'{tmp_path}/ckpt-160 cannot be read now, and may be whole: Stale file '
        'handle. Start again once that is repaired, or move its files away to '
        'go without it.')
  assert sorted(os.listdir(tmp_path)) == before


def test_two_corrupt_checkpoints(tmp_path, copy_run):
  states = copy_run(tmp_path, 3)
  for path in _data_files(tmp_path)[1:]:
    _flip_bytes(path)
  learner, path = _restore(tmp_path)
  assert path.endswith('-80')
  _assert_equal(_state(learner), states[0])


def test_all_checkpoints_corrupt(tmp_path, copy_run):
  """An error that names them: a run must not start afresh over another."""
  copy_run(tmp_path, 2)
  for path in _data_files(tmp_path):
    _truncate(path)
  with pytest.raises(checkpoint.CheckpointError, match='-80.*-160.*--logdir'):
    _restore(tmp_path)


def test_checkpoint_of_another_network(tmp_path):
  """Weights of other shapes, or missing ones, are an error."""
  make = learners.make_learner
  checkpoint.Checkpointer(str(tmp_path), make(), '').save()
  with pytest.raises(checkpoint.CheckpointError):
    _restore(tmp_path, make(learners.make_agent(use_lstm=True)))
  wider = networks.Agent(
      _NUM_ACTIONS + 1, (ArraySpec((4,), np.float32),), 'vector', False)
  with pytest.raises(checkpoint.CheckpointError):
    _restore(tmp_path, make(wider))


def test_checkpoint_that_lacks_something(tmp_path):
  """Slots that a checkpoint does not have must not silently start afresh."""
  learner = _make_learner()
  without_slots = tf.train.Checkpoint(
      params=learner.params, config=tf.Variable(''),
      num_environment_frames=learner.num_environment_frames,
      learner_steps=learner.learner_steps)
  tf.train.CheckpointManager(without_slots, str(tmp_path), 3).save()
  with pytest.raises(checkpoint.CheckpointError):
    _restore(tmp_path)


@pytest.mark.parametrize('content', [
    None, b'', b'\0' * 300, b'model_checkpoint_path: "ckp', b'\xff{}\n',
    b'model_checkpoint_path: "ckpt-80"\n', b'model_checkpoint_path: 7\n'])
def test_the_file_called_checkpoint_decides_nothing(
    tmp_path, copy_run, content):
  """It may be gone, damaged, or name another checkpoint."""
  states = copy_run(tmp_path, 2)
  if content is None:
    os.remove(tmp_path / 'checkpoint')
  else:
    (tmp_path / 'checkpoint').write_bytes(content)
  learner, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(learner), states[-1])
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  _step(learner, _batch(4))
  checkpointer.save()
  assert checkpointer.newest_frames == 240
  assert tf.train.latest_checkpoint(str(tmp_path)).endswith('-240')


def test_any_damage_gives_the_newest_whole_checkpoint(tmp_path, copy_run):
  """Or an error, if there is none; never another state, never a new start."""
  logdir = tmp_path / 'run'
  states = copy_run(logdir, 2)
  by_frames = {80: states[0], 160: states[1]}
  learner = _make_learner()
  random = np.random.default_rng(1)
  names = sorted(os.listdir(logdir))
  contents = {name: (logdir / name).read_bytes() for name in names}
  restored = collections.Counter()
  for _ in range(60):
    damaged = random.choice(names, random.integers(1, 5), replace=False)
    for name, content in contents.items():
      (logdir / name).write_bytes(content)
    for name in damaged:
      _damage(logdir / name, random)
    whole = [frames for frames in by_frames if not any(
        name.startswith(f'ckpt-{frames}.') for name in damaged)]
    try:
      path = checkpoint.Checkpointer(str(logdir), learner, '').restore()
    except checkpoint.CheckpointError:
      assert not whole, damaged
      restored['none'] += 1
      continue
    # A bit in what TensorFlow does not read may have been hit.
    assert path and learner.frames >= max(whole, default=0), damaged
    _assert_equal(_state(learner), by_frames[learner.frames])
    restored[learner.frames] += 1
  assert min(restored['none'], restored[80], restored[160]) >= 5, restored


def _damage(path, random):
  content = bytearray(path.read_bytes())
  kind = random.integers(5)
  if kind == 0:
    os.remove(path)
    return
  if kind == 1:
    content = content[:random.integers(len(content))]
  elif kind == 2:
    content = bytes(len(content))
  elif kind == 3:
    content = b''
  else:
    for _ in range(random.integers(1, 20)):
      content[random.integers(len(content))] ^= 1 << random.integers(8)
  path.write_bytes(content)


def test_damaged_checkpoints_are_set_aside(tmp_path, copy_run):
  """What goes on from an older one must not be older than a damaged one."""
  copy_run(tmp_path, 3)
  for path in _data_files(tmp_path)[1:]:
    _flip_bytes(path)
  learner = _make_learner(seed=99)
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '', keep=2)
  checkpointer.restore()
  _step(learner, _batch(5))  # On to the frames of a damaged one.
  checkpointer.save()
  assert sorted(path.name for path in tmp_path.glob('*ckpt*.index')) == [
      'ckpt-160.index', 'ckpt-80.index', 'damaged-ckpt-160.index',
      'damaged-ckpt-240.index']
  restored, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(restored), _state(learner))


def test_damaged_checkpoints_are_not_among_those_kept(tmp_path, copy_run):
  """Whether what is saved next is newer than they are, or nothing is."""
  states = copy_run(tmp_path, 3)
  for path in _data_files(tmp_path)[1:]:
    _flip_bytes(path)
  learner = _make_learner(seed=99)
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '', keep=2)
  checkpointer.restore()
  # A run saves when it begins, before it has made an update.
  checkpointer.save()
  assert checkpointer.newest_frames == 80
  assert _restore(tmp_path)[1].endswith('-80')
  for i in range(3):
    _step(learner, _batch(i))
  checkpointer.save()
  assert checkpointer.newest_frames == 320
  os.remove(tmp_path / 'ckpt-320.index')
  restored, path = _restore(tmp_path)
  assert path.endswith('-80')
  _assert_equal(_state(restored), states[0])


@pytest.mark.parametrize('fail', ['mkdir', 'fsync', 'replace'])
def test_a_save_that_fails_leaves_all_as_it_was(
    tmp_path, copy_run, monkeypatch, fail):
  """The next one, when there is room again, succeeds."""
  states = copy_run(tmp_path, 2)
  learner, _ = _restore(tmp_path)
  before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  _step(learner, _batch(3))

  def raise_error(*unused_args):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(os, fail, raise_error)
    for _ in range(2):
      with pytest.raises(checkpoint.WRITE_ERRORS):
        checkpointer.save()
  assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
  other, _ = _restore(tmp_path)
  _assert_equal(_state(other), states[-1])
  checkpointer.save()
  assert checkpointer.newest_frames == 240
  other, _ = _restore(tmp_path)
  _assert_equal(_state(other), _state(learner))


def test_what_failed_after_the_weights_were_written_is_done_the_next_time(
    tmp_path, monkeypatch):
  """A run that stops at once leaves nothing half written either."""
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '', keep=1)
  checkpointer.save()
  _step(learner, _batch(0))
  replace = os.replace

  def fail_for_the_note(source, target):
    if os.path.basename(target) == 'checkpoint':
      raise OSError(2, 'No such file or directory')
    replace(source, target)

  with monkeypatch.context() as patch:
    patch.setattr(os, 'replace', fail_for_the_note)
    with pytest.raises(OSError):
      checkpointer.save()
  checkpointer.save()
  assert {path.name for path in tmp_path.iterdir()} == {
      'checkpoint', 'ckpt-80.index', 'ckpt-80.data-00000-of-00001'}
  assert 'ckpt-80' in (tmp_path / 'checkpoint').read_text()


def test_tensorflow_that_cannot_write_is_such_a_failure(tmp_path):
  """Its own errors are among those that a save may raise."""
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(
      str(tmp_path / 'gone'), learner, '')
  with pytest.raises(checkpoint.WRITE_ERRORS):
    checkpointer.save()
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
  try:
    with pytest.raises(checkpoint.WRITE_ERRORS):
      checkpoint.Checkpointer(str(tmp_path), learner, '').save()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert list(tmp_path.iterdir()) == []


def test_a_save_that_was_killed_while_it_moved_the_files_is_finished(
    tmp_path, copy_run):
  """Or removed, if it had not begun to."""
  states = copy_run(tmp_path, 2)
  for frames in 80, 160:
    directory = tmp_path / f'ckpt-{frames}_temp'
    directory.mkdir()
    for path in tmp_path.glob(f'ckpt-{frames}.*'):
      if frames == 80 or path.suffix == '.index':
        path.rename(directory / path.name)
  checkpoint_files.clean_up(str(tmp_path))
  learner, path = _restore(tmp_path)
  assert path.endswith('-160')
  _assert_equal(_state(learner), states[-1])
  assert not list(tmp_path.glob('*_temp')) and not list(tmp_path.glob('*-80*'))


def _commit(path, content):
  with checkpoint_files.committing(path) as temporary:
    for ending in '.data-00000-of-00001', '.index':
      with open(temporary + ending, 'w') as f:
        f.write(content)


@pytest.mark.parametrize('finish', [
    lambda path: checkpoint_files.clean_up(os.path.dirname(path)),
    lambda path: pytest.raises(TypeError, _commit, path, None)])
def test_a_move_that_failed_half_way_is_finished(tmp_path, monkeypatch, finish):
  """By the next start, and by the next save, even if that fails in turn."""
  path = checkpoint_files.path_of(str(tmp_path), 80)
  _commit(path, 'old')
  replace = os.replace

  def fail_for_the_index(source, target):
    if target.endswith('.index'):
      raise OSError(5, 'Input/output error')
    replace(source, target)

  with monkeypatch.context() as patch:
    patch.setattr(os, 'replace', fail_for_the_index)
    with pytest.raises(OSError, match='Input/output error'):
      _commit(path, 'new')
  finish(path)
  assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
      'ckpt-80.data-00000-of-00001': 'new', 'ckpt-80.index': 'new'}


@pytest.mark.parametrize('keep', [1, 2])
def test_keeps_the_last_few(tmp_path, keep):
  """Older ones go, also those of a run before."""
  list(_train_and_save(tmp_path, 3, keep))
  numbers = lambda: [int(path.split('-')[-4].split('.')[0])
                     for path in _data_files(tmp_path)]
  assert numbers() == [80, 160, 240][-keep:]
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '', keep)
  checkpointer.restore()
  _step(learner, _batch(3))
  checkpointer.save()
  assert numbers() == [80, 160, 240, 320][-keep:]


def test_unchanged_state_is_not_saved_again(tmp_path):
  """Neither after a save nor after a restore."""
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  _step(learner, _batch(0))
  checkpointer.save()
  (path,) = checkpoint_files.find(str(tmp_path))
  modified = os.stat(path + '.index').st_mtime_ns
  checkpointer.save()
  other = checkpoint.Checkpointer(str(tmp_path), _make_learner(), '')
  other.restore()
  other.save()
  assert checkpoint_files.find(str(tmp_path)) == [path]
  assert os.stat(path + '.index').st_mtime_ns == modified


def test_what_somebody_removed_is_saved_again(tmp_path):
  """Though there is nothing new since: the run has it all."""
  learner = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), learner, '')
  _step(learner, _batch(0))
  checkpointer.save()
  for path in tmp_path.glob('ckpt-*'):
    path.unlink()
  checkpointer.save()
  assert (tmp_path / 'ckpt-80.index').exists()
  restored, _ = _restore(tmp_path)
  _assert_equal(_state(restored), _state(learner))


def test_updates_without_new_frames_are_saved(tmp_path):
  """After a save and after a restore."""
  first = _make_learner()
  checkpointer = checkpoint.Checkpointer(str(tmp_path), first, '')
  _step(first, _batch(0))
  checkpointer.save()
  second = _make_learner(seed=99)
  other = checkpoint.Checkpointer(str(tmp_path), second, '')
  for learner, its in (first, checkpointer), (second, other):
    if its is other:
      its.restore()
    frames = learner.frames
    _step(learner, _batch(1))
    learner.num_environment_frames.assign(frames)
    its.save()
    assert its.newest_frames == 80
    restored, _ = _restore(tmp_path)
    _assert_equal(_state(restored), _state(learner))
  assert second.steps == 3


_VECTOR_LAYERS = {
    'torso/linear_0': (4, 64), 'torso/linear_1': (64, 64),
    'policy_logits': (68, 3), 'baseline': (68, 1)}
_LANGUAGE_LAYERS = {
    **{name: shape for i, (before, units) in enumerate(
        [(1, 16), (16, 32), (32, 32)])
       for name, shape in [
           (f'torso/section_{i}/conv', (3, 3, before, units)),
           *((f'torso/section_{i}/residual_{j}/conv_{k}', (3, 3, units, units))
             for j in range(2) for k in range(2))]},
    'torso/linear': (3 * 3 * 32, 256),
    'instruction/embedding': (1000, 20),
    'instruction/lstm': (84, 256),
    'core': (256 + 4 + 64 + 256, 1024),
    'policy_logits': (256, 3), 'baseline': (256, 1)}


def _make_language_learner():
  agent = networks.Agent(
      3, (ArraySpec((20, 20, 1), np.dtype(np.uint8)),
          ArraySpec((5,), np.dtype(np.int32))), 'deep', True)
  return learners.make_learner(agent)


@pytest.mark.parametrize('make_learner, layers', [
    (learners.make_learner, _VECTOR_LAYERS),
    (_make_language_learner, _LANGUAGE_LAYERS)])
def test_names_in_a_checkpoint_stay(tmp_path, make_learner, layers):
  """So that what earlier versions saved is restored, slots by their order."""
  checkpoint.Checkpointer(str(tmp_path), make_learner(), '').save()
  found = {name.removesuffix('/.ATTRIBUTES/VARIABLE_VALUE'): shape
           for name, shape in tf.train.list_variables(str(tmp_path))}
  shapes = {}
  for layer, shape in layers.items():
    if layer == 'instruction/embedding':
      shapes[layer] = list(shape)
    else:
      shapes.update({f'{layer}/w': list(shape), f'{layer}/b': [shape[-1]]})
  expected = {}
  for i, (name, shape) in enumerate(shapes.items()):
    # TensorFlow writes a slash in a key as .S.
    expected['params/' + name.replace('/', '.S')] = shape
    for slot in ('mean_square', 'momentum'):
      expected[f'optimizer/{slot}/{i}'] = shape
  expected.update(dict.fromkeys(
      ['config', 'num_environment_frames', 'learner_steps', 'save_counter'],
      []))
  found.pop('_CHECKPOINTABLE_OBJECT_GRAPH')
  assert found == expected


def test_target_weights_are_saved(tmp_path):
  """A run that resumes goes on with the targets that it had."""
  def loss_fn(params, target_params, unused_batch):
    del target_params
    return tf.reduce_sum(params['layer/b']), {}, None

  make = lambda seed: learners.make_learner(
      learners.SmallAgent(), seed=seed, loss_fn=loss_fn,
      target_update_period=2)
  learner = make(1)
  for i in range(3):
    _step(learner, _batch(i))
  checkpoint.Checkpointer(str(tmp_path), learner, '').save()
  other = make(2)
  checkpoint.Checkpointer(str(tmp_path), other, '').restore()
  assert (learner.params['layer/b'].numpy() !=
          learner.target_params['layer/b'].numpy()).all()
  for name, target in learner.target_params.items():
    np.testing.assert_array_equal(other.target_params[name], target)
