"""Says how many cores a process of this machine can have."""

import os

from scalable_agent.machine import control_groups


def count(root='/'):
  """Returns how many cores this process can keep busy, at least 1.

  Args:
    root: The directory under which `proc` and `sys` are.

  Returns:
    How many it may run on; or how many its container may have the time of, if
    these are fewer. Part of a core counts as a core.
  """
  return min([_num_usable(), *_quotas(root)])


def are_fewer_than_seem(root='/'):
  """Returns whether `count` is less than what libraries count that ask Linux.

  Args:
    root: As for `count`.
  """
  return any(cores < _num_usable() for cores in _quotas(root))


def _num_usable():
  return len(os.sched_getaffinity(0))


def _quotas(root):
  """Yields the cores of each group of this process that has a quota."""
  for directory, version in control_groups.directories(root, 'cpu'):
    names = ['cpu.max'] if version == 2 else [
        'cpu.cfs_quota_us', 'cpu.cfs_period_us']
    # Microseconds in each period; "max" or -1 is no limit.
    texts = ' '.join(
        control_groups.read(root, directory, name) for name in names).split()
    if len(texts) == 2 and all(text.isdecimal() for text in texts):
      quota, period = map(int, texts)
      yield -(-quota // period)
