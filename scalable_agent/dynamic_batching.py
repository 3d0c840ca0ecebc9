"""Dynamic batching: concurrent calls of a function become one batched call.

Many actor threads each need the policy for their own environment, while an
accelerator prefers one large evaluation to many small ones. A function
decorated with `batch_fn` (or `batch_fn_with_options`) is called by every thread
as though it were alone; calls that are waiting at the same time are joined
along dimension 0, evaluated once, and split again.

The work is done by the callers: the caller that has waited longest (the leader)
assembles the batch and evaluates it, and the others sleep until it hands them
their part. A lone caller therefore pays for no thread switch at all, and there
is no background thread to start, to join, or to keep the process alive.
"""

import collections
import functools
import threading
import time

import numpy as np
import tree


class CancelledError(RuntimeError):
  """The batcher was closed before this call was evaluated."""


class ComputationError(RuntimeError):
  """The batched function raised; its exception is the `__cause__`.

  Each caller of the batch gets an instance of its own: threads that raise one
  shared exception would append to each other's traceback.
  """


def _with_leaves(nest, leaves):
  """Returns `nest` with other leaves; itself, at no cost, if it has them."""
  if all(mine is leaf for mine, leaf in zip(tree.flatten(nest), leaves)):
    return nest
  return tree.unflatten_as(nest, leaves)


class _Request:
  """One call: its inputs, then its outputs or its error."""

  __slots__ = ('args', 'leaves', 'size', 'deadline', 'batch', 'start',
               'outputs', 'error', 'done', '_signal')

  def __init__(self, args, timeout):
    self.args = args
    self.leaves = [np.asarray(leaf) for leaf in tree.flatten(args)]
    if not self.leaves:
      raise ValueError('A request needs at least one array.')
    for leaf in self.leaves:
      if not leaf.ndim:
        raise ValueError('Input shape must have a batch dimension. '
                         f'Shape observed: {leaf.shape}')
    self.size = len(self.leaves[0])
    if not self.size or any(len(leaf) != self.size for leaf in self.leaves):
      raise ValueError('All arrays of a request must have the same batch size, '
                       'at least 1. Batch sizes observed: '
                       f'{[len(leaf) for leaf in self.leaves]}')
    self.deadline = time.monotonic() + timeout
    self.batch = None  # The requests to evaluate, once this one leads.
    self.start = 0  # Of this request's entries within its batch.
    self.outputs = None
    self.error = None
    self.done = False
    # A binary semaphore rather than a shared condition: whoever is woken is the
    # one with something to do, and need not queue for the batcher's lock.
    self._signal = threading.Lock()
    self._signal.acquire()

  def wait(self, timeout):
    self._signal.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))

  def notify(self):
    """Ends the present `wait`, or else the next one.

    Needs the batcher's lock while the request is queued; afterwards only the
    leader of its batch may call this.
    """
    if self._signal.locked():
      self._signal.release()

  def finish(self, outputs=None, error=None):
    if not self.done:
      self.outputs = outputs
      self.error = error
      self.done = True
    self.notify()

  def mismatch(self, first):
    """The error that keeps this request out of the batch of `first`, if any."""
    try:
      tree.assert_same_structure(first.args, self.args)
    except (TypeError, ValueError):
      observed = ', '.join(
          repr(tree.map_structure(lambda unused_leaf: '*', request.args))
          for request in (first, self))
      return ValueError('Structures of inputs must be equal. '
                        f'Structures observed: {observed}')
    for a, b in zip(first.leaves, self.leaves):
      if a.shape[1:] != b.shape[1:]:
        return ValueError('Shapes of inputs must be equal beyond the batch '
                          f'dimension. Shapes observed: {a.shape}, {b.shape}')
      if a.dtype != b.dtype:
        return TypeError('Dtypes of inputs must be equal. '
                         f'Dtypes observed: {a.dtype}, {b.dtype}')
    return None


class _Batcher:
  """Queue of requests; the caller whose request is at its head leads."""

  def __init__(self, function, minimum, maximum, timeout):
    self._function = function
    self._minimum = minimum
    self._maximum = maximum
    self._timeout = timeout
    self._lock = threading.Lock()  # Guards everything below.
    self._waiting = collections.deque()
    self._waiting_entries = 0
    self._leader = None  # The request whose caller is evaluating a batch.
    self._closed = False
    self._batch_sizes = collections.Counter()

  def __call__(self, *args):
    request = _Request(args, self._timeout)
    if request.size > self._maximum:
      raise ValueError(f'A request of {request.size} entries exceeds '
                       f'maximum_batch_size={self._maximum}.')
    try:
      if self._wait(request):
        self._lead(request)
    except BaseException as error:  # Notably KeyboardInterrupt.
      self._abandon(request, error)
      raise
    if request.error is not None:
      raise request.error
    result, outputs = request.outputs
    stop = request.start + request.size
    return _with_leaves(result, [
        x if len(x) == request.size else x[request.start:stop]
        for x in outputs])

  def close(self):
    with self._lock:
      self._closed = True
      for request in self._waiting:
        request.finish(error=CancelledError('Batcher is closed'))
      self._waiting.clear()
      self._waiting_entries = 0

  def take_batch_sizes(self):
    with self._lock:
      batch_sizes, self._batch_sizes = self._batch_sizes, collections.Counter()
      return batch_sizes

  def waiting_entries(self):
    with self._lock:
      return self._waiting_entries

  def _wait(self, request):
    """Queues `request`; returns True to lead a batch, False once it is done."""
    with self._lock:
      if self._closed:
        request.finish(error=CancelledError('Batcher is closed'))
        return False
      self._waiting.append(request)
      self._waiting_entries += request.size
      # Only the head watches the clock, so an arrival matters to it only by
      # completing the minimum.
      if self._waiting_entries >= self._minimum and self._leader is None:
        self._notify_head()
    while True:
      timeout = float('inf')
      with self._lock:
        if (not request.done and self._waiting and
            self._waiting[0] is request and self._leader is None):
          timeout = request.deadline - time.monotonic()
          if self._waiting_entries >= self._minimum or timeout <= 0:
            self._take_batch(request)
            return True
      if request.done:
        return False
      request.wait(timeout)

  def _notify_head(self):
    if self._waiting:
      self._waiting[0].notify()

  def _take_batch(self, leader):
    """Moves the next batch, which begins with `leader`, out of the queue."""
    leader.batch = [self._waiting.popleft()]
    self._waiting_entries -= leader.size
    self._leader = leader
    size = leader.size
    while self._waiting and size + self._waiting[0].size <= self._maximum:
      request = self._waiting.popleft()
      self._waiting_entries -= request.size
      error = request.mismatch(leader)
      if error is not None:
        request.finish(error=error)
        continue
      request.start = size
      size += request.size
      leader.batch.append(request)
    self._batch_sizes[size] += 1

  def _lead(self, leader):
    """Evaluates the batch of `leader`; hands out the outputs or the error."""
    batch = leader.batch
    leaves = leader.leaves
    try:
      if len(batch) > 1:
        leaves = [np.concatenate(x) for x in zip(*[r.leaves for r in batch])]
      result = self._function(*_with_leaves(leader.args, leaves))
      outputs = [np.asarray(leaf) for leaf in tree.flatten(result)]
    except Exception as error:  # pylint: disable=broad-except
      self._finish_batch(leader, error_fn=_computation_error(error))
      return
    size = batch[-1].start + batch[-1].size
    for output in outputs:
      message = None
      if not output.ndim:
        message = ('Output shape must have a batch dimension. '
                   f'Shape observed: {output.shape}')
      elif len(output) != size:
        message = ('Output shape must have the same batch dimension as the '
                   f'input batch size. Expected: {size} '
                   f'Observed: {len(output)}')
      if message:
        self._finish_batch(leader, error_fn=lambda: ValueError(message))
        return
    self._finish_batch(leader, outputs=(result, outputs))

  def _finish_batch(self, leader, outputs=None, error_fn=lambda: None):
    # The next leader first: it has a batch to start, the others are finished.
    with self._lock:
      if self._leader is leader:
        self._leader = None
      self._notify_head()
    for request in leader.batch:
      request.finish(outputs, error_fn())

  def _abandon(self, request, error):
    """Withdraws a request whose caller was interrupted, hanging nobody."""
    with self._lock:
      if request in self._waiting:
        self._waiting.remove(request)
        self._waiting_entries -= request.size
      self._notify_head()
    if request.batch is not None:
      self._finish_batch(request, error_fn=_computation_error(error))


def _computation_error(cause):
  def error_fn():
    error = ComputationError(
        f'The batched function raised {type(cause).__name__}: {cause}')
    error.__cause__ = cause
    return error
  return error_fn


def batch_fn(f):
  """Batches concurrent calls of `f`; `batch_fn_with_options()` by default."""
  return batch_fn_with_options()(f)


def batch_fn_with_options(minimum_batch_size=1, maximum_batch_size=1024,
                          timeout_ms=100):
  """Decorator: concurrent calls of the function are evaluated as one batch.

      @batch_fn_with_options(minimum_batch_size=8, timeout_ms=10)
      def policy(observation):  # numpy [n, ...], n >= 8 unless it timed out.
        return network(observation)

      action = policy(observation[np.newaxis])  # From each of many threads.

  The decorated function takes positional arguments that are nests (as of
  dm-tree: tuples, named tuples, lists, dicts) of arrays or eager tensors whose
  dimension 0 is the batch dimension, equal within a call and at least 1. It
  blocks, and returns the nest that `f` returned with every leaf cut to the
  caller's own entries. Whatever the callers pass, `f` receives numpy arrays,
  and callers get numpy arrays.

  Arrays are not copied needlessly. Outputs are views of the batch's output, and
  a call that has a batch to itself reaches `f` with its own arrays, so that an
  `f` that returns its input gives the caller the array it passed in.

  `f` runs in the thread of one of the callers, one call at a time. While it
  does, calls accumulate, which is what makes batches grow under load.
  Thread-local state such as a device scope belongs inside `f`. `f` must not
  call the decorated function.

  The decorated function has these attributes:
    close(): ends the service. Calls not yet begun, and all later ones, raise
      `CancelledError`; a batch being evaluated is completed. Idempotent.
    take_batch_sizes(): a Counter of the sizes, in entries, of the batches begun
      since the last call of it.
    waiting_entries(): number of entries queued now, an int.

  Errors of a call of the decorated function:
    ValueError: its leaves have no batch dimension or not the same size >= 1, or
      it holds more than `maximum_batch_size` entries, or its structure or
      shapes differ from those of the first call in the batch. The other calls
      go on. For all calls in the batch: an output of `f` has no batch dimension
      or not the size of the batch.
    TypeError: its dtypes differ from those of the first call in the batch.
    ComputationError: `f` raised an Exception (the `__cause__`), for all calls
      in the batch. Any other BaseException, such as KeyboardInterrupt, passes
      unchanged through the caller whose thread it hit. The next batch starts
      as if nothing had happened.
    CancelledError: the batcher was closed.

  Args:
    minimum_batch_size: Entries that must be waiting for a batch to begin before
      its timeout, an int >= 1. A call may hold several entries and is never
      split, so a batch can still be smaller: if the next call does not fit.
    maximum_batch_size: Most entries in a batch. Calls join it in the order of
      their arrival until one does not fit.
    timeout_ms: Milliseconds after the arrival of the first waiting call at
      which a batch begins even if it is smaller than `minimum_batch_size`. None
      means never; 0 means at once.

  Returns:
    The decorator.

  Raises:
    ValueError: an option is out of range.
  """
  if not 1 <= minimum_batch_size <= maximum_batch_size:
    raise ValueError('1 <= minimum_batch_size <= maximum_batch_size does not '
                     f'hold: minimum_batch_size={minimum_batch_size}, '
                     f'maximum_batch_size={maximum_batch_size}.')
  if timeout_ms is not None and not timeout_ms >= 0:
    raise ValueError(f'timeout_ms must not be negative, was {timeout_ms}.')
  timeout = float('inf') if timeout_ms is None else timeout_ms / 1000

  def decorator(f):
    batcher = _Batcher(f, minimum_batch_size, maximum_batch_size, timeout)

    @functools.wraps(f)
    def wrapper(*args):
      return batcher(*args)

    wrapper.close = batcher.close
    wrapper.take_batch_sizes = batcher.take_batch_sizes
    wrapper.waiting_entries = batcher.waiting_entries
    return wrapper

  return decorator
