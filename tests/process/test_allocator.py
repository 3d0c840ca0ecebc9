"""Tests of `allocator`, in processes of their own: it changes their memory."""

import subprocess
import sys

import pytest

# Prints how many pages the kernel handed out for twenty blocks of 1 MiB, which
# are used and freed many times.
_PROGRAM = '''
import resource
import sys
import numpy as np
from scalable_agent.process import allocator
if sys.argv[1] == 'keep':
  allocator.keep_freed_memory()
def use():
  [np.ones(1 << 20, np.uint8) for _ in range(20)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(int(sys.argv[2])):
  use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
'''


def _num_faults(mode, times):
  return int(subprocess.run(
      [sys.executable, '-c', _PROGRAM, mode, str(times)], check=True,
      timeout=60, capture_output=True, text=True).stdout)


def test_what_was_freed_is_used_again():
  if _num_faults('default', 5) < 1000:
    pytest.skip('this C library keeps freed memory by itself')
  assert _num_faults('keep', 100) < 100
