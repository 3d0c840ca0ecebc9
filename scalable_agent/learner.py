"""The learner: weights, their updates, and the replicas that share a batch.

The loss and its gradients are one function of tensors, which XLA may compile.
The sum over replicas and the update are outside of it: collectives cannot be
compiled, and everything that writes variables stays in one place. Losses are
sums, so the sum of the replicas' gradients is the gradient of the whole batch.
"""

import functools
import itertools

import numpy as np
import tensorflow as tf
import tree

from scalable_agent import gradients as gradients_lib
from scalable_agent import placing
from scalable_agent import rmsprop
from scalable_agent.networks import frames


def create_strategy(devices):
  """Returns the strategy for a list of device names: one or mirrored.

  A process has one for the same devices, whatever it trains in turn.
  """
  return _create_strategy(tuple(devices))


# A second strategy would number its collectives like the first, and TensorFlow
# refuses numbers that it knows if tensors have other shapes now.
@functools.cache
def _create_strategy(devices):
  if len(devices) == 1:
    return tf.distribute.OneDeviceStrategy(devices[0])
  return tf.distribute.MirroredStrategy(devices)


def annealed_learning_rate(learning_rate, total_frames, frames):
  """Linear decay to 0 in environment frames (paper, Table G.1)."""
  return learning_rate * (1. - min(frames, total_frames) / total_frames)


class Learner:
  """Variables, optimizer and the update of one or several replicas.

  Attributes:
    num_environment_frames: int64 variable, environment frames trained on.
    learner_steps: int64 variable, updates, those that were skipped included.
    params: A dict of name to variable, the weights.
    target_params: The same, the target weights; empty if there are none.
    optimizer: The optimizer.
  """

  def __init__(self, agent, loss_fn, optimizer, strategy, learning_rate, seed,
               frames_per_unroll, gradient_norm_clip=0.,
               target_update_period=0, jit_compile=False, num_parts=1):
    """Initializes the learner.

    Args:
      agent: An agent of `networks`.
      loss_fn: A function of params, target params (None if there are none) and
        the `placing.PlacedBatch` of some unrolls. It returns the loss, a
        float32 scalar that is summed over time and batch; a dict of what to
        log, float32 scalars that are to be summed over replicas, or pairs of
        these whose quotient is logged; and float32 [B] or None, the priorities
        of the unrolls.
      optimizer: A `rmsprop.RMSProp`, or what has its methods.
      strategy: The `tf.distribute.Strategy` to run under.
      learning_rate: A function of the environment frames trained on so far.
      seed: Seed of the initial weights.
      frames_per_unroll: Environment frames in one unroll.
      gradient_norm_clip: Norm to which the gradient over all weights is
        clipped; 0 does not clip.
      target_update_period: Updates after which the target weights become the
        weights; 0 for an algorithm without target weights.
      jit_compile: Whether XLA compiles loss and gradients.
      num_parts: Into how many parts each replica splits its unrolls, at the
        most. It computes their gradients side by side, and adds them up.
    """
    self._strategy = strategy
    self._learning_rate = learning_rate
    self._frames_per_unroll = frames_per_unroll
    self._gradient_norm_clip = gradient_norm_clip
    self._target_update_period = target_update_period
    self._num_parts = num_parts
    self.optimizer = optimizer
    self._log_names = []  # As tracing finds them.
    with tf.device('/cpu:0'):
      self.num_environment_frames = tf.Variable(0, dtype=tf.int64)
      self.learner_steps = tf.Variable(0, dtype=tf.int64)
    initial_params = agent.initial_params(seed)
    self._unit_biases = frames.unit_biases(initial_params)
    make_variables = lambda: {
        name: tf.Variable(value) for name, value in initial_params.items()}
    with strategy.scope():
      self.params = make_variables()
      self.target_params = make_variables() if target_update_period else {}
      self.optimizer.build(list(self.params.values()))
    self._gradients = tf.function(
        functools.partial(gradients_lib.loss_and_gradients, loss_fn),
        autograph=False, jit_compile=jit_compile)
    self._update = self._on_device(_Traced(self._replicated_update))
    self._apply = self._on_device(_Traced(self._apply_gradients))
    self._snapshot = self._on_device(_Traced(
        lambda: {k: v.read_value() for k, v in self._local_params().items()}))

  def _on_device(self, function):
    """Runs a function outside of replicas on the learner's first device."""
    device = self._strategy.extended.worker_devices[0]

    def call(*args):
      with tf.device(device):
        return function(*args)

    return call

  def _local_params(self):
    return {name: self._local(variable)
            for name, variable in self.params.items()}

  def _local(self, value):
    """The first of a value's copies on the devices here."""
    return self._strategy.experimental_local_results(value)[0]

  def variables(self):
    """All that a step changes, a list of variables in a fixed order."""
    return [*self.params.values(), *self.target_params.values(),
            *self.optimizer.variables(), self.num_environment_frames,
            self.learner_steps]

  def weights(self):
    """A copy of the weights, name to tensor, that later updates leave alone."""
    return self._snapshot()

  @property
  def frames(self):
    """Environment frames trained on so far."""
    return _read(self.num_environment_frames)

  @property
  def steps(self):
    """Updates so far."""
    return _read(self.learner_steps)

  def place(self, batch):
    """Puts a batch on the devices of the replicas.

    Args:
      batch: A `Batch` of NumPy arrays for B unrolls; B is a multiple of the
        number of replicas here, each of which gets its share.

    Returns:
      What `step` takes: `placing.PlacedBatch`es of the parts of the batch.

    Raises:
      ValueError: B is something else.
    """
    devices = self._strategy.extended.worker_devices
    share, left_over = divmod(len(batch.keys), len(devices))
    if left_over:
      raise ValueError(f'{len(batch.keys)} unrolls cannot be shared evenly by '
                       f'{len(devices)} replicas')
    num_parts = min(self._num_parts, share)
    num_new = len(batch.kept_versions) + np.count_nonzero(~batch.is_replayed)
    shares = []
    for i, device in enumerate(devices):
      ends = [i * share + j * share // num_parts for j in range(num_parts + 1)]
      shares.append([
          # Only the first part has the count, that of the whole batch.
          placing.place(
              batch, device, slice(start, end), 0 if start else num_new)
          for start, end in itertools.pairwise(ends)])
    if len(shares) == 1:
      return shares[0]
    distribute = self._strategy.experimental_distribute_values_from_function
    return tree.map_structure(
        # Other learners' replicas count too.
        lambda *ts: distribute(
            lambda c: ts[c.replica_id_in_sync_group % len(ts)]), *shares)

  def step(self, placed_batch):
    """Updates the weights once.

    A gradient that is not finite updates nothing; the frames count even so.

    Args:
      placed_batch: Of `place`.

    Returns:
      A pair. First a dict of floats to log: what the loss function says, summed
      over all learners (NaN if it is a mean of nothing); `learning_rate`; and
      `grad_norm` (before clipping), `dead_units`, the share of the torso's
      units, with the channels of convolutions among them, to whose bias the
      batch has no gradient, and `skipped`, 1 if the update was. Second the
      priorities of the batch, float32 [B], or None.
    """
    learning_rate = self._learning_rate(self.frames)
    values, priorities = self._update(placed_batch, _scalar(learning_rate))
    logs = dict(zip(self._log_names, values.numpy().tolist(), strict=True))
    self._count(round(logs.pop('num_new_unrolls')))
    if self.target_params and self.steps % self._target_update_period == 0:
      for name, target in self.target_params.items():
        target.assign(self.params[name])
    return (dict(logs, learning_rate=learning_rate),
            None if priorities is None else priorities.numpy())

  def apply(self, gradient):
    """Updates the weights by a gradient that was computed elsewhere.

    Args:
      gradient: The `Gradient` of one unroll.

    Returns:
      As `step`: a dict of floats to log, and None.
    """
    learning_rate = self._learning_rate(self.frames)
    applied = self._apply(
        gradient.dense, gradient.touched, _scalar(learning_rate))
    self._count(1)
    logs = {name: float(value)
            for name, value in {**gradient.logs, **applied}.items()}
    return dict(logs, learning_rate=learning_rate), None

  def _count(self, num_new_unrolls):
    self.num_environment_frames.assign_add(
        _scalar(num_new_unrolls * self._frames_per_unroll, np.int64),
        read_value=False)
    self.learner_steps.assign_add(1, read_value=False)

  def _replicated_update(self, parts, learning_rate):
    log_names = []

    def replica_fn(parts):
      params = {k: v.read_value() for k, v in self.params.items()}
      targets = {k: v.read_value() for k, v in self.target_params.items()}
      (gradients, touched), logs, priorities = gradients_lib.add([
          self._gradients(params, targets or None, part) for part in parts])
      logs = dict(logs, num_new_unrolls=tf.add_n(
          [part.num_new for part in parts]))
      log_names[:] = [(name, isinstance(value, tuple))
                      for name, value in logs.items()]
      return (gradients, touched, tf.stack(tree.flatten(list(logs.values()))),
              priorities)

    strategy = self._strategy
    gradients, touched, logs, priorities = strategy.run(
        replica_fn, args=(parts,))
    variables = list(self.params.values())
    # All at once, which collectives between machines are fastest at.
    reduced = strategy.extended.batch_reduce_to(
        tf.distribute.ReduceOp.SUM,
        [(gradients[name], variable) for name, variable in self.params.items()]
        + [(rows, variables[0]) for rows in touched.values()]
        + [(logs, variables[0])])
    gradients = dict(zip(self.params, reduced))
    touched = dict(zip(touched, reduced[len(gradients):]))
    logs = _unpack_logs(log_names, self._local(reduced[-1]))

    logs.update(self._apply_gradients(gradients, touched, learning_rate))
    if priorities is not None:
      priorities = tf.concat(
          strategy.experimental_local_results(priorities), axis=0)
    self._log_names = list(logs)
    return tf.stack(list(logs.values())), priorities

  def _apply_gradients(self, dense, touched, learning_rate):
    """Updates the weights, unless the norm of all gradients is not finite.

    Args:
      dense: A dict of name to gradient, the same at all replicas.
      touched: See `gradients.densify`.
      learning_rate: Float32 scalar tensor.

    Returns:
      A dict of what to log, float32 scalars.
    """
    norm = tf.linalg.global_norm(
        [self._local(dense[name]) for name in self.params])
    finite = tf.math.is_finite(norm)
    clip = self._gradient_norm_clip
    scale = clip / tf.maximum(norm, clip) if clip else tf.ones([])
    gradients = dict(dense, **{
        name: rmsprop.Rows(dense[name], touched[name]) for name in touched})
    # Outside of its scope, the optimizer would update the first replica alone.
    with self._strategy.scope():
      self.optimizer.apply_gradients(
          [(gradients[name], variable)
           for name, variable in self.params.items()],
          learning_rate, scale, finite)
    logs = dict(grad_norm=norm, skipped=tf.cast(~finite, tf.float32))
    if self._unit_biases:
      logs['dead_units'] = tf.reduce_mean(tf.concat([
          tf.cast(self._local(dense[name]) == 0., tf.float32)
          for name in self._unit_biases], axis=0))
    return logs


class _Traced:
  """A function of nests of tensors, traced once for each of their shapes.

  A call of a `tf.function` inspects every argument in Python, which takes as
  long as the update of a small network. A program that is called by itself
  does not. So arguments may differ in their shapes alone.
  """

  def __init__(self, function):
    # AutoGraph, which nothing here needs, takes seconds.
    self._function = tf.function(function, autograph=False)
    self._programs = {}

  def __call__(self, *args):
    shapes = tuple([
        leaf.shape for leaf in tf.nest.flatten(args, expand_composites=True)])
    if shapes not in self._programs:
      self._programs[shapes] = self._function.get_concrete_function(*args)
    return self._programs[shapes](*args)


def _read(count):
  """Returns an int, as `numpy()` does, which takes longer."""
  return int(tf.raw_ops.ReadVariableOp(
      resource=count.handle, dtype=count.dtype))


def _scalar(value, dtype=np.float32):
  """Returns a tensor; TensorFlow would keep every Python number for ever."""
  return tf.constant(np.array(value, dtype))


def _unpack_logs(names, values):
  """Returns the dict of logs whose sums over replicas are `values`, [N].

  Args:
    names: A list of pairs of a name and whether it is of a quotient.
    values: float32 [N], of each name its sum, or numerator and denominator.
  """
  values = iter(tf.unstack(values))
  return {name: (next(values) / next(values) if is_quotient else next(values))
          for name, is_quotient in names}
