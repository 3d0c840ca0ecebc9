"""Says how much memory a process of this machine can have."""

import collections
import re

from scalable_agent.machine import control_groups

_Names = collections.namedtuple('_Names', 'limit usage cache')
# What the kernel takes back from files before a group runs out counts as free.
_NAMES = {
    1: _Names('memory.limit_in_bytes', 'memory.usage_in_bytes',
              'total_inactive_file'),
    2: _Names('memory.max', 'memory.current', 'inactive_file')}


def total_bytes(root='/'):
  """Returns the memory of the machine, or of this container if that is less.

  Args:
    root: The directory under which `proc` and `sys` are.

  Returns:
    Bytes, an int; None where the system does not say.
  """
  limits = [limit for _, _, limit in _limited_groups(root)]
  return min(_of_machine(root, 'MemTotal') + limits, default=None)


def free_bytes(root='/'):
  """Returns how much of `total_bytes` is free; None likewise."""
  free = [max(limit - _used(root, directory, names), 0)
          for directory, names, limit in _limited_groups(root)]
  return min(_of_machine(root, 'MemAvailable') + free, default=None)


def _of_machine(root, name):
  text = control_groups.read(root, 'proc/meminfo')
  found = re.findall(rf'^{name}:\s+(\d+) kB$', text, re.MULTILINE)
  return [1024 * int(kilobytes) for kilobytes in found]


def _used(root, directory, names):
  """Bytes that the processes of a group have, 0 where it does not say."""
  usage = control_groups.read(root, directory, names.usage).strip()
  text = control_groups.read(root, directory, 'memory.stat')
  caches = re.findall(rf'^{names.cache} (\d+)$', text, re.MULTILINE)
  return int(usage) - sum(map(int, caches)) if usage.isdecimal() else 0


def _limited_groups(root):
  """Yields the groups of this process that have a limit.

  Args:
    root: As for `total_bytes`.

  Yields:
    The group's directory, relative to the root; the `_Names` of its files; and
    its limit in bytes.
  """
  for directory, version in control_groups.directories(root, 'memory'):
    names = _NAMES[version]
    text = control_groups.read(root, directory, names.limit).strip()
    if text.isdecimal():  # Without a limit it is "max", or more than there is.
      yield directory, names, int(text)
