"""Files that are replaced as a whole."""

import os
import resource
import signal
import stat

import pytest

from scalable_agent.files import whole_file


@pytest.fixture(name='limit')
def _limit():
  """A function that sets how many bytes a file may have, until the test's end.
  """
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
  resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  signal.signal(signal.SIGXFSZ, handler)


def test_what_cannot_be_written_takes_no_room(tmp_path, limit):
  path = tmp_path / 'file'
  whole_file.write(path, b'old')
  limit(1000)
  with pytest.raises(OSError):
    whole_file.write(path, b'new' * 1000)
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
