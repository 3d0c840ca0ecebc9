"""Takes something away from a running process, and gives it back."""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import struct
import subprocess

_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10
_BALLAST = 'ballast'


# -- Space ---------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(path, megabytes):
  """Mounts a file system of so many megabytes; yields whether that worked."""
  os.makedirs(path)
  mounted = not subprocess.run(
      ['mount', '-t', 'tmpfs', '-o', f'size={megabytes}m', 'none', path],
      check=False, capture_output=True).returncode
  try:
    yield mounted
  finally:
    if mounted:
      # Lazily, if a process that was killed still holds a file of it.
      subprocess.run(['umount', '-l', path], check=True)
    shutil.rmtree(path, ignore_errors=True)


def can_mount(path):
  """Whether a small file system can be mounted below a directory."""
  with small_disk(os.path.join(path, 'try'), 1) as mounted:
    return mounted


@contextlib.contextmanager
def full_disk(path):
  """Fills a small file system to its last byte meanwhile."""
  ballast = os.path.join(path, _BALLAST)
  with open(ballast, 'wb', buffering=0) as f:
    for size in (1 << 16, 1):
      with contextlib.suppress(OSError):
        while True:
          f.write(bytes(size))
  try:
    yield
  finally:
    os.remove(ballast)


# -- Limits of the process -----------------------------------------------------


def _may_raise_hard_limits():
  """Whether this process has CAP_SYS_RESOURCE; in a container root may not."""
  with open('/proc/self/status') as f:
    capabilities, = (int(line.split()[1], 16) for line in f
                     if line.startswith('CapEff:'))
  return bool(capabilities >> 24 & 1)


@contextlib.contextmanager
def limited(program, name, soft, lowers_hard):
  """Lowers a resource limit of a program meanwhile.

  Args:
    program: A `program.Program`.
    name: Such as `resource.RLIMIT_FSIZE`.
    soft: The soft limit.
    lowers_hard: Whether the hard limit is lowered too, if this process may
      undo that.
  """
  try:
    before = resource.prlimit(program.pid, name)
  except ProcessLookupError:
    yield
    return
  hard = soft if lowers_hard and _may_raise_hard_limits() else before[1]
  program.limit({name: (soft, hard)})
  try:
    yield
  finally:
    program.limit({name: before})


# -- The directory -------------------------------------------------------------


@contextlib.contextmanager
def unwritable(path):
  """Lets nobody make, rename or remove files in a directory meanwhile."""
  if os.geteuid():
    mode = os.stat(path).st_mode
    os.chmod(path, 0o500)
    undo = lambda: os.chmod(path, mode)
  else:  # Whom a mode does not hold.
    _set_immutable(path, True)
    undo = lambda: _set_immutable(path, False)
  try:
    yield
  finally:
    undo()


def _set_immutable(path, on):
  fd = os.open(path, os.O_RDONLY)
  try:
    flags, = struct.unpack('l', fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))
    flags = flags | _IMMUTABLE if on else flags & ~_IMMUTABLE
    fcntl.ioctl(fd, _SET_FLAGS, struct.pack('l', flags))
  finally:
    os.close(fd)


def can_make_unwritable(path):
  """Whether `unwritable` works below a directory."""
  folder = os.path.join(path, 'try')
  os.makedirs(folder)
  try:
    with unwritable(folder):
      try:
        with open(os.path.join(folder, 'file'), 'w'):
          return False
      except OSError as e:
        return e.errno in (errno.EPERM, errno.EACCES)
  except OSError:
    return False
  finally:
    shutil.rmtree(folder)


@contextlib.contextmanager
def away(path):
  """Renames a directory meanwhile; yields a list of what is made in its place.

  The list is filled at the end.
  """
  elsewhere = path + '.away'
  os.rename(path, elsewhere)
  made = []
  try:
    yield made
  finally:
    if os.path.isdir(path):
      made.extend(sorted(os.listdir(path)) or ['an empty directory'])
      shutil.rmtree(path)
    os.rename(elsewhere, path)
