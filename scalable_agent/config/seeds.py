"""What a run's `--seed` stands for, one use at a time.

Sweeps give their runs seeds that follow each other, and pools add the number of
an environment to a seed. Were the sum not hashed, an environment of one run
would have the seed of another environment in the next.
"""

import numpy as np

# What a seed is for.
TRAINING, TESTS, ACTIONS, REPLAY = range(4)

# Half of 31 bits: numbers of environments, or of their successors, are added.
_NUM_SEEDS = 2**30


def derive(seed, use, number=0, task=0):
  """Returns a seed that is unrelated to those of other runs and uses.

  Args:
    seed: The run's, an int of at least 0.
    use: One of the above.
    number: Tells parts of a use apart, such as the frames of a resumed run; an
      int of at least 0.
    task: Index of a job among those that have the same use for it, an int of at
      least 0.

  Returns:
    An int from 0 to 2^30 - 1.
  """
  (word,) = np.random.SeedSequence(
      [seed, use, number, task]).generate_state(1)
  return int(word) % _NUM_SEEDS


def of_replay(seed, task):
  """Returns the seed of a learner's draws; other learners have others.

  Args:
    seed: The run's.
    task: The learner's index, -1 if it is the only job.
  """
  return derive(seed, REPLAY, task=max(task, 0))
