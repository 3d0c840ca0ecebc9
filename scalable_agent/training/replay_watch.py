"""Says that a run waits for replay: for its own to fill, or for other agents.
"""

import time

from absl import logging

# A shorter wait is an exchange like any other.
_LEAST_SECONDS = 1.
_LONG_SECONDS = 30.
_LOG_SECONDS = 60.
_FILL_LOG_SECONDS = 10.


class ReplayWatch:
  """Watches the replay that agents share, if there is one."""

  def __init__(self, shared_replay):
    """Initializes the watch; `shared_replay` is as for `run.Run`."""
    self._shared_replay = shared_replay
    self._logged_time = -_LOG_SECONDS

  def is_held(self):
    """Whether a replay job, which bounds such waits, holds up this run."""
    return self._shared_replay is not None and self._shared_replay.is_held()

  def complaint(self, least_seconds=_LEAST_SECONDS):
    """Returns a clause on what has been waited for so long; '' for nothing."""
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


class FillWatch:
  """Watches a source that may have to fill before its first batch."""

  def __init__(self, filling):
    """Initializes the watch with the source's method of that name."""
    self._filling = filling
    self._last = None
    self._logged_time = time.monotonic()

  def has_grown(self):
    """Whether the source has filled more since the last call; logs how far."""
    state = self._filling()
    has_grown = state is not None and state != self._last
    self._last = state
    now = time.monotonic()
    if has_grown and now - self._logged_time >= _FILL_LOG_SECONDS:
      self._logged_time = now
      logging.info('Replay has %d of the %d agent steps that the first update '
                   'needs (--replay_min_steps).', *state)
    return has_grown
