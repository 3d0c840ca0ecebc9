"""Files that are replaced as a whole."""

import os
import resource
import stat

import pytest

from scalable_agent.files import whole_file


def test_what_cannot_be_written_takes_no_room(tmp_path):
  path = tmp_path / 'file'
  whole_file.write(path, b'old')
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
  try:
    with pytest.raises(OSError):
      whole_file.write(path, b'new' * 1000)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert os.listdir(tmp_path) == ['file'] and path.read_bytes() == b'old'


def test_the_disk_has_the_content_and_then_the_name(tmp_path, monkeypatch):
  """Otherwise a machine that fails may leave an empty file, or the old one."""
  fsync, replace, done = os.fsync, os.replace, []

  def note_fsync(descriptor):
    is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    done.append('directory' if is_directory else 'file')
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', note_fsync)
  monkeypatch.setattr(
      os, 'replace', lambda *paths: [done.append('replace'), replace(*paths)])
  monkeypatch.chdir(tmp_path)
  for path in tmp_path / 'file', 'file':
    done.clear()
    whole_file.write(path, b'')
    assert done == ['file', 'replace', 'directory']


def test_several_may_check_at_a_time(tmp_path, monkeypatch):
  """As the tasks of a job array do, which begin together in one directory."""
  remove = os.remove
  monkeypatch.setattr(os, 'remove', lambda path: [remove(path), remove(path)])
  whole_file.check(tmp_path / 'file')
  assert not os.listdir(tmp_path)
