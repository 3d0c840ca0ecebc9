"""Which devices and threads the learner and inference use."""

import collections

from absl import logging
import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent.machine import cores as machine_cores
from scalable_agent.machine import nvidia

Devices = collections.namedtuple(
    'Devices', 'learner inference jit_compile num_parts', defaults=[1])
Devices.__doc__ = """Where things run.

  learner: A list of device names, one per replica.
  inference: The device name of the policy.
  jit_compile: Whether XLA compiles loss and gradients, and the policy.
  num_parts: Parts of a batch whose gradients a replica computes side by side,
    if the batch is large.
"""


def choose(config):
  """Chooses the devices of a configuration, see `choose_devices`."""
  return choose_devices(
      config.num_learner_devices, config.inference_device, config.xla,
      config.intra_op_threads, config.learner_batch_size,
      has_policy=not config.leaves_acting_to_others)


def choose_devices(num_learner_devices, inference_device, xla,
                   intra_op_threads, batch_size=1, has_policy=True):
  """Chooses devices; call before TensorFlow has used any.

  Args:
    num_learner_devices: Replicas of the learner: GPUs, or logical CPUs on a
      machine without. 0 means all GPUs but one that `inference_device` names,
      or as many of them as can share a batch evenly; or one CPU.
    inference_device: The policy's, 'cpu:0' or 'gpu:<i>'; '' means the
      learner's first.
    xla: 'on', 'off' or 'auto', which is off: on CPUs the kernels of the plain
      graph are faster than XLA's on these networks, and on GPUs the first
      update of compiled networks takes long.
    intra_op_threads: Threads that share an operation on the CPU. 0 takes half
      of the cores if the learner runs there: with more, one of its large
      operations would occupy all cores, and the policy would wait for it. With
      GPUs, 0 takes all cores.
    batch_size: Unrolls of a batch of this learner. A given
      `num_learner_devices` divides it.
    has_policy: Whether there is a policy in the learner's process. If not, 0
      takes all cores.

  Returns:
    A `Devices`.

  Raises:
    config_lib.ConfigError: There are no such devices.
  """
  gpus = tf.config.list_physical_devices('GPU')
  for gpu in gpus:
    try:
      tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError:
      logging.warning(
          'TensorFlow was already in use in this process, and keeps the memory '
          'of the GPUs as it has it.')
  num_cores = machine_cores.count()
  if not gpus:
    intra_op_threads = intra_op_threads or (
        max(num_cores // 2, 1) if has_policy else num_cores)
  # TensorFlow counts cores that a container has no time of.
  if machine_cores.are_fewer_than_seem():
    _set_threads(intra_op_threads or num_cores, num_cores)
  else:
    _set_threads(intra_op_threads)
  names = [f'/gpu:{i}' for i in range(len(gpus))]
  inference = f'/{inference_device}' if inference_device else None
  if inference not in (None, '/cpu:0', *names):
    raise config_lib.ConfigError(
        f'--inference_device={inference_device}, but this machine has '
        f'{", ".join(name[1:] for name in ["/cpu:0"] + names)}.' +
        (f' {_explain_no_gpu()}' if not gpus and 'gpu' in inference else ''))
  if not gpus and nvidia.is_expected():
    logging.warning('%s', _explain_no_gpu())
  learner = (
      _learner_gpus(names, num_learner_devices, inference, batch_size) if gpus
      else _learner_cpus(num_learner_devices))
  return Devices(
      learner, inference or learner[0], jit_compile=xla == 'on',
      # On the CPU one operation after the other would leave cores idle.
      num_parts=1 if gpus else 2)


def _set_threads(count, num_operations=0):
  try:
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(num_operations)
  except RuntimeError:
    logging.warning(
        'TensorFlow was already in use in this process, and keeps its number '
        'of threads: --intra_op_threads=%d has no effect.', count)


def _explain_no_gpu():
  return f'TensorFlow registers no GPU: {nvidia.explain()}.'


def _learner_gpus(names, count, inference, batch_size):
  if count > len(names):
    raise config_lib.ConfigError(
        f'--num_learner_devices={count}, but this machine has {len(names)} '
        'GPUs.')
  others = [name for name in names if name != inference]
  shared = [name for name in names if name == inference]
  if not count:
    free = len(others) or 1
    count = next(n for n in range(free, 0, -1) if batch_size % n == 0)
    if count < free:
      logging.warning(
          '%d of %d GPUs train: a batch of %d unrolls cannot be shared evenly '
          'by more of them. Choose another --batch_size.', count, free,
          batch_size)
  return (others + shared)[:count]


def _learner_cpus(count):
  count = count or 1
  if count > 1:
    try:
      tf.config.set_logical_device_configuration(
          tf.config.list_physical_devices('CPU')[0],
          [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as e:
      raise config_lib.ConfigError(
          f'--num_learner_devices={count} cannot work: TensorFlow was already '
          'in use in this process, and keeps its devices. Choose them in a new '
          'process.') from e
  return [f'/cpu:{i}' for i in range(count)]
