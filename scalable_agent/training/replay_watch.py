"""Says when a run waits for the replay that it shares with others."""

import time

from absl import logging

# What is shorter is an exchange like any other.
_LEAST_SECONDS = 1.
_LONG_SECONDS = 30.
_LOG_SECONDS = 60.


class ReplayWatch:
  """Watches a `shared_replay.client.Client`, if there is one."""

  def __init__(self, shared_replay):
    """Initializes the watch; `shared_replay` may be None."""
    self._shared_replay = shared_replay
    self._logged_time = -_LOG_SECONDS

  def complaint(self, least_seconds=_LEAST_SECONDS):
    """Says in a clause what has been waited for so long; '' for nothing."""
    waits = self._shared_replay and self._shared_replay.waits()
    if not waits or waits[1] < least_seconds:
      return ''
    clause, seconds = waits
    return f'it {clause}, for {seconds:.0f} s so far'

  def check(self):
    """Logs the complaint, once a minute."""
    now = time.monotonic()
    if now - self._logged_time < _LOG_SECONDS:
      return
    complaint = self.complaint(_LONG_SECONDS)
    if complaint:
      self._logged_time = now
      logging.info('This run has no batch: %s.', complaint)
