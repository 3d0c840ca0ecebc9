"""Two threads that use the same thing at the same time."""

import threading

_LONG = 30


def check_waits(monkeypatch, owner, name, first, second):
  """Checks that while one thread is in a method, another one has to wait.

  Args:
    monkeypatch: The fixture.
    owner: What has the method.
    name: Of the method.
    first: A function that calls the method, in the first thread.
    second: A function that has to wait until that has returned.
  """
  is_inside, may_go_on = threading.Event(), threading.Event()
  call = getattr(owner, name)

  def call_slowly(*args):
    is_inside.set()
    assert may_go_on.wait(_LONG)
    return call(*args)

  monkeypatch.setattr(owner, name, call_slowly)
  threads = [threading.Thread(target=work) for work in (first, second)]
  threads[0].start()
  assert is_inside.wait(_LONG)
  threads[1].start()
  threads[1].join(.2)
  assert threads[1].is_alive()
  may_go_on.set()
  for thread in threads:
    thread.join(_LONG)
    assert not thread.is_alive()
