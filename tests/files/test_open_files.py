import errno
import os
import resource

import pytest

from scalable_agent.files import open_files


@pytest.fixture(autouse=True)
def same_limits_afterwards():
  limits = resource.getrlimit(resource.RLIMIT_NOFILE)
  yield
  resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _leave(count):
  """Lowers the limit until `count` files, about, can be opened."""
  _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  # The next descriptors to be had are the lowest free ones.
  probes = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
  for probe in probes:
    os.close(probe)
  resource.setrlimit(resource.RLIMIT_NOFILE, (max(probes), hard))


class _Hog:
  """Opens all that can be opened, as connections would."""

  def __init__(self):
    self._descriptors = []

  def __enter__(self):
    with pytest.raises(OSError) as e:
      while True:
        self._descriptors.append(os.open(os.devnull, os.O_RDONLY))
    assert e.value.errno == errno.EMFILE
    return self

  def __len__(self):
    return len(self._descriptors)

  def __exit__(self, *unused_args):
    while self._descriptors:
      os.close(self._descriptors.pop())


def test_the_soft_limit_becomes_the_hard_one():
  _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
  assert open_files.limit() == 100
  for _ in range(2):
    open_files.raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    assert open_files.limit() == hard


def test_a_limit_that_nobody_may_have_is_no_error(monkeypatch):
  def refuse(*unused_args):
    raise ValueError('not allowed to raise maximum limit')
  monkeypatch.setattr(resource, 'getrlimit', lambda unused: (100, 10**9))
  monkeypatch.setattr(resource, 'setrlimit', refuse)
  open_files.raise_limit()
  assert open_files.limit() == 100


def test_no_limit_is_a_number(monkeypatch):
  monkeypatch.setattr(resource, 'getrlimit', lambda unused: (
      resource.RLIM_INFINITY, resource.RLIM_INFINITY))
  assert open_files.limit() > 10**6


def test_open_files_are_counted():
  before = open_files.count()
  descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(7)]
  assert open_files.count() == before + 7
  for descriptor in descriptors:
    os.close(descriptor)
  assert open_files.count() == before


def test_what_was_reserved_can_be_opened_while_it_is_released():
  _leave(12)
  reserve = open_files.Reserve(5)
  assert len(reserve) == 5
  with _Hog() as hog:
    assert 0 < len(hog) < 12
    for _ in range(3):
      with reserve.released():
        with _Hog() as more:
          assert len(more) == 5
      assert len(reserve) == 5
      with pytest.raises(OSError):
        os.open(os.devnull, os.O_RDONLY)
  reserve.close()
  assert len(reserve) == 0


@pytest.mark.parametrize('free,expected', [(9, 4), (2, 1), (40, 10)])
def test_half_of_what_there_is_is_left_to_others(free, expected):
  _leave(free)
  reserve = open_files.Reserve(10)
  assert len(reserve) == expected
  reserve.close()


def test_the_reserve_is_taken_back_after_an_error():
  reserve = open_files.Reserve(3)
  before = open_files.count()
  with pytest.raises(KeyError):
    with reserve.released():
      assert open_files.count() == before - 3
      raise KeyError
  assert open_files.count() == before
  reserve.close()
  assert open_files.count() == before - 3
  with reserve.released():
    pass
  assert len(reserve) == 0


def test_what_cannot_be_had_back_is_tried_for_again():
  _leave(8)
  reserve = open_files.Reserve(4)
  with reserve.released():
    thief = _Hog()
    thief.__enter__()
  assert len(reserve) == 0
  with reserve.released():  # Nothing is to be had, which is no error.
    pass
  assert len(reserve) == 0
  thief.__exit__()
  with reserve.released():
    pass
  assert len(reserve) == 4
  reserve.close()


def test_a_reserve_is_what_can_be_had():
  _leave(6)
  with _Hog() as hog:
    reserve = open_files.Reserve(3)
    assert len(reserve) == 0
  assert len(hog) == 0
  with reserve.released():
    pass
  assert len(reserve) == 3
  reserve.close()
