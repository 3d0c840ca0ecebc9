"""The memory of a process and of what it has started."""

import subprocess
import sys

from scalable_agent.process import memory_use

_MEGABYTE = 1 << 20
# Holds 40 MiB, and starts another process that does, which starts none.
_PROGRAM = '''
import subprocess, sys
if sys.argv[2] == 'parent':
  subprocess.Popen([sys.executable, '-c', sys.argv[1], '', 'child'])
held = bytearray(b'1') * (40 << 20)
print('ready\\n', end='', flush=True)  # At once, for both write to one pipe.
sys.stdin.read()
'''


def test_children_and_theirs_are_counted():
  before = memory_use.of_family()
  child = subprocess.Popen(
      [sys.executable, '-c', _PROGRAM, _PROGRAM, 'parent'],
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  try:
    for _ in range(2):
      assert child.stdout.readline() == 'ready\n'
    with_children = memory_use.of_family()
    assert 80 * _MEGABYTE < with_children - before < 160 * _MEGABYTE
    assert 80 * _MEGABYTE < memory_use.of_family(child.pid) < with_children
  finally:
    child.communicate()
  assert memory_use.of_family() - before < 40 * _MEGABYTE


def test_what_the_system_does_not_tell_counts_as_nothing(tmp_path):
  (tmp_path / '7').mkdir()
  (tmp_path / '7' / 'stat').write_text('')
  (tmp_path / '8').mkdir()
  (tmp_path / '8' / 'stat').write_text('8 (a) b) S 7 1')
  (tmp_path / '8' / 'smaps_rollup').write_text('Rss: 9 kB\nPss:      5 kB\n')
  (tmp_path / 'meminfo').write_text('')
  assert memory_use.of_family(7, str(tmp_path)) == 5 * 1024
  assert memory_use.of_family(9, str(tmp_path)) == 0
