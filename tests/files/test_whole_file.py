"""Files that are replaced as a whole."""

import os
import pathlib
import resource
import stat
import subprocess
import sys

import pytest

from scalable_agent.files import whole_file

_ROOT = pathlib.Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize('interfere', [
    whole_file.check, lambda path: whole_file.write(path, b'theirs')])
def test_processes_do_not_interfere(tmp_path, monkeypatch, interfere):
  """As tasks of a job array, which begin together in one directory."""
  path = tmp_path / 'file'
  fsync = os.fsync

  def fsync_beside_another(descriptor):
    with monkeypatch.context() as other:
      other.setattr(os, 'fsync', fsync)
      interfere(path)
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', fsync_beside_another)
  whole_file.write(path, b'ours')
  monkeypatch.undo()
  # The last that was renamed, as a whole.
  assert path.read_bytes() in (b'ours', b'theirs')
  assert os.listdir(tmp_path) == ['file']


def test_of_what_the_killed_left_nothing_but_that_is_removed(
    tmp_path, monkeypatch):
  kept = ['file', 'file.tmp2', 'file2.here.7.tmp', 'mine.tmp']
  for name in kept:
    (tmp_path / name).touch()
  with monkeypatch.context() as killed:
    killed.setattr(os, 'remove', lambda path: None)
    killed.setattr(os, 'replace', lambda *paths: None)
    for _ in range(2):
      whole_file.write(tmp_path / 'file', b'half')
  assert len(os.listdir(tmp_path)) == len(kept) + 2
  whole_file.remove_leftovers(str(tmp_path / 'file'))
  assert sorted(os.listdir(tmp_path)) == kept


def test_json_is_read_as_it_was_written(tmp_path):
  content = {'a': [1, .5, None, True], 'b': {'c': 'ä\n'}}
  whole_file.write_json(tmp_path / 'file', content)
  assert whole_file.read_json(tmp_path / 'file') == content


def test_json_is_utf_8_whatever_the_locale(tmp_path):
  (tmp_path / 'file').write_bytes('{"a": "é"}'.encode())
  program = """if True:
      import locale
      from scalable_agent.files import whole_file
      assert locale.getpreferredencoding(False) != 'UTF-8'
      print(ascii(whole_file.read_json('file')['a']))"""
  result = subprocess.run(
      [sys.executable, '-c', program], cwd=tmp_path, capture_output=True,
      text=True, timeout=100, env=dict(
          os.environ, PYTHONPATH=str(_ROOT), LC_ALL='C', PYTHONUTF8='0',
          PYTHONCOERCECLOCALE='0'))
  assert result.stdout == "'\\xe9'\n", result.stderr


@pytest.mark.parametrize('content', [
    b'', b'{', b'{}\n{}', b'[]', b'5', b'null', b'"a"', b'\xff',
    b'{"a": "\xff"}', '{}'.encode('utf-16'), b'\xef\xbb\xbf{}',
    b'[' * 100_000, b'{"a":' * 100_000, b'{"a": ' + b'1' * 10_000 + b'}'])
def test_what_is_no_json_object_is_told_in_one_line(tmp_path, content):
  path = tmp_path / 'file'
  path.write_bytes(content)
  with pytest.raises(ValueError) as error:
    whole_file.read_json(path)
  assert len(str(error.value).splitlines()) == 1


def test_a_file_that_cannot_be_read_is_no_damaged_one(tmp_path):
  (tmp_path / 'file').touch()
  for name, expected in (('missing', FileNotFoundError),
                         ('file/below', NotADirectoryError),
                         ('', IsADirectoryError)):
    with pytest.raises(expected):
      whole_file.read_json(tmp_path / name)
