"""Tests of `machine.cores`, on trees of files like those of a system."""

import os

import pytest

from scalable_agent.machine import cores as machine_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
  monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: range(8))


def _count(root, cgroup, files):
  for name, text in {'proc/self/cgroup': cgroup, **{
      f'sys/fs/cgroup/{name}': text for name, text in files.items()}}.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{text}\n')
  return machine_cores.count(root)


def test_a_system_that_does_not_say(tmp_path):
  assert machine_cores.count(tmp_path) == 8


@pytest.mark.parametrize('cgroup, files, expected', [
    ('0::/', {'cpu.max': 'max 100000'}, 8),
    ('0::/', {'cpu.max': '200000 100000'}, 2),
    ('0::/', {'cpu.max': '150000 100000'}, 2),
    ('0::/', {'cpu.max': '10000 100000'}, 1),
    ('0::/', {'cpu.max': '1600000 100000'}, 8),
    # A limit of a group is one of all groups in it.
    ('0::/a/b', {'cpu.max': 'max 100000', 'a/cpu.max': '300000 100000',
                 'a/b/cpu.max': '50000 10000'}, 3),
    # Both versions at once, of which the first limits time.
    ('4:cpu,cpuacct:/job\n0::/', {
        'cpu/job/cpu.cfs_quota_us': '400000',
        'cpu/job/cpu.cfs_period_us': '100000'}, 4),
    ('4:cpu:/docker/0123', {'cpu/cpu.cfs_quota_us': '600000',
                            'cpu/cpu.cfs_period_us': '100000'}, 6),
    ('4:cpu:/', {'cpu/cpu.cfs_quota_us': '-1',
                 'cpu/cpu.cfs_period_us': '100000'}, 8),
    # Files that do not say all, or something else, and groups of others.
    ('4:cpu:/', {'cpu/cpu.cfs_quota_us': '100000'}, 8),
    ('0::/', {'cpu.max': '100000'}, 8),
    ('4:memory:/', {'memory/cpu.cfs_quota_us': '100000',
                    'memory/cpu.cfs_period_us': '100000'}, 8)])
def test_the_least_limit_counts(tmp_path, cgroup, files, expected):
  assert _count(tmp_path, cgroup, files) == expected
  assert machine_cores.are_fewer_than_seem(tmp_path) == (expected < 8)


def test_this_process_has_one_at_least():
  assert 1 <= machine_cores.count() <= 8
