"""Tests of `machine.memory`, on trees of files like those of a system."""

import pytest

from scalable_agent.machine import memory as machine_memory

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


_FREE = 4096 * 1024


@pytest.mark.parametrize('cgroup, files, expected', [
    ('0::/\n', {}, _FREE),
    ('0::/\n', {'memory.max': 3}, 3),
    ('0::/\n', {'memory.max': 'max', 'memory.current': 2}, _FREE),
    ('0::/\n', {'memory.max': 1000, 'memory.current': 700}, 300),
    ('0::/\n', {'memory.max': 1000, 'memory.current': 1200}, 0),
    ('0::/\n', {'memory.max': 1000, 'memory.current': 700, 'memory.stat': (
        'anon 600\ninactive_file 100\nfile 5')}, 400),
    ('0::/a\n', {'memory.max': 1000, 'memory.current': 700,
                 'a/memory.max': 500, 'a/memory.current': 450}, 50),
    ('4:memory:/\n', {
        'memory/memory.limit_in_bytes': 1000,
        'memory/memory.usage_in_bytes': 700, 'memory/memory.stat':
            'inactive_file 1\ntotal_inactive_file 100'}, 400)])
def test_what_others_have_is_not_free(tmp_path, cgroup, files, expected):
  _write(tmp_path, proc__meminfo=_MEMINFO + 'MemAvailable:    4096 kB\n',
         proc__self__cgroup=cgroup)
  for name, value in files.items():
    path = tmp_path / 'sys/fs/cgroup' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{value}\n')
  assert machine_memory.free_bytes(tmp_path) == expected


def test_a_system_that_does_not_say_what_is_free(tmp_path):
  assert machine_memory.free_bytes(tmp_path) is None


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
