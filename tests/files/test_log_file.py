"""Logs that survive a disk that is full and a directory that is gone."""

import errno
import os
import tracemalloc

import hypothesis
from hypothesis import strategies as st
import pytest

from scalable_agent.files import log_file
from tests import failing_files


def _fill_disk(monkeypatch, bytes_left):
  """Lets only so many bytes more be written; returns how to free the rest."""
  pwrite, left = os.pwrite, [bytes_left]

  def limited(descriptor, data, offset):
    if not left[0]:
      raise OSError(errno.ENOSPC, 'No space left on device')
    written = pwrite(descriptor, data[:left[0]], offset)
    left[0] -= written
    return written

  def free():
    left[0] = 1 << 30

  monkeypatch.setattr(os, 'pwrite', limited)
  return free


@pytest.mark.parametrize('bytes_left', [0, 1, 9, 10, 15])
def test_a_full_disk_loses_and_doubles_no_line(
    tmp_path, monkeypatch, bytes_left):
  path = tmp_path / 'log'
  log = log_file.LogFile(path, 'head\n')
  log.add('one')
  log.flush()
  free = _fill_disk(monkeypatch, bytes_left)
  log.add('twenty-two')
  log.add('3')
  for _ in range(2):
    if bytes_left < 13:
      with pytest.raises(OSError, match='No space left'):
        log.flush()
      assert path.read_text() == 'head\none\n'  # No line is half there.
  free()
  log.add('4')
  log.flush()
  assert path.read_text() == 'head\none\ntwenty-two\n3\n4\n'


@pytest.mark.parametrize('name, to_disk', [
    ('fsync', True), ('close', True), ('close', False)])
@pytest.mark.parametrize('bytes_kept', [9, 11, 17])
def test_a_disk_that_says_later_that_it_was_full_loses_and_doubles_no_line(
    tmp_path, monkeypatch, name, to_disk, bytes_kept):
  """As file systems do that buffer what is written."""
  path = tmp_path / 'log'
  log = log_file.LogFile(path, 'head\n')
  log.add('one')
  log.flush(to_disk=True)
  log.add('two')
  log.flush()
  log.add('three')
  function = getattr(os, name)

  def fail(descriptor):
    monkeypatch.setattr(os, name, function)
    os.ftruncate(descriptor, bytes_kept)
    function(descriptor)
    raise OSError(errno.EDQUOT, 'Disk quota exceeded')

  monkeypatch.setattr(os, name, fail)
  with pytest.raises(OSError, match='Disk quota exceeded'):
    log.flush(to_disk)
  log.add('4')
  for _ in range(2):
    log.flush(to_disk=True)
    assert path.read_text() == 'head\none\ntwo\nthree\n4\n'


def test_a_directory_that_goes_and_comes_back(tmp_path):
  directory, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
  directory.mkdir()
  log = log_file.LogFile(directory / 'log')
  log.add('one')
  log.flush(to_disk=True)
  directory.rename(elsewhere)
  log.add('two')
  with pytest.raises(FileNotFoundError):
    log.flush()
  elsewhere.rename(directory)
  log.flush()
  assert (directory / 'log').read_text() == 'one\ntwo\n'


def test_a_directory_that_is_gone_is_noticed_before_a_save(tmp_path):
  """Even if there is nothing new to write."""
  directory = tmp_path / 'run'
  directory.mkdir()
  log = log_file.LogFile(directory / 'log')
  log.flush(to_disk=True)
  log.add('one')
  log.flush()
  directory.rename(tmp_path / 'elsewhere')
  with pytest.raises(FileNotFoundError):
    log.flush(to_disk=True)


@pytest.mark.parametrize('is_saved_before', [False, True])
def test_a_file_that_somebody_removed_begins_anew(tmp_path, is_saved_before):
  """And hinders no save, although it has nothing to write yet."""
  path = tmp_path / 'log'
  log = log_file.LogFile(path, 'head\n')
  log.add('one')
  log.flush()
  os.remove(path)
  if is_saved_before:
    log.flush(to_disk=True)
    assert not path.exists()
  log.add('two')
  log.flush()
  assert path.read_text() == 'head\ntwo\n'


def test_a_file_that_cannot_be_read_for_a_moment_keeps_its_lines(
    tmp_path, monkeypatch):
  """It is not one that somebody has removed."""
  path = tmp_path / 'log'
  log = log_file.LogFile(path, 'head\n')
  log.add('one')
  log.flush()
  with monkeypatch.context() as patched:
    failing_files.fail(patched, 'log', times=1)
    with pytest.raises(OSError, match='Input/output'):
      log.flush(to_disk=True)
  log.add('two')
  log.flush(to_disk=True)
  assert path.read_text() == 'head\none\ntwo\n'
  with monkeypatch.context() as patched:
    failing_files.fail(patched, 'log', times=1)
    with pytest.raises(OSError, match='Input/output'):
      log_file.LogFile(path, 'head\n')


def test_what_is_there_beyond_the_last_write_is_cut(tmp_path):
  """It is of a write that failed, whose beginning could not be taken back."""
  path = tmp_path / 'log'
  log = log_file.LogFile(path)
  log.add('one')
  log.flush()
  with path.open('a') as f:
    f.write('a long beginn')
  log.add('two')
  log.flush()
  assert path.read_text() == 'one\ntwo\n'


def test_who_asks_for_it_waits_for_the_disk(tmp_path, monkeypatch):
  """With nothing new to write, too: an earlier flush may not have waited."""
  synced = []
  monkeypatch.setattr(os, 'fsync', synced.append)
  log = log_file.LogFile(tmp_path / 'log')
  log.add('one')
  log.flush()
  assert not synced
  for count in 1, 2:
    log.flush(to_disk=True)
    assert len(synced) == count


def _frames_of(line):
  """Of one figure before a comma, as the lines of these tests have it."""
  return int(line[:1]) if line[:1].isdigit() and line[1:2] == b',' else None


@hypothesis.given(
    st.lists(st.integers(0, 9), max_size=6), st.integers(0, 9),
    st.integers(0, 20),
    st.sampled_from([b'', b'\xff\xfe\n', b'x,\n', b'7,pon']))
def test_keep_until_keeps_what_the_checkpoint_knows(
    tmp_path_factory, frames, until, cut, damage):
  """Each whole line up to its frames, to the byte, and nothing else."""
  path = tmp_path_factory.mktemp('log') / 'log'
  lines = [b'head\n', *(b'%d,a\n' % n for n in sorted(frames))]
  content = b''.join(lines)
  path.write_bytes(content[:max(len(content) - cut, 0)] + damage)
  log_file.keep_until(path, until, _frames_of, 1)
  kept, at = [], 0
  for line in lines:
    at += len(line)
    if at <= len(content) - cut and (
        line == lines[0] or _frames_of(line) <= until):
      kept.append(line)
  result = path.read_bytes()
  # Where a line was cut, what follows is one with it.
  assert result.startswith(b''.join(kept))
  assert all(line.endswith(b'\n') for line in result.splitlines(True))


def _peak_bytes(function):
  """What a function has in memory at the most."""
  tracemalloc.start()
  try:
    function()
    return tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()


@pytest.mark.parametrize('damage', [b'', b'x\n'])
def test_a_log_that_is_cut_is_not_held_in_memory(tmp_path, damage):
  path = tmp_path / 'log'
  kept = b'1,%s\n' % (b'a' * 500) * 10_000
  path.write_bytes(kept + damage + kept + b'3,a\n')
  peak = _peak_bytes(lambda: log_file.keep_until(path, 2, _frames_of))
  assert path.read_bytes() == 2 * kept
  assert peak < 1 << 20


def test_a_log_of_which_all_is_kept_is_not_written(tmp_path):
  path = tmp_path / 'log'
  path.write_bytes(b'head\n1,a\n2,a\n')
  before = os.stat(path)
  log_file.keep_until(path, 2, _frames_of, 1)
  after = os.stat(path)
  # To read it may change the time of its last access.
  assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
      before.st_ino, before.st_mtime_ns, before.st_ctime_ns)


@hypothesis.given(st.lists(st.sampled_from([b'\n', b'a', b'bc\n'])),
                  st.integers(1, 5))
def test_lines_backwards_are_all_lines(tmp_path_factory, parts, block_bytes):
  """Wherever a block that is read begins."""
  path = tmp_path_factory.mktemp('log') / 'log'
  content = b''.join(parts)
  path.write_bytes(content)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(log_file, '_TAIL_BYTES', block_bytes)
    found = list(log_file.lines_backwards(path))
  assert found == content.split(b'\n')[::-1]


def test_lines_backwards_are_not_held_in_memory(tmp_path):
  path = tmp_path / 'log'
  path.write_bytes(b'1,%s\n' % (b'a' * 500) * 20_000)
  count = 0

  def read():
    nonlocal count
    count = sum(1 for _ in log_file.lines_backwards(path))

  assert _peak_bytes(read) < 2 << 20
  assert count == 20_001


def test_the_last_frames_are_the_most(tmp_path):
  """Wherever they are, and whatever is damaged behind them."""
  path = tmp_path / 'log'
  assert log_file.last_frames(path, _frames_of) == 0
  path.write_text('head\n')
  assert log_file.last_frames(path, _frames_of) == 0
  path.write_text('head\n5,a\n9,a\n7,a\nx')
  assert log_file.last_frames(path, _frames_of) == 9
