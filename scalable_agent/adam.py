"""Adam (Kingma and Ba, 2015), with the methods of `rmsprop.RMSProp`.

    m   <- beta_1 m + (1 - beta_1) g             both start at 0
    v   <- beta_2 v + (1 - beta_2) g^2
    var <- var - lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon)
"""

import tensorflow as tf


class Adam(tf.Module):
  """Adam for `tf.distribute`, whose slots a `tf.train.Checkpoint` saves.

  It takes dense gradients alone.
  """

  def __init__(self, beta_1=0.9, beta_2=0.999, epsilon=1e-8):
    """Initializes the optimizer.

    Args:
      beta_1: Float, decay of the mean gradient.
      beta_2: Float, decay of the mean square.
      epsilon: Float, outside the square root.
    """
    super().__init__(name='adam')
    self._beta_1 = beta_1
    self._beta_2 = beta_2
    self._epsilon = epsilon
    self.mean = []
    self.mean_square = []
    self.updates = None

  def build(self, variables):
    """Creates the slots of `variables`, under the same strategy."""
    if self.mean:
      return
    self.updates = tf.Variable(0, dtype=tf.int64, trainable=False)
    for variable in variables:
      with tf.distribute.get_strategy().extended.colocate_vars_with(variable):
        for slots in self.mean, self.mean_square:
          slots.append(tf.Variable(tf.zeros_like(variable), trainable=False))

  def variables(self):
    """Returns a list: all means, all mean squares, and the count of updates."""
    return [*self.mean, *self.mean_square, self.updates]

  def apply_gradients(self, grads_and_vars, learning_rate, scale=1.0,
                      condition=True):
    """Updates variables and slots, see `RMSProp`."""
    grads_and_vars = list(grads_and_vars)
    self.build([variable for _, variable in grads_and_vars])
    learning_rate = tf.cast(learning_rate, tf.float32)
    extended = tf.distribute.get_strategy().extended

    def update():
      extended.update(self.updates, lambda updates: updates.assign_add(1))
      for (gradient, variable), mean, mean_square in zip(
          grads_and_vars, self.mean, self.mean_square):
        extended.update(
            variable, self._update_variable,
            args=(gradient, mean, mean_square, self.updates, learning_rate,
                  scale))
      return True

    tf.cond(tf.convert_to_tensor(condition), update, lambda: False)

  def _update_variable(self, variable, gradient, mean, mean_square, updates,
                       learning_rate, scale):
    power = lambda beta: tf.pow(beta, tf.cast(updates, tf.float32))
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle, m=mean.handle, v=mean_square.handle,
        beta1_power=power(self._beta_1), beta2_power=power(self._beta_2),
        lr=learning_rate, beta1=self._beta_1, beta2=self._beta_2,
        epsilon=self._epsilon, grad=gradient * scale)
