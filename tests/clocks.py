"""A clock that a test moves."""


class Clock:
  """In place of the module `time`, in which time stands still by itself.

  Attributes:
    now: What the clock says, in seconds.
  """

  def __init__(self, monkeypatch, *modules):
    """Initializes the clock, which the modules see from now on."""
    self.now = 1000.
    for module in modules:
      monkeypatch.setattr(module, 'time', self)

  def monotonic(self):
    return self.now

  def perf_counter(self):
    return self.now
