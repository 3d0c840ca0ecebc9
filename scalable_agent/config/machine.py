"""Settings of what a machine does at once: devices, threads, batches of work.

They change how fast a run is, and how old its experience is when it is learned
from.
"""

import dataclasses

from scalable_agent.config import settings
from scalable_agent.config.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineSettings:
  """Settings of what a machine does at once."""

  xla: str = setting(
      'auto', 'Whether XLA compiles the networks; auto does not.',
      settings.NOWHERE, choices=('auto', 'on', 'off'))
  num_learner_devices: int = setting(
      0, 'Devices that share a batch: GPUs, or logical CPUs where there is '
      'none; 0 takes all GPUs that can share it evenly, or one CPU.',
      settings.NOWHERE, settings.NOT_NEGATIVE)
  inference_device: str = setting(
      '', 'Device of the policy, cpu:0 or gpu:<i>; by default the learner\'s '
      'first. Other GPUs than a gpu:<i> named here learn.', settings.NOWHERE)
  intra_op_threads: int = setting(
      0, 'Threads that share one operation of TensorFlow on the CPU; 0 takes '
      'half of the cores where no GPU trains, all of them in a learner job '
      'whose actors have the policy, and one in an actor job.',
      settings.NOWHERE, settings.NOT_NEGATIVE)
  num_pools: int = setting(
      0, 'Pools that the environments are spread over, each with its own actor '
      'thread; 0 chooses by architecture and suite.', settings.NOWHERE,
      settings.NOT_NEGATIVE)
  pool_batch_size: int = setting(
      0, 'Environments that a pool hands out at a time at the most (Atari: '
      'exactly); 0 chooses by suite.', settings.NOWHERE, settings.NOT_NEGATIVE)
  environment_threads: int = setting(
      0, 'Threads (Atari) or processes (gym) of this job that step '
      'environments; 0 takes one per core, and one in an actor job. '
      '(atari57: always one per game. synthetic: one per environment. DeepMind '
      'Lab: always one per environment.) A process of several steps one while '
      'the policy acts for the others.', settings.NOWHERE, settings.NOT_NEGATIVE)
  inference_minimum_batch_size: int = setting(
      1, 'Environments that the policy waits for before it runs, if there are '
      'several pools.', settings.NOWHERE, settings.ONE_OR_MORE)
  inference_maximum_batch_size: int = setting(
      1024, 'Environments that the policy runs on at once at the most.',
      settings.NOWHERE, settings.ONE_OR_MORE)
  inference_timeout_ms: int = setting(
      100, 'Milliseconds after which the policy runs on fewer environments '
      'than the minimum.', settings.NOWHERE, settings.NOT_NEGATIVE)
  queue_capacity: int = setting(
      0, 'Unrolls that wait at the learner at the most; then actors wait. 0 '
      'takes the new ones of a batch: --batch_size less what is replayed, over '
      'the number of learners.', settings.NOWHERE, settings.NOT_NEGATIVE)
