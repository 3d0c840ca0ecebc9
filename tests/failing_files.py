"""Files that cannot be read for a while, as on a network file system."""

import builtins
import errno
import os


def fail(monkeypatch, name, times=10**9):
  """Has looking at paths that end with `name`, and opening them, raise EIO."""
  failed = []

  def failing(function):
    def call(path, *args, **kwargs):
      if str(path).endswith(name) and len(failed) < times:
        failed.append(path)
        raise OSError(errno.EIO, 'Input/output error', str(path))
      return function(path, *args, **kwargs)
    return call

  for module, function in ((os, 'stat'), (os, 'open'), (builtins, 'open')):
    monkeypatch.setattr(module, function, failing(getattr(module, function)))
