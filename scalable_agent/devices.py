"""Which devices and threads the learner and inference use."""

import collections
import os

import tensorflow as tf

from scalable_agent import config as config_lib

Devices = collections.namedtuple('Devices', 'learner inference jit_compile')
Devices.__doc__ = """Where things run.

  learner: A list of device names, one per replica.
  inference: The device name of the policy.
  jit_compile: Whether XLA compiles loss and gradients, and the policy.
"""


def choose_devices(num_learner_devices, xla, intra_op_threads):
  """Chooses devices; call before TensorFlow has used any.

  Args:
    num_learner_devices: Replicas of the learner: GPUs, or logical CPUs on a
      machine without. 0 means all GPUs, or one CPU.
    xla: 'on', 'off' or 'auto', which is on with GPUs: on CPUs the plain graph's
      kernels are 2 to 3 times as fast as XLA's on these networks.
    intra_op_threads: Threads that share an operation on the CPU. 0 takes half
      of the cores if the learner runs there: more, and an operation of the
      policy waits while one of the learner, which is large, occupies them all.
      (Two cores, Pong, one thread against two: 12.4 k against 10.3 k frames/s
      with the shallow network, 2.12 k against 1.96 k with the deep one.) With
      GPUs, 0 leaves it to TensorFlow.

  Returns:
    A `Devices`.

  Raises:
    config_lib.ConfigError: There are not so many GPUs.
  """
  gpus = tf.config.list_physical_devices('GPU')
  for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
  if not gpus:
    intra_op_threads = (
        intra_op_threads or max(len(os.sched_getaffinity(0)) // 2, 1))
  tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
  jit_compile = xla == 'on' or (xla == 'auto' and bool(gpus))
  if gpus:
    if num_learner_devices > len(gpus):
      raise config_lib.ConfigError(
          f'--num_learner_devices={num_learner_devices}, but this machine has '
          f'{len(gpus)} GPUs.')
    count = num_learner_devices or len(gpus)
    return Devices([f'/gpu:{i}' for i in range(count)], '/gpu:0', jit_compile)
  count = num_learner_devices or 1
  if count > 1:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices('CPU')[0],
        [tf.config.LogicalDeviceConfiguration()] * count)
  return Devices([f'/cpu:{i}' for i in range(count)], '/cpu:0', jit_compile)
