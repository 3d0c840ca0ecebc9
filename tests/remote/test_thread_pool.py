import asyncio
import threading
import time

import pytest

from scalable_agent.remote import thread_pool

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture
def pool(monkeypatch):
  monkeypatch.setattr(thread_pool, '_IDLE_SECONDS', .1)
  pool = thread_pool.ThreadPool(4, 'pool')
  yield pool
  pool.close()
  assert len(pool) == 0


def test_calls_return_and_raise(pool):
  async def run():
    assert await pool.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
      await pool.call(divmod, 7, 0)
    name = await pool.call(lambda: threading.current_thread().name)
    assert name == 'pool'
  asyncio.run(run())


async def _meet(pool):
  """Has four calls wait for each other, and counts the threads meanwhile."""
  barrier = threading.Barrier(4 + 1)
  calls = [pool.call(barrier.wait, 30.) for _ in range(4)]
  assert len(pool) == 4
  barrier.wait(30.)
  await asyncio.gather(*calls)


def test_calls_are_made_at_the_same_time(pool):
  asyncio.run(_meet(pool))


def test_there_are_no_more_threads_than_allowed(pool):
  active, most = [], []
  barrier = threading.Barrier(4)

  def work(i):
    active.append(i)
    most.append(len(active))
    if i < 4:
      barrier.wait(30.)
    time.sleep(.002)
    active.remove(i)
    return i

  async def run():
    return await asyncio.gather(*(pool.call(work, i) for i in range(30)))
  assert asyncio.run(run()) == list(range(30))
  assert max(most) == 4


def test_who_gets_no_thread_of_the_system_waits_for_one(pool, monkeypatch):
  monkeypatch.setattr(
      threading.Thread, 'start', _start_if(lambda: len(pool) < 2))

  async def run():
    calls = [pool.call(time.sleep, .01) for _ in range(4)]
    assert len(pool) == 2
    await asyncio.wait_for(asyncio.gather(*calls), 60.)
  asyncio.run(run())


def test_a_system_without_threads_is_said(pool, monkeypatch):
  monkeypatch.setattr(threading.Thread, 'start', _start_if(lambda: False))

  async def run():
    with pytest.raises(RuntimeError, match='no thread is left'):
      pool.call(time.sleep, .01)
  asyncio.run(run())


def _start_if(may_start):
  """Returns what starts a thread, or raises as Python does."""
  start = threading.Thread.start

  def start_or_raise(thread):
    if not may_start():
      raise RuntimeError('no thread is left')
    start(thread)
  return start_or_raise


def test_idle_threads_end_and_are_made_again(pool):
  async def run():
    for _ in range(2):
      await _meet(pool)
      deadline = time.monotonic() + 30.
      while len(pool):
        assert time.monotonic() < deadline
        await asyncio.sleep(.01)
  asyncio.run(run())


def test_threads_end_where_fewer_would_do(pool):
  """Although none of them would be idle for long if they took turns."""
  barrier = threading.Barrier(4)

  async def run():
    await asyncio.gather(*(pool.call(barrier.wait, 30.) for _ in range(4)))
    deadline = time.monotonic() + 30.
    while len(pool) > 1:
      assert time.monotonic() < deadline
      await pool.call(int)
      await asyncio.sleep(.01)
  asyncio.run(run())


def test_a_call_that_nobody_waits_for_is_not_made():
  pool = thread_pool.ThreadPool(1, 'pool')
  go, made = threading.Event(), []

  async def run():
    first = pool.call(go.wait, 30.)
    second = pool.call(made.append, 2)
    third = pool.call(made.append, 3)
    second.cancel()
    go.set()
    await first
    await third
  asyncio.run(run())
  pool.close()
  assert made == [3]


def test_one_that_stops_waiting_harms_nobody(pool):
  go = threading.Event()

  async def run():
    for function in (go.wait, lambda: go.wait() and 1 / 0):
      go.clear()
      call = pool.call(function)
      await asyncio.sleep(.01)
      call.cancel()
      go.set()
      assert await pool.call(int) == 0
    await asyncio.to_thread(pool.close)
  asyncio.run(run())


def test_close_waits_for_calls_and_lets_no_more_in(pool):
  made = []

  async def run():
    call = pool.call(lambda: time.sleep(.05) or made.append(1))
    await asyncio.to_thread(pool.close)
    assert made == [1] and len(pool) == 0
    await call
    with pytest.raises(RuntimeError, match='closed'):
      pool.call(int)
  asyncio.run(run())


def test_what_was_passed_does_not_live_on(monkeypatch):
  class Large:
    is_alive = True
    def __del__(self):
      Large.is_alive = False

  monkeypatch.setattr(thread_pool, '_IDLE_SECONDS', 60.)
  pool = thread_pool.ThreadPool(1, 'pool')

  async def run():
    for _ in range(2):  # To a new thread, and to one that was idle.
      Large.is_alive = True
      await pool.call(id, Large())
      deadline = time.monotonic() + 30.
      while Large.is_alive:
        assert time.monotonic() < deadline
        await asyncio.sleep(.001)
      assert len(pool) == 1
  asyncio.run(run())
  pool.close()
