"""Keeps the maps that DeepMind Lab compiles, for later episodes and runs."""

import contextlib
import errno
import functools
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

from scalable_agent.environments import python_environ
from scalable_agent.files import file_names
from scalable_agent.files import whole_file

# Exit statuses of `_PROGRAM`, beside 0.
_NOT_FOUND = 3
_FAILED = 4
_PROGRAM = f'import sys, {__name__} as m; sys.exit(m.main(*sys.argv[1:]))'

_COPY_TIMEOUT_SECONDS = 120.
# What is written to try a cache, and removed.
_TRIAL = 'write_test'
# No copy takes so long.
_LEFTOVER_SECONDS = 3600.
_PAUSE_SECONDS = .1


def check_writable(cache_dir):
  """Tries whether maps can be written.

  Args:
    cache_dir: As of `LocalLevelCache`. A local one exists.

  Raises:
    OSError: They cannot; the message says why.
  """
  if not file_names.is_remote(cache_dir):
    if not os.access(cache_dir, os.W_OK):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return
  problem = _try_to_write(cache_dir)
  if problem:
    raise OSError(problem)


# Each pool of a process asks, and a trial takes seconds.
@functools.cache
def _try_to_write(cache_dir):
  """Returns why a file cannot be written far away, '' if it can."""
  path = whole_file.temporary_name(os.path.join(cache_dir, _TRIAL))
  with tempfile.NamedTemporaryFile() as f:
    try:
      _copy_elsewhere(f.name, path, is_trial=True)
    except subprocess.TimeoutExpired as e:
      return f'no answer within {e.timeout:g} s'
    except OSError as e:
      return str(e)
  return ''


def remove_leftovers(cache_dir):
  """Removes what processes left that were killed while they wrote a map.

  Args:
    cache_dir: A local directory.

  Raises:
    OSError: A file cannot be removed.
  """
  for path in glob.glob(os.path.join(glob.escape(cache_dir), '*.tmp')):
    # Others may write, and remove what is left over, at the same time.
    with contextlib.suppress(FileNotFoundError):
      if time.time() - os.path.getmtime(path) > _LEFTOVER_SECONDS:
        os.remove(path)


class LocalLevelCache:
  """A level cache for `deepmind_lab.Lab`: one file per compiled map.

  Any number of processes and machines may share a directory: a file gets its
  name only once it is whole. A map that several want at once is compiled by the
  first, while the others wait for it, in a local directory. A cache that cannot
  be read or written costs the time to compile, not the episode.
  """

  def __init__(self, cache_dir='/tmp/level_cache', compile_timeout_secs=300.):
    """Initializes the cache.

    Args:
      cache_dir: A local directory, which is made, or any path that
        `tf.io.gfile` knows, such as gs://bucket/directory. Such a path needs
        TensorFlow, and some seconds per map.
      compile_timeout_secs: How long to wait for another process that compiles a
        map, before this one compiles it too.
    """
    self._cache_dir = os.fspath(cache_dir)
    self._compile_timeout = compile_timeout_secs
    # Holds the lock of the map that is compiled here.
    self._compiling = contextlib.ExitStack()
    if not file_names.is_remote(self._cache_dir):
      os.makedirs(self._cache_dir, exist_ok=True)

  def fetch(self, key, pk3_path):
    """Copies a map out of the cache.

    Args:
      key: A string that the engine names the map by.
      pk3_path: Where the engine wants it.

    Returns:
      Whether the cache had it. If not, other processes that want it wait until
      this one writes it, ends, or fetches another map.
    """
    self._compiling.close()
    path = self._path(key)
    return (self._try_copy(path, pk3_path) or
            not file_names.is_remote(path) and self._wait_for(path, pk3_path))

  def write(self, key, pk3_path):
    """Copies a map that was compiled, to `pk3_path`, into the cache."""
    self._try_copy(pk3_path, self._path(key))
    self._compiling.close()

  def _wait_for(self, path, pk3_path):
    """Waits while another process compiles a map; returns whether it has."""
    from scalable_agent.files import locks  # Loads absl.
    lock, deadline = path + '.lock', time.monotonic() + self._compile_timeout
    while time.monotonic() < deadline:
      try:
        descriptor = locks.acquire(lock)
      except locks.Held:
        time.sleep(_PAUSE_SECONDS)
        continue
      except OSError:
        return False  # No file can be made here.
      self._compiling.callback(locks.release, lock, descriptor)
      # The map may have come before the lock was taken.
      if not os.path.exists(path):
        return False
      self._compiling.close()
      return self._try_copy(path, pk3_path)
    return False

  def _path(self, key):
    return os.path.join(self._cache_dir, key)

  def _try_copy(self, source, target):
    try:
      _copy(source, target)
      return True
    except FileNotFoundError:
      return False
    except (OSError, subprocess.TimeoutExpired) as e:
      print(f'The level cache {self._cache_dir} is of no help: {e}',
            file=sys.stderr)
      return False


def _copy(source, target):
  """Copies a file to where there is none yet, or one of the same content.

  Raises:
    FileNotFoundError: There is no such source.
    OSError: It cannot be copied.
  """
  if not file_names.is_remote(source) and not file_names.is_remote(target):
    with whole_file.replacing(target) as temporary:
      shutil.copyfile(source, temporary)
  elif 'deepmind_lab' in sys.modules:
    _copy_elsewhere(source, target)
  else:
    _copy_with_tensorflow(source, target)


def _copy_elsewhere(source, target, is_trial=False):
  """Copies in another process: the engine crashes where TensorFlow is loaded.

  Args:
    source, target: As of `_copy`.
    is_trial: Whether to remove the target again.
  """
  result = subprocess.run(
      [sys.executable, '-c', _PROGRAM, source, target,
       *['trial'] * is_trial], check=False, env=python_environ.same_path(),
      stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=_COPY_TIMEOUT_SECONDS)
  if result.returncode:
    lines = result.stderr.strip().splitlines() or ['it does not say why']
    error = FileNotFoundError if result.returncode == _NOT_FOUND else OSError
    raise error(f'copying {source} to {target} failed: {lines[-1]}')


def _copy_with_tensorflow(source, target, is_trial=False):
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  import tensorflow as tf
  temporary = whole_file.temporary_name(target)
  try:
    tf.io.gfile.copy(source, temporary, overwrite=True)
    tf.io.gfile.rename(temporary, target, overwrite=True)
    if is_trial:
      tf.io.gfile.remove(target)
  except tf.errors.NotFoundError as e:
    raise FileNotFoundError(e.message) from e
  except tf.errors.OpError as e:
    raise OSError(e.message) from e


def main(source, target, trial=''):
  """Copies one file with TensorFlow; returns the exit status."""
  try:
    _copy_with_tensorflow(source, target, is_trial=bool(trial))
    return 0
  except OSError as e:
    print(e, file=sys.stderr)
    return _NOT_FOUND if isinstance(e, FileNotFoundError) else _FAILED
