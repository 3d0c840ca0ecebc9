"""Shows how far something is, on a terminal or in a log."""

import contextlib
import os
import sys

from absl import logging


class ProgressLine:
  """A line that is overwritten on a terminal, and log lines elsewhere."""

  def __init__(self, stream=None):
    self._stream = stream or sys.stderr
    self._is_terminal = self._stream.isatty()

  def show(self, text):
    """Shows `text` in place of what was shown before."""
    if not self._is_terminal:
      logging.info('%s', text)
      return
    with contextlib.suppress(OSError):  # The terminal may be gone.
      width = os.get_terminal_size(self._stream.fileno()).columns
      self._stream.write('\r\x1b[K' + text[:width - 1])
      self._stream.flush()

  def end(self):
    """Leaves the line as it is, so that what follows starts on its own."""
    if self._is_terminal:
      with contextlib.suppress(OSError):
        self._stream.write('\n')
        self._stream.flush()
