"""Tests of `unroll_sender`, with streams that break where hypothesis likes."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from scalable_agent.remote import stream as stream_lib
from scalable_agent.remote import unroll_sender

# What the sender looks at is who it was made for.
_Unroll = collections.namedtuple('_Unroll', 'index life')
# A stream answers so many messages, then takes in so many more of those that it
# was sent, and is gone. What follows it may be another learner.
_Breakage = collections.namedtuple('_Breakage', 'answers taken restart')

_BREAKAGES = st.lists(
    st.builds(_Breakage, st.integers(0, 4), st.integers(0, 3), st.booleans()),
    max_size=8)


class _Learner:
  """Takes what has a number beyond the last, as a session does."""

  def __init__(self, life):
    self.life = life
    self.taken = []
    self.last = 0

  def take(self, message):
    for sequence, unroll in message:
      if sequence > self.last:
        self.last = sequence
        self.taken.append(unroll)


class _Connection:
  """To a learner; there is another one when a stream of it broke."""

  def __init__(self, learner):
    self.learner = learner


class _World:
  """Learners, of which there is one at a time, and streams to it."""

  def __init__(self, breakages):
    self.learners = [_Learner(0)]
    self.most_under_way = 0
    self._connection = _Connection(self.learner)
    self._open = set()
    self._breakages = iter(breakages)

  @property
  def learner(self):
    return self.learners[-1]

  @property
  def num_open(self):
    return len(self._open)

  def connect(self):
    return self._connection

  def open_stream(self, method, connection):
    assert method == 'PutUnroll' and connection is self._connection
    stream = _Stream(self, connection.learner, next(self._breakages, None))
    self._open.add(stream)
    return stream

  @staticmethod
  def encode(connection, unrolls, first):
    message = [(i, unroll) for i, unroll in enumerate(unrolls, first)
               if unroll.life == connection.learner.life]
    return message, len(message)

  def end(self, stream):
    self._open.discard(stream)

  def lose(self, restart):
    if restart:
      self.learners.append(_Learner(self.learner.life + 1))
    self._connection = _Connection(self.learner)


class _Stream:
  """What stands for a `stream.Stream`."""

  def __init__(self, world, learner, breakage):
    self._world = world
    self._learner = learner
    self._breakage = breakage
    self._messages = collections.deque()
    self._num_answers = 0

  def send(self, message):
    assert message
    self._messages.append(message)
    self._world.most_under_way = max(
        self._world.most_under_way, len(self._messages))

  def receive(self):
    breakage = self._breakage
    if breakage and self._num_answers == breakage.answers:
      for message in list(self._messages)[:breakage.taken]:
        self._learner.take(message)
      self._world.end(self)
      self._world.lose(breakage.restart)
      raise stream_lib.Broken()
    self._num_answers += 1
    self._learner.take(self._messages.popleft())

  def close(self):
    self._world.end(self)


def _make_sender(world, most=2):
  return unroll_sender.UnrollSender(world, 'PutUnroll', world.encode, most)


@given(
    _BREAKAGES, st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
def test_every_unroll_arrives_once_in_order_at_the_learner_it_was_made_for(
    breakages, most, calls):
  world = _World(breakages)
  sender = _make_sender(world, most)
  sent = []
  for size, wait in calls:
    life = world.learner.life
    unrolls = [_Unroll(len(sent) + i, life) for i in range(size)]
    sent += unrolls
    sender.put(unrolls, wait)
    if wait:
      taken = [u for learner in world.learners for u in learner.taken]
      assert len(taken) + sender.num_dropped >= len(sent)
  sender.put([])

  taken = [u for learner in world.learners for u in learner.taken]
  assert taken == sorted(set(taken))
  assert all(u.life == learner.life
             for learner in world.learners for u in learner.taken)
  newest = world.learner
  assert newest.taken == [u for u in sent if u.life == newest.life]
  # A learner that went may have taken some without saying so.
  missing = len(sent) - len(taken)
  assert missing <= sender.num_dropped <= len(sent) - len(newest.taken)
  assert world.most_under_way <= 2
  assert world.num_open <= 1


def test_the_next_message_is_sent_before_the_last_is_answered():
  world = _World([])
  sender = _make_sender(world, most=1)
  sender.put([_Unroll(0, 0)], wait=False)
  assert world.most_under_way == 1 and not world.learner.taken
  sender.put([_Unroll(1, 0)], wait=False)
  assert world.most_under_way == 2
  assert world.learner.taken == [_Unroll(0, 0)]
  sender.put([])
  assert world.learner.taken == [_Unroll(0, 0), _Unroll(1, 0)]


def test_of_a_message_only_what_the_learner_cannot_use_is_dropped():
  world = _World([])
  sender = _make_sender(world, most=3)
  sender.put([_Unroll(0, 0), _Unroll(1, -1), _Unroll(2, 0), _Unroll(3, -1)])
  assert world.learner.taken == [_Unroll(0, 0), _Unroll(2, 0)]
  assert sender.num_dropped == 2


def test_a_learner_that_was_connected_to_again_gets_another_stream():
  """Another thread may have found that the connection is gone."""
  world = _World([])
  sender = _make_sender(world)
  sender.put([_Unroll(0, 0)], wait=False)
  world.lose(restart=True)
  sender.put([_Unroll(1, 1)])
  assert [learner.taken for learner in world.learners] == [[], [_Unroll(1, 1)]]
  assert sender.num_dropped == 1
  assert world.num_open == 1
