"""The learner: V-trace actor-critic updates under a `tf.distribute` strategy.

The loss and its gradients are one function of tensors, which XLA may compile.
The sum over replicas and the update are outside of it: collectives cannot be
compiled, and everything that writes variables stays in one place. Losses are
sums, so the sum of the replicas' gradients is the gradient of the whole batch.
"""

import collections
import functools

import numpy as np
import tensorflow as tf

from scalable_agent import losses
from scalable_agent import rmsprop
from scalable_agent import vtrace

LossSettings = collections.namedtuple(
    'LossSettings', 'discounting reward_clipping baseline_cost entropy_cost '
    'clip_rho_threshold clip_pg_rho_threshold lambda_',
    defaults=(1.0, 1.0, 1.0))

OptimizerSettings = collections.namedtuple(
    'OptimizerSettings', 'learning_rate total_environment_frames decay '
    'momentum epsilon gradient_norm_clip')


def create_strategy(devices):
  """Returns the strategy for a list of device names: one or mirrored."""
  if len(devices) == 1:
    return tf.distribute.OneDeviceStrategy(devices[0])
  return tf.distribute.MirroredStrategy(devices)


def compute_loss(agent, settings, params, agent_state, env_outputs,
                 agent_outputs):
  """The IMPALA loss of a batch of unrolls (paper, section 4.2).

  Args:
    agent: A `networks.Agent`.
    settings: A `LossSettings`.
    params: The agent's weights.
    agent_state: Core state before entry 0, [B, ...].
    env_outputs: A `StepOutput` of [T+1, B, ...] tensors.
    agent_outputs: An `AgentOutput` of [T+1, B, ...] tensors.

  Returns:
    The loss, a float32 scalar, and a dict of the parts to log.
  """
  (policy_logits, baseline), _ = agent.unroll(
      params, agent_outputs.action, env_outputs, agent_state)

  # Entry t of the inputs led to entry t of the network's outputs. From here on
  # index t means: learner output t, the action taken there, and its outcome.
  bootstrap_value = baseline[-1]
  policy_logits, baseline = policy_logits[:-1], baseline[:-1]
  actions = agent_outputs.action[1:]
  behaviour_logits = agent_outputs.policy_logits[1:]
  rewards = losses.clip_rewards(env_outputs.reward[1:],
                                settings.reward_clipping)
  discounts = (
      tf.cast(~env_outputs.done[1:], tf.float32) * settings.discounting)

  returns = vtrace.from_logits(
      behaviour_policy_logits=behaviour_logits,
      target_policy_logits=tf.stop_gradient(policy_logits),
      actions=actions,
      discounts=discounts,
      rewards=rewards,
      values=tf.stop_gradient(baseline),
      bootstrap_value=tf.stop_gradient(bootstrap_value),
      clip_rho_threshold=settings.clip_rho_threshold,
      clip_pg_rho_threshold=settings.clip_pg_rho_threshold,
      lambda_=settings.lambda_)

  policy_gradient_loss = losses.compute_policy_gradient_loss(
      policy_logits, actions, returns.pg_advantages)
  baseline_loss = settings.baseline_cost * losses.compute_baseline_loss(
      returns.vs - baseline)
  entropy_loss = settings.entropy_cost * losses.compute_entropy_loss(
      policy_logits)
  total_loss = policy_gradient_loss + baseline_loss + entropy_loss
  return total_loss, dict(
      total_loss=total_loss,
      policy_gradient_loss=policy_gradient_loss,
      baseline_loss=baseline_loss,
      entropy_loss=entropy_loss)


def annealed_learning_rate(learning_rate, frames, total_frames):
  """Linear decay to 0 in environment frames (paper, Table G.1)."""
  return learning_rate * (1. - min(frames, total_frames) / total_frames)


class Learner:
  """Variables, optimizer and the update of one or several replicas.

  Attributes:
    num_environment_frames: int64 variable, environment frames trained on.
    learner_steps: int64 variable, calls of `step`, skipped updates included.
  """

  def __init__(self, agent, strategy, loss_settings, optimizer_settings, seed,
               frames_per_step, jit_compile=False):
    """Initializes the learner.

    Args:
      agent: A `networks.Agent`.
      strategy: The `tf.distribute.Strategy` to run under.
      loss_settings: A `LossSettings`.
      optimizer_settings: An `OptimizerSettings`.
      seed: Seed of the initial weights.
      frames_per_step: Environment frames in one batch over all replicas.
      jit_compile: Whether XLA compiles loss and gradients.
    """
    self._agent = agent
    self._strategy = strategy
    self._loss_settings = loss_settings
    self._optimizer_settings = optimizer_settings
    self._frames_per_step = frames_per_step
    with tf.device('/cpu:0'):
      self.num_environment_frames = tf.Variable(0, dtype=tf.int64)
      self.learner_steps = tf.Variable(0, dtype=tf.int64)
    with strategy.scope():
      self.params = {
          name: tf.Variable(value)
          for name, value in agent.initial_params(seed).items()}
      self.optimizer = rmsprop.RMSProp(
          optimizer_settings.learning_rate, optimizer_settings.decay,
          optimizer_settings.momentum, optimizer_settings.epsilon)
      self.optimizer.build(list(self.params.values()))
    # AutoGraph, which nothing here needs, would take 2 of the 9 seconds from the
    # command to the first update.
    compile_ = functools.partial(tf.function, autograph=False)
    self._gradients = compile_(
        self._loss_and_gradients, jit_compile=jit_compile)
    self._update = compile_(self._replicated_update)
    self._snapshot = compile_(
        lambda: {k: v.read_value() for k, v in self._local_params().items()})

  def _local_params(self):
    return {name: self._strategy.experimental_local_results(variable)[0]
            for name, variable in self.params.items()}

  def variables(self):
    """All that a step changes, a list of variables in a fixed order."""
    return [*self.params.values(), *self.optimizer.mean_square,
            *self.optimizer.momentum, self.num_environment_frames,
            self.learner_steps]

  def weights(self):
    """A copy of the weights, name to tensor, that later updates leave alone."""
    return self._snapshot()

  @property
  def frames(self):
    """Environment frames trained on so far."""
    return int(self.num_environment_frames.numpy())

  @property
  def steps(self):
    """Updates so far."""
    return int(self.learner_steps.numpy())

  def place(self, batch):
    """Puts a batch on the devices of the replicas.

    Args:
      batch: An `ActorOutput` of NumPy arrays for a batch of B; B is a multiple
        of the number of replicas here, each of which gets its share.

    Returns:
      What `step` takes.
    """
    devices = self._strategy.extended.worker_devices
    share = len(batch.level_name) // len(devices)
    parts = []
    for i, device in enumerate(devices):
      rows = slice(i * share, (i + 1) * share)
      with tf.device(device):
        state = tf.nest.map_structure(
            lambda a: tf.constant(a[rows]), batch.agent_state)
        trajectory = tf.nest.map_structure(
            lambda a: tf.constant(a[:, rows]),
            (batch.env_outputs._replace(info=()), batch.agent_outputs))
      parts.append((state,) + trajectory)
    if len(parts) == 1:
      return parts[0]
    distribute = self._strategy.experimental_distribute_values_from_function
    return tf.nest.map_structure(
        # Other learners' replicas count too.
        lambda *ts: distribute(
            lambda c: ts[c.replica_id_in_sync_group % len(ts)]), *parts)

  def step(self, placed_batch):
    """Updates the weights once.

    A gradient that is not finite updates nothing; the frames count even so.

    Args:
      placed_batch: Of `place`.

    Returns:
      A dict of floats to log: the losses, `learning_rate`, `grad_norm` (before
      clipping), and `skipped`, 1 if the update was.
    """
    settings = self._optimizer_settings
    learning_rate = annealed_learning_rate(
        settings.learning_rate, self.frames, settings.total_environment_frames)
    # An array, since TensorFlow keeps every Python number it has converted.
    logs = self._update(
        placed_batch, tf.constant(np.array(learning_rate, np.float32)))
    self.num_environment_frames.assign_add(self._frames_per_step)
    self.learner_steps.assign_add(1)
    logs = {name: float(value.numpy()) for name, value in logs.items()}
    return dict(logs, learning_rate=learning_rate)

  def _loss_and_gradients(self, params, batch):
    with tf.GradientTape() as tape:
      tape.watch(params)
      loss, logs = compute_loss(
          self._agent, self._loss_settings, params, *batch)
    gradients = tape.gradient(loss, params)
    # Sums over learners take one collective if all are dense.
    return {name: tf.convert_to_tensor(gradient)
            for name, gradient in gradients.items()}, logs

  def _replicated_update(self, batch, learning_rate):
    log_names = []

    def replica_fn(*batch):
      params = {k: v.read_value() for k, v in self.params.items()}
      gradients, logs = self._gradients(params, batch)
      log_names[:] = logs
      return gradients, tf.stack(list(logs.values()))

    strategy = self._strategy
    gradients, logs = strategy.run(replica_fn, args=batch)
    variables = list(self.params.values())
    # All at once, which collectives between machines are fastest at.
    *gradients, logs = strategy.extended.batch_reduce_to(
        tf.distribute.ReduceOp.SUM,
        [(gradients[name], variable) for name, variable in self.params.items()]
        + [(logs, variables[0])])
    local = lambda value: strategy.experimental_local_results(value)[0]
    logs = dict(zip(log_names, tf.unstack(local(logs))))

    norm = tf.linalg.global_norm([local(gradient) for gradient in gradients])
    finite = tf.math.is_finite(norm)
    clip = self._optimizer_settings.gradient_norm_clip
    scale = clip / tf.maximum(norm, clip) if clip else tf.ones([])
    # Outside of its scope, the optimizer would update the first replica alone.
    with strategy.scope():
      self.optimizer.apply_gradients(
          zip(gradients, variables), learning_rate, scale, finite)
    return dict(logs, grad_norm=norm, skipped=tf.cast(~finite, tf.float32))
