"""Shares the GPUs of a machine among the processes that run at a time."""

import itertools

from scalable_agent.machine import nvidia


def environs(parallel, configs):
  """Returns environment variables for each process that runs at a time.

  Each process sees GPUs of its own: by itself it would train on all of them. If
  there are more processes than GPUs, some share one.

  Args:
    parallel: Processes at a time.
    configs: The `config.Config`s of all runs. Any of these may have any share.

  Returns:
    A list of `parallel` dicts. The dicts are empty if there are fewer than two
    GPUs, if a share would be less than a run needs, or if a run names its GPU.
  """
  names = nvidia.visible()
  needed = max(config.num_learner_devices for config in configs)
  if (len(names) < max(2, needed * min(parallel, len(names))) or
      any(config.inference_device.startswith('gpu') for config in configs)):
    return [{} for _ in range(parallel)]
  if parallel > len(names):
    names = [names[i % len(names)] for i in range(parallel)]
  ends = [i * len(names) // parallel for i in range(parallel + 1)]
  return [dict(CUDA_VISIBLE_DEVICES=','.join(names[start:end]))
          for start, end in itertools.pairwise(ends)]
