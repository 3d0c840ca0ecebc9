"""RMSProp with TensorFlow 1's numerics.

Differs from Keras's in two ways that matter at the paper's settings: epsilon is
inside the square root, and the mean square starts at one.

    ms  <- decay ms + (1 - decay) g^2           ms starts at 1
    mom <- momentum mom + lr g / sqrt(ms + epsilon)
    var <- var - mom
"""

import tensorflow as tf


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

  def apply_gradients(self, grads_and_vars, learning_rate=None, scale=1.0,
                      condition=True):
    """Updates variables and slots.

    Call outside of replica contexts, and in the scope of the strategy that the
    variables were made under: in another, only their first copy changes.

    Args:
      grads_and_vars: A list of (gradient, variable), the same variables in the
        same order at every call. With several replicas the gradients are
        already reduced, and mirrored like their variables.
      learning_rate: Float scalar tensor, or None for the constructor's.
      scale: Float scalar tensor that multiplies each gradient.
      condition: Bool scalar tensor; False leaves everything as it is.
    """
    grads_and_vars = list(grads_and_vars)
    self.build([variable for _, variable in grads_and_vars])
    if learning_rate is None:
      learning_rate = self._learning_rate
    learning_rate = tf.cast(learning_rate, tf.float32)
    condition = tf.convert_to_tensor(condition)
    extended = tf.distribute.get_strategy().extended
    for (gradient, variable), mean_square, momentum in zip(
        grads_and_vars, self.mean_square, self.momentum):
      extended.update(
          variable, self._update_variable,
          args=(gradient, mean_square, momentum, learning_rate, scale,
                condition))

  def _update_variable(self, variable, gradient, mean_square, momentum,
                       learning_rate, scale, condition):
    def update():
      tf.raw_ops.ResourceApplyRMSProp(
          var=variable.handle, ms=mean_square.handle, mom=momentum.handle,
          lr=learning_rate, rho=self._decay, momentum=self._momentum,
          epsilon=self._epsilon, grad=gradient * scale)
      return True

    return tf.cond(condition, update, lambda: False)
