"""Says how much memory a process of this machine can have."""

import collections
import os
import re

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
  found = re.findall(rf'^{name}:\s+(\d+) kB$', _read(root, 'proc/meminfo'),
                     re.MULTILINE)
  return [1024 * int(kilobytes) for kilobytes in found]


def _used(root, directory, names):
  """Bytes that the processes of a group have, 0 where it does not say."""
  usage = _read(root, directory, names.usage).strip()
  caches = re.findall(rf'^{names.cache} (\d+)$',
                      _read(root, directory, 'memory.stat'), re.MULTILINE)
  return int(usage) - sum(map(int, caches)) if usage.isdecimal() else 0


def _limited_groups(root):
  """Yields the groups of this process that have a limit.

  Args:
    root: As for `total_bytes`.

  Yields:
    The group's directory, relative to the root; the `_Names` of its files; and
    its limit in bytes.
  """
  for directory, names in _groups(_read(root, 'proc/self/cgroup')):
    text = _read(root, directory, names.limit).strip()
    if text.isdecimal():  # Without a limit it is "max", or more than there is.
      yield directory, names, int(text)


def _groups(cgroups):
  """Yields the directories that groups may have, and the names of their files.

  Args:
    cgroups: The text of /proc/self/cgroup: 'id:controllers:path' lines, of
      version 2 if there is no controller.
  """
  for line in cgroups.splitlines():
    _, controllers, path = (line.split(':', 2) + ['other', ''])[:3]
    if not controllers:
      directories, version = ['sys/fs/cgroup', 'sys/fs/cgroup/unified'], 2
    elif 'memory' in controllers.split(','):
      directories, version = ['sys/fs/cgroup/memory'], 1
    else:
      continue
    # A limit of a group counts for those in it. A container may see its own
    # group as the root, and the path that the machine has for it.
    parts = [part for part in path.split('/') if part not in ('', '..')]
    for directory in directories:
      for i in range(len(parts) + 1):
        yield os.path.join(directory, *parts[:i]), _NAMES[version]


def _read(root, *path):
  try:
    with open(os.path.join(root, *path)) as f:
      return f.read()
  except (OSError, ValueError):
    return ''
