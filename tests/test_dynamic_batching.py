"""Tests of scalable_agent.dynamic_batching.

No wait is unbounded: calls run in daemon threads whose results are fetched with
a timeout, and the functions being batched give up at a closed gate.
"""

import collections
import concurrent.futures
import random
import signal
import sys
import threading
import time

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent import dynamic_batching
from tests import clocks

_TIMEOUT = 60.0  # Seconds until something that should happen counts as hung.

Pair = collections.namedtuple('Pair', 'left right')


class Interrupt(BaseException):
  """Stands in for KeyboardInterrupt, which pytest itself would act on."""


def spawn(function, *args):
  """Calls `function` in a daemon thread; returns the future of its result."""
  future = concurrent.futures.Future()

  def run():
    try:
      future.set_result(function(*args))
    except BaseException as error:  # pylint: disable=broad-except
      future.set_exception(error)

  threading.Thread(target=run, daemon=True).start()
  return future


def get(future):
  return future.result(timeout=_TIMEOUT)


def error_of(future):
  error = future.exception(timeout=_TIMEOUT)
  assert error is not None
  return error


def wait_until(condition):
  limit = time.monotonic() + _TIMEOUT
  while not condition():
    assert time.monotonic() < limit, 'gave up waiting'
    time.sleep(0.0005)


def spawn_queued(wrapped, *args):
  """Spawns a call that has to wait; returns when it is in the queue."""
  before = wrapped.waiting_entries()
  future = spawn(wrapped, *args)
  wait_until(lambda: wrapped.waiting_entries() > before)
  return future


@pytest.fixture
def clock(monkeypatch):
  """The time that batchers see."""
  return clocks.Clock(monkeypatch, dynamic_batching)


def len_of(x):
  return np.full([len(x)], len(x))


def ints(*values):
  return np.array(values, np.int32)


class Gate:
  """Wraps a function so that its first `closed` evaluations wait for `open`."""

  def __init__(self, function=lambda x: x * 10, closed=1):
    self._function = function
    self._gates = [threading.Event() for _ in range(closed)]
    self._entered = [threading.Event() for _ in range(closed)]
    self._lock = threading.Lock()
    self.batches = []

  def __call__(self, *args):
    with self._lock:
      index = len(self.batches)
      self.batches.append(args[0])
    if index < len(self._gates):
      self._entered[index].set()
      assert self._gates[index].wait(_TIMEOUT)
    return self._function(*args)

  def open(self, index=0):
    self._gates[index].set()

  def wait_entered(self, index=0):
    assert self._entered[index].wait(_TIMEOUT)

  def sizes(self):
    with self._lock:
      return [len(batch) for batch in self.batches]


def occupied(function=lambda x: x * 10, first=ints(0), **options):
  """A batcher that is evaluating `first`, so that further calls queue."""
  gate = Gate(function)
  wrapped = dynamic_batching.batch_fn_with_options(**options)(gate)
  future = spawn(wrapped, first)
  gate.wait_entered()
  return wrapped, gate, future


# -- Batching -----------------------------------------------------------------


def test_one():
  @dynamic_batching.batch_fn
  def f(a, b):
    """Documented."""
    return a + b, np.full([len(a)], len(a))

  result, batch_size = get(spawn(f, np.array([[1, 3]]), np.array([[2]])))
  np.testing.assert_array_equal(result, [[3, 5]])
  np.testing.assert_array_equal(batch_size, [1])
  assert f.__name__ == 'f' and f.__doc__ == 'Documented.'


def test_two_are_merged():
  @dynamic_batching.batch_fn_with_options(minimum_batch_size=2, timeout_ms=None)
  def f(a, b):
    return a + b, np.full([len(a)], len(a))

  first = spawn_queued(f, ints(1), ints(2))
  second = spawn(f, ints(2), ints(3))
  for future, expected in (first, 3), (second, 5):
    result, batch_size = get(future)
    np.testing.assert_array_equal(result, [expected])
    np.testing.assert_array_equal(batch_size, [2])


def test_calls_accumulate_while_a_batch_is_evaluated():
  wrapped, gate, first = occupied()
  futures = [spawn_queued(wrapped, ints(i)) for i in range(1, 6)]
  gate.open()
  np.testing.assert_array_equal(get(first), [0])
  for i, future in enumerate(futures, 1):
    np.testing.assert_array_equal(get(future), [i * 10])
  assert gate.sizes() == [1, 5]
  np.testing.assert_array_equal(gate.batches[1], [1, 2, 3, 4, 5])


def test_requests_of_several_entries_are_split_where_they_were_joined():
  wrapped, gate, first = occupied(first=ints(0, 1))
  arguments = [ints(2), ints(3, 4, 5), ints(6, 7)]
  futures = [spawn_queued(wrapped, x) for x in arguments]
  assert wrapped.waiting_entries() == 6
  gate.open()
  np.testing.assert_array_equal(get(first), [0, 10])
  for future, x in zip(futures, arguments):
    np.testing.assert_array_equal(get(future), x * 10)
  assert gate.sizes() == [2, 6]


def test_many_small():
  sizes = []

  @dynamic_batching.batch_fn
  def f(a, b):
    sizes.append(len(a))
    return a + b

  def caller(thread):
    for i in range(thread, 400, 10):
      x = np.full([1, 5], i)
      np.testing.assert_array_equal(f(x, x), [[2 * i] * 5])

  for future in [spawn(caller, thread) for thread in range(10)]:
    get(future)
  assert sum(sizes) == 400


def test_nests_in_and_out():
  def f(pair, extra):
    assert isinstance(pair, Pair) and isinstance(extra, dict)
    return {'sum': pair.left + extra['b'][0],
            'rest': [Pair(pair.right, (extra['a'],))]}

  wrapped = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=2, timeout_ms=None)(f)
  futures = []
  for i in range(2):
    # The order of the keys of a dict is not part of its structure.
    extra = {'a': ints(i + 4), 'b': [ints(i + 8)]}
    extra = dict(sorted(extra.items(), reverse=bool(i)))
    futures.append(spawn(
        wrapped, Pair(ints(i), np.full([1, 2, 3], i, np.float32)), extra))
  for i, future in enumerate(futures):
    result = get(future)
    assert list(sorted(result)) == ['rest', 'sum']
    np.testing.assert_array_equal(result['sum'], [i * 2 + 8])
    (pair,) = result['rest']
    assert isinstance(pair, Pair) and isinstance(pair.right, tuple)
    assert pair.left.shape == (1, 2, 3) and pair.left.dtype == np.float32
    np.testing.assert_array_equal(pair.right[0], [i + 4])


def test_nests_keep_their_types():
  seen = []

  def f(nest):
    seen.append(type(nest))
    return nest

  for nest in (collections.OrderedDict(b=ints(1), a=ints(2)),
               collections.defaultdict(int, a=ints(1)), dict(a=ints(1)),
               [ints(1)], (ints(1),), Pair(ints(1), ints(2))):
    result = get(spawn(dynamic_batching.batch_fn(f), nest))
    assert type(result) is seen.pop() is type(nest)
    # As to an ordered dict, equality is of the order too.
    assert result == nest


def test_lone_request_is_not_copied_and_outputs_are_views():
  seen = []
  lone = dynamic_batching.batch_fn(lambda x: seen.append(x) or x)
  x = ints(1, 2)
  result = get(spawn(lone, x))
  assert seen[0] is x and np.shares_memory(result, x)

  output = np.arange(2)
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=2, timeout_ms=None)(lambda x: output)
  for future in [spawn(f, ints(0)) for _ in range(2)]:
    assert np.shares_memory(get(future), output)


def test_tensors():
  import tensorflow as tf

  @dynamic_batching.batch_fn_with_options(minimum_batch_size=2, timeout_ms=None)
  @tf.function(reduce_retracing=True)
  def f(a, b):
    return {'sum': a + b, 'size': tf.fill([tf.shape(a)[0]], tf.shape(a)[0])}

  futures = [spawn(f, tf.constant([[i, 3]]), np.int32([[2, i]]))
             for i in range(2)]
  for i, future in enumerate(futures):
    result = future.result(timeout=120)  # Tracing on a busy machine.
    assert isinstance(result['sum'], np.ndarray)
    np.testing.assert_array_equal(result['sum'], [[i + 2, i + 3]])
    np.testing.assert_array_equal(result['size'], [2])


# -- Minimum, maximum, timeout ------------------------------------------------


def test_too_few_are_batched_after_the_timeout(clock):
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=2, timeout_ms=500)(len_of)
  future = spawn_queued(f, ints(1))
  clock.now += .49
  with pytest.raises(concurrent.futures.TimeoutError):
    future.result(timeout=1.)
  clock.now += .02
  np.testing.assert_array_equal(get(future), [1])


def test_enough_are_batched_without_a_timeout():
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=2, timeout_ms=None)(len_of)
  futures = [spawn(f, ints(1)) for _ in range(2)]
  for future in futures:
    np.testing.assert_array_equal(get(future), [2])
  # The minimum is one of entries, not of calls.
  np.testing.assert_array_equal(get(spawn(f, ints(1, 2))), [2, 2])


def test_timeout_counts_from_the_first_arrival(clock):
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=3, timeout_ms=300)(len_of)
  first = spawn_queued(f, ints(1))
  clock.now += .2
  second = spawn_queued(f, ints(1))
  clock.now += .09
  with pytest.raises(concurrent.futures.TimeoutError):
    first.result(timeout=1.)
  clock.now += .02  # Too early if the second arrival had restarted the clock.
  np.testing.assert_array_equal(get(first), [2])
  np.testing.assert_array_equal(get(second), [2])


def test_timeout_zero_does_not_wait():
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=9, timeout_ms=0)(len_of)
  np.testing.assert_array_equal(get(spawn(f, ints(1))), [1])


@pytest.mark.parametrize('timeout_ms', [None, 1e20])
def test_endless_timeout(timeout_ms):
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=2, timeout_ms=timeout_ms)(len_of)
  first = spawn_queued(f, ints(1))
  with pytest.raises(concurrent.futures.TimeoutError):
    first.result(timeout=0.2)
  second = spawn(f, ints(1))
  np.testing.assert_array_equal(get(first), [2])
  np.testing.assert_array_equal(get(second), [2])


def test_waiting_is_not_busy():
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=9, timeout_ms=None)(len_of)
  futures = [spawn_queued(f, ints(1)) for _ in range(8)]
  before = time.process_time()
  time.sleep(1.)  # Of which other threads of the tests may use some.
  assert time.process_time() - before < .6
  futures.append(spawn(f, ints(1)))
  for future in futures:
    get(future)


def test_maximum_batch_size():
  wrapped, gate, first = occupied(maximum_batch_size=2)
  futures = [spawn_queued(wrapped, ints(i)) for i in range(1, 6)]
  gate.open()
  get(first)
  for i, future in enumerate(futures, 1):
    np.testing.assert_array_equal(get(future), [i * 10])
  assert gate.sizes() == [1, 2, 2, 1]


def test_requests_are_taken_in_order_and_never_split():
  wrapped, gate, first = occupied(maximum_batch_size=4)
  # The last would fit beside the first, but not in order. Their dtype is not
  # that of `first`: batches are independent of each other.
  futures = [spawn_queued(wrapped, np.arange(n)) for n in (3, 2, 2, 1)]
  gate.open()
  for future in [first] + futures:
    get(future)
  assert gate.sizes() == [1, 3, 4, 1]


def test_leftover_gets_its_own_timeout():
  wrapped, gate, first = occupied(
      first=ints(8, 9), minimum_batch_size=2, maximum_batch_size=2,
      timeout_ms=50)
  futures = [spawn_queued(wrapped, ints(i)) for i in range(3)]
  gate.open()
  for future in [first] + futures:
    get(future)
  assert gate.sizes() == [2, 2, 1]


def test_leftover_waits_for_the_minimum():
  wrapped, gate, first = occupied(
      first=ints(8, 9), minimum_batch_size=2, maximum_batch_size=2,
      timeout_ms=None)
  futures = [spawn_queued(wrapped, ints(i)) for i in range(3)]
  gate.open()
  for future in [first] + futures[:2]:
    get(future)
  assert wrapped.waiting_entries() == 1 and not futures[2].done()
  futures.append(spawn(wrapped, ints(3)))
  for i, future in enumerate(futures):
    np.testing.assert_array_equal(get(future), [i * 10])
  assert gate.sizes() == [2, 2, 2]


def test_static_size_when_minimum_is_maximum_and_no_timeout():
  gate = Gate(closed=0)
  wrapped = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=4, maximum_batch_size=4, timeout_ms=None)(gate)
  futures = [spawn(wrapped, ints(i)) for i in range(12)]
  for i, future in enumerate(futures):
    np.testing.assert_array_equal(get(future), [i * 10])
  assert gate.sizes() == [4, 4, 4]


def test_request_above_the_maximum_is_refused():
  f = dynamic_batching.batch_fn_with_options(maximum_batch_size=3)(len_of)
  with pytest.raises(ValueError, match='4 entries .*maximum_batch_size=3'):
    f(np.arange(4))
  np.testing.assert_array_equal(get(spawn(f, np.arange(3))), [3, 3, 3])


@pytest.mark.parametrize('options,numbers', [
    (dict(minimum_batch_size=5, maximum_batch_size=4), ('5', '4')),
    (dict(minimum_batch_size=1025), ('1025', '1024')),
    (dict(minimum_batch_size=0), ('0',)),
    (dict(timeout_ms=-7), ('-7',)),
    (dict(timeout_ms=float('nan')), ('nan',)),
])
def test_options_out_of_range(options, numbers):
  with pytest.raises(ValueError) as info:
    dynamic_batching.batch_fn_with_options(**options)
  for number in numbers:
    assert number in str(info.value)


def test_one_batch_at_a_time():
  lock = threading.Lock()
  running = [0]
  most = [0]

  @dynamic_batching.batch_fn_with_options(maximum_batch_size=2)
  def f(x):
    with lock:
      running[0] += 1
      most[0] = max(most[0], running[0])
    time.sleep(0.002)
    with lock:
      running[0] -= 1
    return x

  for future in [spawn(f, ints(i)) for i in range(60)]:
    get(future)
  assert most[0] == 1


# -- Errors -------------------------------------------------------------------


@pytest.mark.parametrize('good,bad,error,stated', [
    (ints(1), np.int32([[1]]), ValueError, ('Shapes of inputs', '(1,)',
                                            '(1, 1)')),
    (np.zeros([1, 2]), np.zeros([1, 3]), ValueError, ('(1, 2)', '(1, 3)')),
    (ints(1), np.int64([1]), TypeError, ('int32', 'int64')),
    (ints(1), np.float32([1]), TypeError, ('int32', 'float32')),
    (ints(1), (ints(1),), ValueError, ("('*',)", "('*',),")),
    ((ints(1), ints(1)), [ints(1), ints(1)], ValueError,
     ("('*', '*')", "['*', '*']")),
    ({'a': ints(1)}, {'b': ints(1)}, ValueError, ("'a'", "'b'")),
    (Pair(ints(1), ints(1)), (ints(1), ints(1)), ValueError, ('Pair(',)),
])
@pytest.mark.parametrize('position', [1, 2])
def test_mismatch_reaches_only_the_offender(good, bad, error, stated, position):
  wrapped, gate, first = occupied(len_of_nest)
  requests = [good, good]
  requests.insert(position, bad)
  futures = [spawn_queued(wrapped, x) for x in requests]
  gate.open()
  get(first)
  offender = futures.pop(position)
  assert isinstance(error_of(offender), error)
  for text in stated:
    assert text in str(error_of(offender))
  for future in futures:
    np.testing.assert_array_equal(get(future), [2])
  # The offender is no part of the next batch either, and may call again.
  np.testing.assert_array_equal(get(spawn(wrapped, bad)), [1])
  assert wrapped.waiting_entries() == 0
  assert wrapped.take_batch_sizes() == {1: 2, 2: 1}


def len_of_nest(x):
  while not isinstance(x, np.ndarray):
    x = list(x.values() if isinstance(x, dict) else x)[0]
  return len_of(x)


@pytest.mark.parametrize('args,stated', [
    ((ints(1, 2), ints(1, 2, 3)), r'\[2, 3\]'),
    ((np.int32(1),), r'batch dimension.*\(\)'),
    ((ints(1), 5), r'batch dimension.*\(\)'),
    ((ints(),), r'\[0\]'),
    ((), 'at least one array'),
    (({},), 'at least one array'),
])
def test_malformed_request(args, stated):
  f = dynamic_batching.batch_fn(lambda *args: args[0])
  with pytest.raises(ValueError, match=stated):
    f(*args)
  np.testing.assert_array_equal(get(spawn(f, ints(1))), [1])
  assert f.take_batch_sizes() == {1: 1}


@pytest.mark.parametrize('output,stated', [
    (np.int32(1), 'Output shape must have a batch dimension. '
     'Shape observed: ()'),
    (np.zeros([4]), 'Output shape must have the same batch dimension as the '
     'input batch size. Expected: 3 Observed: 4'),
    ((np.zeros([3]), np.zeros([2, 3])), 'Expected: 3 Observed: 2'),
    ({'a': np.zeros([3]), 'b': None}, 'Output shape must have a batch'),
])
def test_wrong_output_reaches_every_caller_of_the_batch(output, stated):
  wrapped, gate, first = occupied(lambda x: output if len(x) == 3 else x)
  futures = [spawn_queued(wrapped, ints(1)), spawn_queued(wrapped, ints(1, 2))]
  gate.open()
  np.testing.assert_array_equal(get(first), [0])
  errors = [error_of(future) for future in futures]
  assert errors[0] is not errors[1]
  for error in errors:
    assert isinstance(error, ValueError)
    assert stated in str(error)
  np.testing.assert_array_equal(get(spawn(wrapped, ints(5))), [5])


def test_no_output_is_an_output():
  assert get(spawn(dynamic_batching.batch_fn(lambda x: ()), ints(1))) == ()


def test_exception_reaches_every_caller_of_the_batch_and_no_other():
  def f(x):
    if len(x) == 3:
      raise KeyError('broken')
    return x

  wrapped, gate, first = occupied(f, maximum_batch_size=3)
  futures = [spawn_queued(wrapped, ints(i)) for i in range(4)]
  gate.open()
  np.testing.assert_array_equal(get(first), [0])
  errors = [error_of(future) for future in futures[:3]]
  assert len(set(map(id, errors))) == 3
  for error in errors:
    assert isinstance(error, dynamic_batching.ComputationError)
    assert "KeyError: 'broken'" in str(error)
    assert isinstance(error.__cause__, KeyError)
    assert error.__cause__ is errors[0].__cause__
    depth = 0
    traceback = error.__traceback__
    while traceback:
      depth += 1
      traceback = traceback.tb_next
    assert depth == 3  # run() of this file, the wrapper, the batcher.
  np.testing.assert_array_equal(get(futures[3]), [3])
  np.testing.assert_array_equal(get(spawn(wrapped, ints(7))), [7])


def test_interrupt_in_the_leader_reaches_the_followers():
  def f(x):
    if len(x) == 3:
      raise Interrupt()
    return x

  wrapped, gate, first = occupied(f, maximum_batch_size=3)
  futures = [spawn_queued(wrapped, ints(i)) for i in range(5)]
  gate.open()
  get(first)
  assert isinstance(error_of(futures[0]), Interrupt)
  for future in futures[1:3]:
    error = error_of(future)
    assert isinstance(error, dynamic_batching.ComputationError)
    assert isinstance(error.__cause__, Interrupt)
  for i in (3, 4):
    np.testing.assert_array_equal(get(futures[i]), [i])


@pytest.mark.skipif(not hasattr(signal, 'pthread_kill'), reason='needs signals')
@pytest.mark.parametrize('timeout_ms', [None, 1000])
def test_interrupt_of_a_waiting_caller_hangs_nobody(timeout_ms, clock):
  wrapped = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=3, timeout_ms=timeout_ms)(len_of)
  watchdog = threading.Timer(_TIMEOUT, wrapped.close)
  watchdog.daemon = True
  watchdog.start()

  def interrupt_main():
    wait_until(lambda: wrapped.waiting_entries() == 1)
    follower = spawn_queued(wrapped, ints(1))
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    return follower

  def handler(*_):
    raise Interrupt()

  previous = signal.signal(signal.SIGUSR1, handler)
  try:
    helper = spawn(interrupt_main)
    with pytest.raises(Interrupt):
      wrapped(ints(0))
  finally:
    signal.signal(signal.SIGUSR1, previous)
  # Before, nobody's time was up, however busy the machine.
  clock.now += 1.
  # The follower is now at the head, and leads once the minimum is complete or
  # its time is up.
  futures = [get(helper)]
  if timeout_ms is None:
    assert wrapped.waiting_entries() == 1
    futures += [spawn(wrapped, ints(i)) for i in range(2)]
  for future in futures:
    np.testing.assert_array_equal(get(future), [len(futures)])
  watchdog.cancel()


# -- Closing ------------------------------------------------------------------


def test_close_cancels_waiting_calls_and_completes_the_running_batch():
  wrapped, gate, first = occupied()
  futures = [spawn_queued(wrapped, ints(i)) for i in range(3)]
  wrapped.close()
  for future in futures:  # Before the running batch is through.
    assert isinstance(error_of(future), dynamic_batching.CancelledError)
  assert wrapped.waiting_entries() == 0
  assert not first.done()
  gate.open()
  np.testing.assert_array_equal(get(first), [0])
  wrapped.close()
  with pytest.raises(dynamic_batching.CancelledError, match='closed'):
    wrapped(ints(1))
  assert gate.sizes() == [1]


@pytest.mark.parametrize('timeout_ms', [None, 1e6])
def test_close_wakes_calls_waiting_for_the_minimum(timeout_ms):
  f = dynamic_batching.batch_fn_with_options(
      minimum_batch_size=9, timeout_ms=timeout_ms)(len_of)
  futures = [spawn_queued(f, ints(i)) for i in range(3)]
  f.close()
  for future in futures:
    assert isinstance(error_of(future), dynamic_batching.CancelledError)


def test_close_before_use_and_twice():
  f = dynamic_batching.batch_fn(len_of)
  f.close()
  f.close()
  for _ in range(2):
    with pytest.raises(dynamic_batching.CancelledError):
      f(ints(1))
  assert issubclass(dynamic_batching.CancelledError, RuntimeError)


def test_close_from_within_the_function():
  box = []
  f = dynamic_batching.batch_fn(lambda x: box[0].close() or x)
  box.append(f)
  np.testing.assert_array_equal(get(spawn(f, ints(3))), [3])
  assert isinstance(error_of(spawn(f, ints(3))),
                    dynamic_batching.CancelledError)


def test_batchers_are_independent():
  decorator = dynamic_batching.batch_fn_with_options()
  one, other = decorator(len_of), decorator(len_of)
  one.close()
  np.testing.assert_array_equal(get(spawn(other, ints(1))), [1])
  assert one.take_batch_sizes() == {}


def test_batch_sizes_are_taken_and_reset():
  wrapped, gate, first = occupied(first=ints(0, 0))
  futures = [spawn_queued(wrapped, ints(1)) for _ in range(3)]
  assert wrapped.take_batch_sizes() == {2: 1}
  assert wrapped.take_batch_sizes() == {}
  gate.open()
  for future in [first] + futures:
    get(future)
  assert wrapped.take_batch_sizes() == {3: 1}


# -- Properties and races -----------------------------------------------------


@hypothesis.settings(max_examples=60, database=None)
@hypothesis.given(
    data=st.data(), maximum=st.integers(1, 12),
    timeout_ms=st.sampled_from([0, 1, 3]))
def test_every_call_gets_its_own_answer(data, maximum, timeout_ms):
  minimum = data.draw(st.integers(1, maximum))
  sizes = data.draw(st.lists(st.integers(1, maximum), min_size=1, max_size=24))
  num_threads = data.draw(st.integers(1, 8))
  batches = []

  @dynamic_batching.batch_fn_with_options(minimum, maximum, timeout_ms)
  def f(x, y):
    batches.append(x[:, 0].copy())
    return {'a': (x * 3, y - 1)}

  ends = np.cumsum(sizes)
  entries = int(ends[-1])
  requests = [np.arange(end - n, end) for end, n in zip(ends, sizes)]
  barrier = threading.Barrier(num_threads)

  def caller(thread):
    barrier.wait(_TIMEOUT)
    for x in requests[thread::num_threads]:
      a, b = f(np.stack([x, -x], axis=1), x.astype(np.float32))['a']
      np.testing.assert_array_equal(a, np.stack([x * 3, -x * 3], axis=1))
      np.testing.assert_array_equal(b, x - 1)
      assert b.dtype == np.float32

  for future in [spawn(caller, thread) for thread in range(num_threads)]:
    get(future)
  assert max(map(len, batches)) <= maximum
  np.testing.assert_array_equal(
      np.sort(np.concatenate(batches)), np.arange(entries))
  assert f.take_batch_sizes() == collections.Counter(map(len, batches))
  assert f.waiting_entries() == 0


@hypothesis.settings(max_examples=40, database=None)
@hypothesis.given(data=st.data(), maximum=st.integers(1, 8))
def test_queue_is_cut_greedily(data, maximum):
  # With everything queued beforehand the batches are known exactly.
  sizes = data.draw(st.lists(st.integers(1, maximum), min_size=1, max_size=8))
  wrapped, gate, first = occupied(maximum_batch_size=maximum)
  futures = [spawn_queued(wrapped, np.full([n], i, np.int32))
             for i, n in enumerate(sizes)]
  gate.open()
  get(first)
  expected = [1, 0]
  for i, (future, n) in enumerate(zip(futures, sizes)):
    np.testing.assert_array_equal(get(future), [i * 10] * n)
    if expected[-1] + n > maximum:
      expected.append(0)
    expected[-1] += n
  assert gate.sizes() == expected


def test_closing_while_threads_race():
  interval = sys.getswitchinterval()
  sys.setswitchinterval(1e-5)
  answered = 0
  try:
    for seed in range(30):
      rng = random.Random(seed)
      least, delay = rng.randint(0, 12), rng.uniform(0, 0.005)
      minimum = rng.randint(1, 4)
      sleep = rng.choice([0, 0.0002])

      @dynamic_batching.batch_fn_with_options(
          minimum, 6, rng.choice([None, 0, 1, 5]))
      def f(x):
        if sleep:  # pylint: disable=cell-var-from-loop
          time.sleep(sleep)  # pylint: disable=cell-var-from-loop
        if (x == 13).any():
          raise KeyError()
        return x + 1

      answers = []

      def caller(thread, f=f, seed=seed, answers=answers):
        rng = random.Random(seed * 100 + thread)
        while True:
          x = np.full([rng.randint(1, 3)], rng.randrange(40))
          if not rng.randrange(20):
            x = x.astype(np.float32)
          try:
            np.testing.assert_array_equal(f(x), x + 1)
            answers.append(thread)
          except dynamic_batching.CancelledError:
            return
          except (dynamic_batching.ComputationError, TypeError):
            pass

      futures = [spawn(caller, thread) for thread in range(8)]
      wait_until(lambda n=least, found=answers: len(found) >= n)
      time.sleep(delay)
      for closer in [spawn(f.close) for _ in range(2)]:
        get(closer)
      for future in futures:
        get(future)
      answered += len(answers)
      assert f.waiting_entries() == 0
  finally:
    sys.setswitchinterval(interval)
  assert answered > 100  # As many were waited for.
