import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest

from scalable_agent import environments
from scalable_agent.environments import level_cache
from scalable_agent.files import locks

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture
def local(tmp_path):
  return environments.LocalLevelCache(str(tmp_path / 'cache' / 'maps'))


def _write(path, text):
  path.write_text(text)
  return str(path)


def test_fetches_what_was_written(local, tmp_path):
  assert local.fetch('key', str(tmp_path / 'none')) is False
  assert not (tmp_path / 'none').exists()
  local.write('key', _write(tmp_path / 'map.pk3', 'a map'))
  (tmp_path / 'map.pk3').unlink()
  assert local.fetch('key', str(tmp_path / 'fetched')) is True
  assert (tmp_path / 'fetched').read_text() == 'a map'
  assert local.fetch('other', str(tmp_path / 'none')) is False
  # Others wait for what this process compiles now.
  assert sorted(os.listdir(tmp_path / 'cache' / 'maps')) == [
      'key', 'other.lock']


def test_another_instance_on_the_same_directory(local, tmp_path):
  local.write('key', _write(tmp_path / 'map.pk3', 'a map'))
  other = environments.LocalLevelCache(tmp_path / 'cache' / 'maps')
  assert other.fetch('key', str(tmp_path / 'fetched'))


def test_a_file_has_its_name_only_once_it_is_whole(local, tmp_path,
                                                   monkeypatch):
  """A copy that is interrupted leaves nothing to be fetched."""

  def copy_half(source, target):
    with open(source) as f, open(target, 'w') as g:
      g.write(f.read()[:3])
    raise KeyboardInterrupt()

  monkeypatch.setattr(level_cache.shutil, 'copyfile', copy_half)
  with pytest.raises(KeyboardInterrupt):
    local.write('key', _write(tmp_path / 'map.pk3', 'a map'))
  monkeypatch.undo()
  assert not os.listdir(tmp_path / 'cache' / 'maps')
  assert not local.fetch('key', str(tmp_path / 'fetched'))
  assert os.listdir(tmp_path / 'cache' / 'maps') == ['key.lock']


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path):
  for name in 'a', 'a.12ab34cd.tmp', 'b.12ab34cd.tmp', 'a.lock':
    (tmp_path / name).write_text('half of a m')
    if not name.startswith('b'):
      os.utime(tmp_path / name, (time.time() - 4000,) * 2)
  level_cache.remove_leftovers(str(tmp_path))
  assert sorted(os.listdir(tmp_path)) == ['a', 'a.lock', 'b.12ab34cd.tmp']


def test_a_cache_that_fails_is_only_slow(local, tmp_path, monkeypatch, capfd):
  def fail(source, target):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(level_cache.shutil, 'copyfile', fail)
  local.write('key', _write(tmp_path / 'map.pk3', 'a map'))
  assert local.fetch('key', str(tmp_path / 'fetched')) is False
  assert 'No space left' in capfd.readouterr().err


def _write_often(directory, number, barrier):
  cache = level_cache.LocalLevelCache(directory)
  path = os.path.join(directory, '..', f'{number}.pk3')
  with open(path, 'w') as f:
    f.write('a map' * 100000)
  barrier.wait()
  for _ in range(20):
    cache.write('key', path)
    assert cache.fetch('key', path + '.fetched')
    assert os.path.getsize(path + '.fetched') == 500000


def test_many_processes_at_once(tmp_path):
  """Whoever fetches while others write gets a whole file."""
  directory = tmp_path / 'maps'
  context = multiprocessing.get_context('spawn')
  barrier = context.Barrier(3)
  processes = [
      context.Process(target=_write_often, args=(str(directory), i, barrier))
      for i in range(3)]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
  assert [process.exitcode for process in processes] == [0] * 3
  assert os.listdir(directory) == ['key']


def test_paths_of_tensorflow(tmp_path):
  """`ram://` is a file system of its own that only TensorFlow knows."""
  cache = environments.LocalLevelCache('ram://maps')
  assert cache.fetch('key', str(tmp_path / 'none')) is False
  cache.write('key', _write(tmp_path / 'map.pk3', 'a map'))
  assert cache.fetch('key', str(tmp_path / 'fetched')) is True
  assert (tmp_path / 'fetched').read_text() == 'a map'
  assert sorted(os.listdir(tmp_path)) == ['fetched', 'map.pk3']


def test_tensorflow_stays_out_of_the_engines_process(tmp_path):
  """Another process copies; file:// stands for what is far away."""
  (tmp_path / 'maps').mkdir()
  (tmp_path / 'map.pk3').write_text('a map')
  far = f'file://{tmp_path}/maps'
  program = f'''
import sys
sys.modules['deepmind_lab'] = sys
from scalable_agent import environments
cache = environments.LocalLevelCache('{far}')
cache.write('key', '{tmp_path}/map.pk3')
assert not cache.fetch('other', '{tmp_path}/none')
assert 'tensorflow' not in sys.modules
'''
  result = subprocess.run(
      [sys.executable, '-c', program], check=True, capture_output=True,
      text=True)
  assert not result.stderr
  assert os.listdir(tmp_path / 'maps') == ['key']
  # Without the engine this process copies.
  assert environments.LocalLevelCache(far).fetch(
      'key', str(tmp_path / 'fetched'))
  assert (tmp_path / 'fetched').read_text() == 'a map'


def test_a_trial_leaves_nothing(tmp_path, capsys):
  source = _write(tmp_path / 'map.pk3', 'a map')
  (tmp_path / 'maps').mkdir()
  assert level_cache.main(source, f'file://{tmp_path}/maps/a', 'trial') == 0
  assert not os.listdir(tmp_path / 'maps')
  assert level_cache.main(source, f'file://{tmp_path}/none/a', 'trial') != 0
  assert 'No such file' in capsys.readouterr().err


def _fetch_at_once(directory, key, target, count, compile_map):
  """Fetches a map for several engines; returns how many had to compile it."""
  barrier = threading.Barrier(count)
  found = []

  def fetch(i):
    cache = level_cache.LocalLevelCache(directory)
    path = f'{target}{i}'
    barrier.wait()
    found.append(cache.fetch(key, path))
    if not found[-1]:
      compile_map(path)
      cache.write(key, path)
    with open(path) as f:
      assert f.read() == 'a map'

  threads = [threading.Thread(target=fetch, args=(i,)) for i in range(count)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(found) == count
  return found.count(False)


def test_one_compiles_what_several_want(tmp_path):
  def compile_map(path):
    time.sleep(.5)
    with open(path, 'w') as f:
      f.write('a map')

  for key in ('a', 'b'):
    assert _fetch_at_once(
        tmp_path / 'maps', key, tmp_path / 'map', 4, compile_map) == 1
  assert sorted(os.listdir(tmp_path / 'maps')) == ['a', 'b']


def test_who_waits_for_one_that_is_killed_compiles_itself(tmp_path):
  program = f'''
from scalable_agent import environments
cache = environments.LocalLevelCache({str(tmp_path)!r})
assert not cache.fetch('key', {str(tmp_path / 'map')!r})
print('compiling', flush=True)
input()
'''
  with subprocess.Popen([sys.executable, '-c', program], text=True,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
    assert other.stdout.readline() == 'compiling\n'
    killer = threading.Timer(.5, other.kill)
    start = time.monotonic()
    killer.start()
    cache = level_cache.LocalLevelCache(tmp_path)
    assert not cache.fetch('key', str(tmp_path / 'mine'))
    assert .2 < time.monotonic() - start < 60


def test_who_has_waited_for_long_compiles_itself(tmp_path):
  first = level_cache.LocalLevelCache(tmp_path)
  assert not first.fetch('key', str(tmp_path / 'map'))
  other = level_cache.LocalLevelCache(tmp_path, compile_timeout_secs=.3)
  assert not other.fetch('key', str(tmp_path / 'mine'))
  # The first one wants another map now.
  assert not first.fetch('another', str(tmp_path / 'map'))
  patient = level_cache.LocalLevelCache(tmp_path)
  assert not patient.fetch('key', str(tmp_path / 'mine'))


def test_a_lock_on_a_file_that_was_removed_does_not_count(
    tmp_path, monkeypatch):
  """Another process may have made the file anew, and compile by its lock."""
  leaving, waiting, compiling = (
      level_cache.LocalLevelCache(tmp_path) for _ in range(3))
  assert not leaving.fetch('key', str(tmp_path / 'map'))
  flock = locks.fcntl.flock
  writer = threading.Timer(.5, compiling.write, (
      'key', _write(tmp_path / 'map.pk3', 'a map')))

  def flock_late(*arguments):
    monkeypatch.setattr(locks.fcntl, 'flock', flock)
    assert not leaving.fetch('another', str(tmp_path / 'map'))
    assert not compiling.fetch('key', str(tmp_path / 'map'))
    writer.start()
    flock(*arguments)

  monkeypatch.setattr(locks.fcntl, 'flock', flock_late)
  assert waiting.fetch('key', str(tmp_path / 'waited'))
  writer.join()
