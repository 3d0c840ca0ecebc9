"""Scores in percent of the way from random actions (0) to a human (100)."""

import numpy as np


def percentage(mean_return, random, human):
  """Returns 100 (return - random) / (human - random), of floats or arrays."""
  return 100. * (mean_return - random) / (human - random)


def summarize(percentages, per_level_cap=None, statistic=np.mean):
  """Summarizes the levels of a suite.

  Args:
    percentages: A list of floats, one for each level.
    per_level_cap: The percentage at which each is capped, or None.
    statistic: What is taken of them, such as `np.mean`.

  Returns:
    A float, in percent.
  """
  if per_level_cap is not None:
    percentages = np.minimum(percentages, per_level_cap)
  return float(statistic(percentages))
