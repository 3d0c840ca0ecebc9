"""Tells the allocator of this process to keep freed memory."""

import ctypes

# Of glibc's malloc.h. The first may not be larger.
_M_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD = -3, 32 << 20
_M_TRIM_THRESHOLD, _KEPT_BYTES = -1, 256 << 20


def keep_freed_memory():
  """Keeps up to 256 MiB of what is freed, for what comes next.

  By default glibc gives back the memory that a step of a small policy has
  used. The next step needs it again, and the kernel zeroes each page of it,
  which costs an actor job a part of its speed. Large processes do not need
  this, because glibc learns from the size of what they free.

  Does nothing where the C library is another one.
  """
  mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
  if mallopt:
    mallopt(_M_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
