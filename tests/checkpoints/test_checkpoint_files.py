"""Files of checkpoints, wherever a process is killed."""

import itertools
import os
import shutil

import pytest

from scalable_agent.checkpoints import checkpoint_files

pytestmark = pytest.mark.usefixtures('bounded')


class _Killed(BaseException):
  """Ends what a test runs, and whatever it does to end well."""


def _runs_through(num_steps, function):
  """Runs what is killed before one more change of the disk than `num_steps`.

  Args:
    num_steps: An int.
    function: A function of a function, to be called before each change that is
      not one of `os`.

  Returns:
    Whether it came to its end.
  """
  left = [num_steps]

  def step():
    if not left[0]:
      raise _Killed
    left[0] -= 1

  def stepping(change):
    return lambda *args: [step(), change(*args)]

  def rmtree(directory, **unused_kwargs):
    # In the worst order: an index is the last of a checkpoint's names.
    if os.path.isdir(directory):
      for name in sorted(os.listdir(directory)):
        os.remove(os.path.join(directory, name))
      os.rmdir(directory)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(shutil, 'rmtree', rmtree)
    for name in 'mkdir', 'replace', 'remove', 'rmdir':
      patch.setattr(os, name, stepping(getattr(os, name)))
    try:
      function(step)
    except _Killed:
      return False
  return True


def _save(path, num_data, content, step=lambda: None):
  """Saves as TensorFlow does, which writes the index in its place, and last."""
  with checkpoint_files.committing(path) as temporary:
    part = os.path.join(os.path.dirname(temporary), 'part')
    for i in range(num_data):
      step()
      with open(part, 'w') as f:
        f.write(content)
      os.replace(part, f'{temporary}.data-{i:05}-of-{num_data:05}')
    for written in '', content:
      step()
      with open(f'{temporary}.index', 'w') as f:
        f.write(written)


@pytest.mark.parametrize('num_data', [1, 2])
def test_a_second_save_of_the_same_frames_that_is_killed_loses_nothing(
    tmp_path, num_data):
  """Nor does a start that is killed while it cleans up."""
  names = ['ckpt-80.index'] + [
      f'ckpt-80.data-{i:05}-of-{num_data:05}' for i in range(num_data)]
  for num_saved in itertools.count():
    for num_cleaned in itertools.count():
      logdir = tmp_path / f'{num_saved}-{num_cleaned}'
      logdir.mkdir()
      path = checkpoint_files.path_of(str(logdir), 80)
      _save(path, num_data, 'old')
      is_saved = _runs_through(
          num_saved, lambda step: _save(path, num_data, 'new', step))
      is_clean = _runs_through(
          num_cleaned, lambda _: checkpoint_files.clean_up(str(logdir)))
      checkpoint_files.clean_up(str(logdir))
      found = {path.name: path.is_file() and path.read_text()
               for path in logdir.iterdir()}
      assert found == dict.fromkeys(names, 'new') or (
          not is_saved and found == dict.fromkeys(names, 'old')), logdir.name
      if is_clean:
        break
    if is_saved:
      break


def test_where_there_is_no_checkpoint_none_is_removed(tmp_path):
  """Somebody may have removed them all."""
  checkpoint_files.keep_newest(str(tmp_path), 3)
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('name', ['ckpt-80', 'mine'])
def test_one_is_found_by_its_name_alone(tmp_path, monkeypatch, name):
  """In the current directory, also after it has been renamed."""
  for ending in 'index', 'data-00000-of-00001':
    for other in name, f'{name}0':
      (tmp_path / f'{other}.{ending}').write_text(other)
  found = checkpoint_files.fingerprint(str(tmp_path / name))
  assert found != checkpoint_files.fingerprint(str(tmp_path / f'{name}0'))
  monkeypatch.chdir(tmp_path)
  assert checkpoint_files.fingerprint(name) == found
  (tmp_path / 'copy').mkdir()
  checkpoint_files.copy(name, 'copy')
  assert sorted(os.listdir('copy')) == [
      f'{name}.data-00000-of-00001', f'{name}.index']
