"""RMSProp with TensorFlow 1's numerics.

Epsilon is inside the square root, and the mean square starts at one, where that
of Keras starts at zero. Both matter at the paper's settings.

    ms  <- decay ms + (1 - decay) g^2           ms starts at 1
    mom <- momentum mom + lr g / sqrt(ms + epsilon)
    var <- var - mom

A sparse gradient, `Rows`, does this to the rows that it has, and nothing to the
others: their mean square and their momentum do not decay.
"""

import collections

import tensorflow as tf

Rows = collections.namedtuple('Rows', 'values touched')
Rows.__doc__ = """The gradient of a variable of which some rows were used.

  values: The sum for each row, of the variable's shape.
  touched: float32 [rows], how often each row was used.
"""


def sum_rows(slices, num_rows):
  """Sums the values of a sparse gradient by row.

  Args:
    slices: A `tf.IndexedSlices` of values [N, ...]. Indices may repeat;
      negative ones stand for no row.
    num_rows: How many rows the whole has.

  Returns:
    `Rows`.
  """
  # Both sums leave out negative indices.
  return Rows(
      tf.math.unsorted_segment_sum(slices.values, slices.indices, num_rows),
      tf.math.unsorted_segment_sum(
          tf.ones_like(slices.indices, tf.float32), slices.indices, num_rows))


class RMSProp(tf.Module):
  """`tf.compat.v1.train.RMSPropOptimizer` for `tf.distribute`.

  The slots are attributes of the module, so a `tf.train.Checkpoint` of it saves
  them.
  """

  def __init__(self, learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10):
    """Initializes the optimizer.

    Args:
      learning_rate: Float, used where `apply_gradients` is given none.
      decay: Float, of the mean square.
      momentum: Float.
      epsilon: Float, inside the square root.
    """
    super().__init__(name='rmsprop')
    self._learning_rate = learning_rate
    self._decay = decay
    self._momentum = momentum
    self._epsilon = epsilon
    self.mean_square = []
    self.momentum = []

  def build(self, variables):
    """Creates the slots of `variables`, under the same strategy."""
    if self.mean_square:
      return
    for variable in variables:
      with tf.distribute.get_strategy().extended.colocate_vars_with(variable):
        self.mean_square.append(
            tf.Variable(tf.ones_like(variable), trainable=False))
        self.momentum.append(
            tf.Variable(tf.zeros_like(variable), trainable=False))

  def variables(self):
    """Returns a list of the slots: all mean squares, then all momenta.

    Both are in the order of the variables that `build` was given. As in
    TensorFlow 1 this is a method, where other `tf.Module`s have a property.
    """
    return [*self.mean_square, *self.momentum]

  def apply_gradients(self, grads_and_vars, learning_rate=None, scale=1.0,
                      condition=True):
    """Updates variables and slots.

    Call outside of replica contexts, and in the scope of the strategy that the
    variables were made under: in another, only their first copy changes.

    Args:
      grads_and_vars: A list of (gradient, variable), the same variables in the
        same order at every call. With several replicas the gradients are
        already reduced, and mirrored like their variables. A gradient is a
        tensor, `Rows`, or a `tf.IndexedSlices` as `sum_rows` takes it. One that
        is not mirrored is passed to every replica as it is.
      learning_rate: Float scalar tensor, or None for the constructor's.
      scale: Float scalar tensor that multiplies each gradient.
      condition: Bool scalar tensor; False leaves everything as it is.
    """
    grads_and_vars = list(grads_and_vars)
    self.build([variable for _, variable in grads_and_vars])
    if learning_rate is None:
      learning_rate = self._learning_rate
    learning_rate = tf.cast(learning_rate, tf.float32)
    extended = tf.distribute.get_strategy().extended

    def update():
      for (gradient, variable), mean_square, momentum in zip(
          grads_and_vars, self.mean_square, self.momentum):
        extended.update(
            variable, self._update_variable,
            args=(gradient, mean_square, momentum, learning_rate, scale))
      return True

    tf.cond(tf.convert_to_tensor(condition), update, lambda: False)

  def _update_variable(self, variable, gradient, mean_square, momentum,
                       learning_rate, scale):
    if isinstance(gradient, tf.IndexedSlices):
      gradient = sum_rows(gradient, variable.shape[0])
    if isinstance(gradient, Rows):
      self._update_rows(variable, gradient, mean_square, momentum,
                        learning_rate, scale)
    else:
      tf.raw_ops.ResourceApplyRMSProp(
          var=variable.handle, ms=mean_square.handle, mom=momentum.handle,
          lr=learning_rate, rho=self._decay, momentum=self._momentum,
          epsilon=self._epsilon, grad=gradient * scale)

  def _update_rows(self, variable, rows, mean_square, momentum, learning_rate,
                   scale):
    """Updates the rows of a sparse gradient.

    Not with `ResourceSparseApplyRMSProp`, which GPUs lack.
    """
    summed = rows.values * scale
    is_row = tf.reshape(
        rows.touched > 0., [-1] + [1] * (variable.shape.rank - 1))

    new_mean_square = (
        self._decay * mean_square + (1. - self._decay) * tf.square(summed))
    new_momentum = self._momentum * momentum + (
        learning_rate * summed * tf.math.rsqrt(new_mean_square + self._epsilon))
    variable.assign(tf.where(is_row, variable - new_momentum, variable))
    mean_square.assign(tf.where(is_row, new_mean_square, mean_square))
    momentum.assign(tf.where(is_row, new_momentum, momentum))
