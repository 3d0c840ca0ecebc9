import asyncio

import grpc
import pytest

from scalable_agent.remote import calls as calls_lib
from scalable_agent.remote import sessions as sessions_lib
from tests import clocks

pytestmark = pytest.mark.usefixtures('bounded')


class _Context:
  """In place of gRPC's."""

  def __init__(self, peer):
    self._peer = peer

  def peer(self):
    return self._peer


class _World:
  """Calls, their tasks, and the connections that were closed."""

  def __init__(self, monkeypatch, max_calls=100, max_bytes=1000):
    monkeypatch.setattr(calls_lib, '_MAX_CALLS', max_calls)
    self.clock = clocks.Clock(monkeypatch, calls_lib)
    self.closed = []
    self.calls = calls_lib.Calls(max_bytes, self.closed.append, 'the job')
    self.ended = {}

  async def open(self, name, num_bytes=1, lasts=True):
    """Opens a call whose other end says nothing; returns call and its end."""
    opened = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def serve():
      try:
        call = self.calls.begin(_Context(name), num_bytes, lasts)
      except calls_lib.Rejected as e:
        opened.set_exception(e)
        return
      opened.set_result(call)
      try:
        await over.wait()
      except asyncio.CancelledError:
        self.ended[name] = call.end
        if name.startswith('stuck'):  # Its status cannot be sent.
          await over.wait()

    task = asyncio.create_task(serve())
    call = await opened
    return call, over, task

  async def settle(self):
    for _ in range(5):
      await asyncio.sleep(0)


def _run(coroutine):
  asyncio.run(coroutine)


def test_the_number_is_bounded_and_who_is_silent_gives_way(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_calls=3)
    for name in 'abc':
      await world.open(name)
      world.clock.now += 1.
    await world.open('d')
    await world.settle()
    assert list(world.ended) == ['a'] and len(world.calls) == 3
    end = world.ended['a']
    assert end.code == grpc.StatusCode.UNAVAILABLE and 'room' in end.details
    await world.open('e')
    await world.settle()
    assert list(world.ended) == ['a', 'b']
  _run(run())


def test_who_is_heard_or_worked_for_does_not_give_way(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_calls=2)
    a, _, _ = await world.open('a')
    b, _, _ = await world.open('b')
    world.clock.now += 5.
    with a:
      with b:
        with pytest.raises(calls_lib.Rejected) as e:
          await world.open('c')
        assert e.value.code == grpc.StatusCode.UNAVAILABLE
      # It was heard of just now.
      with pytest.raises(calls_lib.Rejected):
        await world.open('c')
      world.clock.now += 1.5
      await world.open('c')
      await world.settle()
    assert list(world.ended) == ['b']
  _run(run())


def test_the_bytes_are_bounded(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_bytes=100)
    a, _, _ = await world.open('a', 60)
    with pytest.raises(calls_lib.Rejected):
      await world.open('b', 41)
    b, _, _ = await world.open('b', 20)
    world.calls.add_bytes(b, 20)
    with a, b:
      world.clock.now += 5.
      with pytest.raises(calls_lib.Rejected):
        world.calls.add_bytes(b, 1)
    with b:
      world.clock.now += 5.
      world.calls.add_bytes(b, 30)
    await world.settle()
    assert list(world.ended) == ['a']
    with pytest.raises(calls_lib.Rejected):  # However long it waits.
      world.clock.now += 5.
      await world.open('c', 101)
  _run(run())


def test_nobody_gives_way_to_what_finds_no_room_all_the_same(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_bytes=100)
    for name in 'abcd':
      await world.open(name, 20)
    world.clock.now += 5.
    big, _, _ = await world.open('big', 20)
    busy, _, _ = await world.open('busy', 60)
    await world.settle()
    assert sorted(world.ended) == ['a', 'b', 'c']
    with busy:
      with pytest.raises(calls_lib.Rejected) as e:
        world.calls.add_bytes(big, 21)
      assert e.value.code == grpc.StatusCode.UNAVAILABLE
      # It would never find room.
      with pytest.raises(calls_lib.Rejected) as e:
        world.calls.add_bytes(big, 81)
      assert e.value.code == grpc.StatusCode.FAILED_PRECONDITION
      await world.settle()
      assert sorted(world.ended) == ['a', 'b', 'c']
      world.calls.add_bytes(big, 20)
      await world.settle()
      assert sorted(world.ended) == ['a', 'b', 'c', 'd']
  _run(run())


def test_what_is_over_makes_room(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_calls=1, max_bytes=10)
    for name in 'abc':
      call, over, task = await world.open(name, 6)
      world.calls.add_bytes(call, 4)
      over.set()
      await task
      await world.settle()
      assert not len(world.calls) and not world.calls.silent
    assert not world.ended
  _run(run())


@pytest.mark.parametrize('lasts, seconds', [(True, 600), (False, 60)])
def test_silence_ends(monkeypatch, lasts, seconds):
  async def run():
    world = _World(monkeypatch)
    a, _, _ = await world.open('a', lasts=lasts)
    b, _, _ = await world.open('b', lasts=lasts)
    world.clock.now += seconds - 1
    with b:
      pass
    world.calls.check()
    await world.settle()
    assert not world.ended
    world.clock.now += 2
    with a:  # The learner makes it wait.
      world.calls.check()
    await world.settle()
    assert not world.ended
    world.clock.now += seconds
    world.calls.check()
    await world.settle()
    assert list(world.ended) == ['b']
    assert f'{seconds} s' in world.ended['b'].details
    world.clock.now += 1
    world.calls.check()
    await world.settle()
    assert list(world.ended) == ['b', 'a']
  _run(run())


def test_the_connection_of_a_call_that_does_not_end_is_closed(monkeypatch):
  async def run():
    world = _World(monkeypatch)
    await world.open('a')
    await world.open('stuck')
    world.clock.now += 1000
    world.calls.check()
    await world.settle()
    assert set(world.ended) == {'a', 'stuck'} and not len(world.calls)
    assert not world.closed
    world.clock.now += 6
    world.calls.check()
    assert world.closed == ['stuck']
  _run(run())


def test_answers_count_until_they_are_written(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_bytes=10)
    call, _, _ = await world.open('a', 4)
    with call.writes(6):
      with pytest.raises(calls_lib.Rejected):
        await world.open('b', 1)
    await world.open('b', 6)
    world.clock.now += .5
    with pytest.raises(calls_lib.Rejected):
      with call.writes(1):
        pass
    assert not world.ended and not world.closed
  _run(run())


def test_the_connection_of_who_does_not_read_an_answer_is_closed(monkeypatch):
  async def run():
    world = _World(monkeypatch, max_bytes=10)
    call, _, _ = await world.open('a', 4)
    with call.writes(6):
      world.clock.now += 1.
      await world.open('b', 10)
      assert world.closed == ['a']
    # What it gave way to is what there is.
    with pytest.raises(calls_lib.Rejected):
      await world.open('c', 1)
  _run(run())


def test_streams_of_a_session_are_bounded(monkeypatch):
  monkeypatch.setattr(calls_lib, '_MAX_STREAMS_PER_SESSION', 2)

  async def run():
    world = _World(monkeypatch)
    session, other = sessions_lib.Session([]), sessions_lib.Session([])
    a, _, _ = await world.open('a')
    b, over, task = await world.open('b')
    c, _, _ = await world.open('c')
    d, _, _ = await world.open('d')
    with a:  # Even one that waits for room in the queue.
      for _ in range(3):
        world.calls.join(a, session)
        world.calls.join(b, session)
      world.calls.join(d, other)
      world.calls.join(c, session)
      await world.settle()
    assert list(world.ended) == ['a'] and 'newer' in world.ended['a'].details
    assert a not in world.calls.silent and len(world.calls) == 3
    over.set()
    await task
    await world.settle()
    assert list(session.streams) == [c] and list(other.streams) == [d]
    world.calls.join(d, session)
    assert list(session.streams) == [c, d] and not other.streams
  _run(run())


def test_all_that_wait_for_the_other_end_are_ended(monkeypatch):
  async def run():
    world = _World(monkeypatch)
    a, _, _ = await world.open('a')
    await world.open('b')
    end = calls_lib.Rejected(grpc.StatusCode.OUT_OF_RANGE, 'over')
    with a:
      world.calls.end_all(end)
      await world.settle()
    assert world.ended == {'b': end}
  _run(run())


def test_a_call_that_has_an_answer_to_send_ends_after_it(monkeypatch):
  """gRPC raises an error where it is to send both at once."""
  async def run():
    world = _World(monkeypatch)
    call, _, _ = await world.open('a')
    end = calls_lib.Rejected(grpc.StatusCode.OUT_OF_RANGE, 'over')
    with pytest.raises(calls_lib.Rejected) as raised:
      with call.writes(1):
        world.calls.end_all(end)
        await world.settle()
        assert not world.ended
    assert raised.value is end
  _run(run())


@pytest.mark.parametrize('name,address', [
    ('ipv6:%5B::1%5D:53012', '[::1]:53012'),
    ('ipv4:10.0.0.1:80', '10.0.0.1:80'),
    ('ipv6:%5Bfe80::1%25eth0%5D:80', '[fe80::1%eth0]:80')])
def test_addresses_are_as_people_write_them(monkeypatch, name, address):
  async def run():
    call, _, _ = await _World(monkeypatch).open(name)
    assert call.address == address
  _run(run())
