"""Shares the GPUs of a machine among the processes that run at a time."""

import itertools

from scalable_agent.process import nvidia


def shares(parallel, least=1):
  """Returns environment variables for each of `parallel` processes.

  Each process sees GPUs of its own: by itself it would train on all of them. If
  there are more processes than GPUs, some share one.

  Args:
    parallel: Processes at a time.
    least: GPUs that each process needs.

  Returns:
    A list of dicts, empty where there are not two GPUs to share, or a share
    would be less than is needed.
  """
  names = nvidia.visible()
  if len(names) < max(2, least * min(parallel, len(names))):
    return [{} for _ in range(parallel)]
  if parallel > len(names):
    names = [names[i % len(names)] for i in range(parallel)]
  ends = [i * len(names) // parallel for i in range(parallel + 1)]
  return [dict(CUDA_VISIBLE_DEVICES=','.join(names[start:end]))
          for start, end in itertools.pairwise(ends)]
