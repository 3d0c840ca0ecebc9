"""Finds the files with which Linux limits a container or a job."""

import os


def directories(root, controller):
  """Yields the directories of this process's groups that may have limits.

  A limit of a group counts for all groups in it.

  Args:
    root: The directory under which `proc` and `sys` are, '/' but in tests.
    controller: 'memory' or 'cpu'.

  Yields:
    A directory, which need not exist, relative to the root; and the version of
    control groups that it is of, 1 or 2.
  """
  # Lines of 'id:controllers:path', of version 2 if there is no controller.
  for line in read(root, 'proc/self/cgroup').splitlines():
    _, controllers, path = (line.split(':', 2) + ['other', ''])[:3]
    if not controllers:
      mounts, version = ['sys/fs/cgroup', 'sys/fs/cgroup/unified'], 2
    elif controller in controllers.split(','):
      mounts, version = [f'sys/fs/cgroup/{controller}'], 1
    else:
      continue
    # A container may see its own group as the root, and the path that the
    # machine has for it.
    parts = [part for part in path.split('/') if part not in ('', '..')]
    for mount in mounts:
      for i in range(len(parts) + 1):
        yield os.path.join(mount, *parts[:i]), version


def read(root, *path):
  """Returns a file's text, '' if it cannot be read."""
  try:
    with open(os.path.join(root, *path)) as f:
      return f.read()
  except (OSError, ValueError):
    return ''
