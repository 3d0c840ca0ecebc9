"""Says how much memory processes have."""

import collections
import os
import re

_PSS = re.compile(r'^Pss:\s+(\d+) kB$', re.MULTILINE)


def of_family(pid=None, proc='/proc'):
  """Returns the memory of a process and of all that it has started.

  What several of them share counts once.

  Args:
    pid: Of the process, an int; None for this one.
    proc: Where the system tells.

  Returns:
    Bytes, an int. Processes that end meanwhile, or that the system says nothing
    of, count as 0.
  """
  children = collections.defaultdict(list)
  for name in os.listdir(proc):
    if name.isdecimal():
      # The name of the program, in parentheses, may hold anything.
      fields = _read(f'{proc}/{name}/stat').rpartition(')')[2].split()
      if len(fields) > 1:
        children[int(fields[1])].append(int(name))
  total, left = 0, [os.getpid() if pid is None else pid]
  while left:
    found = left.pop()
    left += children[found]
    for kilobytes in _PSS.findall(_read(f'{proc}/{found}/smaps_rollup')):
      total += 1024 * int(kilobytes)
  return total


def _read(path):
  try:
    with open(path, encoding='utf-8', errors='replace') as f:
      return f.read()
  except OSError:
    return ''
