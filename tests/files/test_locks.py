"""Locks of files: one holder at a time, also while the file is removed."""

import errno
import fcntl
import multiprocessing
import os
import threading
import types

import pytest

from scalable_agent.files import locks
from scalable_agent.files import open_files

pytestmark = pytest.mark.usefixtures('bounded')


def test_one_at_a_time(tmp_path):
  path = str(tmp_path / 'lock')
  assert not locks.is_held(path)
  descriptor = locks.acquire(path, 'me')
  assert locks.is_held(path)
  with pytest.raises(locks.Held) as caught:
    locks.acquire(path, 'you')
  assert caught.value.holder == 'me'
  locks.release(path, descriptor)
  assert not locks.is_held(path) and os.listdir(tmp_path) == []
  locks.release(path, locks.acquire(path, 'you'))


def test_a_killed_holders_file_is_taken_over(tmp_path):
  path = str(tmp_path / 'lock')
  with open(path, 'w') as f:
    f.write('somebody with a long name who is gone')
  assert not locks.is_held(path)
  descriptor = locks.acquire(path, 'me')
  assert open(path).read() == 'me'
  os.close(descriptor)


def test_who_asks_keeps_nobody_from_the_lock(tmp_path, monkeypatch):
  """Though asking takes it for a moment; nor do two who ask at a time."""
  path, flock = str(tmp_path / 'lock'), fcntl.flock
  os.close(locks.acquire(path))
  is_asked, may_end = threading.Event(), threading.Event()

  def ask_slowly(*args):
    flock(*args)
    is_asked.set()
    may_end.wait(60.)

  def ask():
    found.append(locks.is_held(path))

  found = []
  monkeypatch.setattr(fcntl, 'flock', ask_slowly)
  asking = threading.Thread(target=ask, daemon=True)
  asking.start()
  assert is_asked.wait(60.)
  monkeypatch.setattr(fcntl, 'flock', flock)
  ask()

  def sleep(unused_seconds):
    may_end.set()
    asking.join()

  monkeypatch.setattr(locks, 'time', types.SimpleNamespace(sleep=sleep))
  os.close(locks.acquire(path, 'me'))
  assert found == [False, False]


def test_a_file_that_cannot_be_is_an_error(tmp_path):
  with pytest.raises(OSError):
    locks.acquire(str(tmp_path / 'no' / 'lock'))


def _count_up(path, rounds):
  """Adds to a number in a file, which only a lock keeps right."""
  done = 0
  while done < rounds:
    try:
      descriptor = locks.acquire(path)
    except locks.Held:
      continue
    with open(f'{path}.count', 'r+') as f:
      number = int(f.read())
      f.seek(0)
      f.write(str(number + 1))
    locks.release(path, descriptor)
    done += 1


def test_racing_holders_that_remove_the_file(tmp_path):
  path = str(tmp_path / 'lock')
  (tmp_path / 'lock.count').write_text('0')
  context = multiprocessing.get_context('spawn')
  processes = [
      context.Process(target=_count_up, args=(path, 300)) for _ in range(3)]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
  assert (tmp_path / 'lock.count').read_text() == '900'


def test_a_file_that_its_holder_removes_meanwhile_is_made_anew(
    tmp_path, monkeypatch):
  """What is locked is what others find there, and nothing else stays open."""
  path, flock = str(tmp_path / 'lock'), fcntl.flock
  held = [locks.acquire(path, 'them')]

  def release_and_lock(*args):
    if held:
      locks.release(path, held.pop())
    flock(*args)

  num_open = open_files.count()
  monkeypatch.setattr(fcntl, 'flock', release_and_lock)
  descriptor = locks.acquire(path, 'me')
  assert open_files.count() == num_open
  assert locks.is_held(path)
  with pytest.raises(locks.Held):
    locks.acquire(path, 'you')
  os.close(descriptor)


def test_who_ends_leaves_the_lock_of_another_alone(tmp_path):
  """As where a user has removed the first one's file meanwhile."""
  path = str(tmp_path / 'lock')
  first = locks.acquire(path, 'me')
  os.remove(path)
  second = locks.acquire(path, 'you')
  locks.release(path, first)
  with pytest.raises(locks.Held, match='you'):
    locks.acquire(path, 'them')
  locks.release(path, second)
  assert not os.path.exists(path)


def test_whoever_asks_in_vain_leaves_no_file_open(tmp_path):
  path = str(tmp_path / 'lock')
  descriptor = locks.acquire(path, 'me')
  num_open = open_files.count()
  assert locks.is_held(path)
  with pytest.raises(locks.Held):
    locks.acquire(path, 'you')
  assert open_files.count() == num_open
  os.close(descriptor)


def test_a_lock_of_another_user_is_held(tmp_path, monkeypatch):
  """Their file can be read here, and not be written."""
  path = str(tmp_path / 'lock')
  descriptor = locks.acquire(path, 'them')
  monkeypatch.setattr(os, 'open', _refuse_writing(os.open))
  assert locks.is_held(path)
  with pytest.raises(locks.Held) as caught:
    locks.acquire(path, 'me')
  assert caught.value.holder == 'them'
  os.close(descriptor)
  assert not locks.is_held(path)


def test_a_directory_of_another_user_is_said_to_be_one(tmp_path, monkeypatch):
  monkeypatch.setattr(os, 'open', _refuse_writing(os.open))
  with pytest.raises(PermissionError):
    locks.acquire(str(tmp_path / 'lock'))


def _refuse_writing(open_file):
  def open_read_only(path, flags, *args):
    if flags & os.O_RDWR:
      raise PermissionError(errno.EACCES, 'Permission denied', path)
    return open_file(path, flags, *args)
  return open_read_only


def test_a_lock_needs_no_room_for_a_name(tmp_path, monkeypatch):
  def pwrite(*unused_args):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(os, 'pwrite', pwrite)
  path = str(tmp_path / 'lock')
  descriptor = locks.acquire(path, 'me')
  assert locks.is_held(path)
  with pytest.raises(locks.Held) as caught:
    locks.acquire(path, 'you')
  assert caught.value.holder == ''
  os.close(descriptor)


def test_where_there_are_no_locks_nothing_is_locked(
    tmp_path, monkeypatch, caplog):
  def flock(*unused_args):
    raise OSError(errno.ENOSYS, 'Function not implemented')

  monkeypatch.setattr(locks.fcntl, 'flock', flock)
  path = str(tmp_path / 'lock')
  descriptors = [locks.acquire(path, name) for name in ('me', 'you')]
  assert not locks.is_held(path)
  assert [message.partition(' (')[0] for message in caplog.messages] == [
      f'{path} cannot be locked'] * 2
  for descriptor in descriptors:
    os.close(descriptor)
