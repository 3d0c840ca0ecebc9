"""Says how much memory a process of this machine can have."""

import os
import re


def total_bytes(root='/'):
  """Returns the memory of the machine, or of this container if that is less.

  Args:
    root: The directory under which `proc` and `sys` are.

  Returns:
    Bytes, an int; None where the system does not say.
  """
  return _least(root, 'MemTotal')


def free_bytes(root='/'):
  """As `total_bytes`, of the machine what no process has yet."""
  return _least(root, 'MemAvailable')


def _least(root, name):
  found = re.findall(rf'^{name}:\s+(\d+) kB$', _read(root, 'proc/meminfo'),
                     re.MULTILINE)
  limits = [1024 * int(kilobytes) for kilobytes in found]
  for path in _limit_files(_read(root, 'proc/self/cgroup')):
    text = _read(root, path).strip()
    if text.isdecimal():  # Without a limit it is "max", or more than there is.
      limits.append(int(text))
  return min(limits, default=None)


def _limit_files(cgroups):
  """Yields the files that may hold a limit, relative to the root.

  Args:
    cgroups: The text of /proc/self/cgroup: 'id:controllers:path' lines, of
      version 2 if there is no controller.
  """
  for line in cgroups.splitlines():
    _, controllers, path = (line.split(':', 2) + ['other', ''])[:3]
    if not controllers:
      directories = ['sys/fs/cgroup', 'sys/fs/cgroup/unified']
      name = 'memory.max'
    elif 'memory' in controllers.split(','):
      directories, name = ['sys/fs/cgroup/memory'], 'memory.limit_in_bytes'
    else:
      continue
    # A limit of a group counts for those in it. A container may see its own
    # group as the root, and the path that the machine has for it.
    parts = [part for part in path.split('/') if part not in ('', '..')]
    for directory in directories:
      for i in range(len(parts) + 1):
        yield os.path.join(directory, *parts[:i], name)


def _read(root, path):
  try:
    with open(os.path.join(root, path)) as f:
      return f.read()
  except (OSError, ValueError):
    return ''
