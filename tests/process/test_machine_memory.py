"""Tests of `machine_memory`, on trees of files like those of a system."""

import pytest

from scalable_agent.process import machine_memory

_MEMINFO = 'MemTotal:       16384 kB\nMemFree:        1024 kB\n'
_BYTES = 16384 * 1024


def _write(root, **files):
  for path, text in files.items():
    path = root / path.replace('__', '/')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _total(root, cgroup, **files):
  _write(root, proc__meminfo=_MEMINFO, proc__self__cgroup=cgroup)
  for path, text in files.items():
    path = root / 'sys/fs/cgroup' / path.replace('__', '/').replace(
        'limit', 'memory.limit_in_bytes').replace('max', 'memory.max')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  return machine_memory.total_bytes(root)


def test_this_machine_has_some():
  assert machine_memory.total_bytes() > 100 << 20


def test_a_system_that_does_not_say(tmp_path):
  assert machine_memory.total_bytes(tmp_path) is None


def test_a_machine_without_groups(tmp_path):
  _write(tmp_path, proc__meminfo=_MEMINFO)
  assert machine_memory.total_bytes(tmp_path) == _BYTES


def test_what_is_free_is_within_the_limit(tmp_path):
  _write(tmp_path, proc__meminfo=_MEMINFO + 'MemAvailable:    4096 kB\n',
         proc__self__cgroup='0::/\n')
  assert machine_memory.free_bytes(tmp_path) == 4096 * 1024
  _write(tmp_path, sys__fs__cgroup__memory_max='3\n')
  (tmp_path / 'sys/fs/cgroup/memory_max').rename(
      tmp_path / 'sys/fs/cgroup/memory.max')
  assert machine_memory.free_bytes(tmp_path) == 3
  assert machine_memory.free_bytes(tmp_path / 'nowhere') is None


@pytest.mark.parametrize('cgroup, files, expected', [
    # Version 2: a container that sees its group as the root, or a group and
    # those that it is in.
    ('0::/\n', dict(max='1000\n'), 1000),
    ('0::/a/b\n', dict(max='max\n', a__max='2000\n', a__b__max='3000\n'), 2000),
    ('0::/a/b\n', dict(a__max='3000\n', a__b__max='2000\n'), 2000),
    ('0::/a\n', dict(a__max='max\n'), _BYTES),
    ('0::/../../b\n', dict(b__max='7\n'), 7),
    # Both at once.
    ('5:memory:/x\n0::/a\n', dict(unified__a__max='900\n'), 900),
    # Version 1, where no limit is a large one.
    ('9:name=systemd:/\n4:cpu,memory:/job\n', dict(memory__job__limit='5000\n'),
     5000),
    ('4:memory:/docker/0123\n', dict(memory__limit='6000\n'), 6000),
    ('4:memory:/\n', dict(memory__limit='9223372036854771712\n'), _BYTES),
    # Groups of something else.
    ('4:cpu:/a\n', dict(memory__a__limit='1\n', cpu__a__limit='1\n'), _BYTES),
    ('nonsense\n', dict(max='1\n'), _BYTES)])
def test_the_least_limit_counts(tmp_path, cgroup, files, expected):
  assert _total(tmp_path, cgroup, **files) == expected
