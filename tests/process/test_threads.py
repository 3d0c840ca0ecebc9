"""Threads whose names the operating system shows."""

import threading

from scalable_agent.process import threads


def _shown(thread):
  with open(f'/proc/self/task/{thread.native_id}/comm') as f:
    return f.read().strip()


def test_names_are_shown():
  stop = threading.Event()
  others = [threading.Thread(target=stop.wait, name=name)
            for name in ('actor-7', 'a very long name of it')]
  for thread in others:
    thread.start()
  me = threading.current_thread()
  before = _shown(me)
  try:
    threads.show_names({me: 'learner'})
    assert list(map(_shown, [me, *others])) == [
        'learner', 'actor-7', 'a very long nam']
  finally:
    threads.show_names({me: before})
    stop.set()
    for thread in others:
      thread.join()
