"""Turns names of levels into names of files."""

import re


def of_level(level_name):
  """Returns a level's name without characters that mean something in paths."""
  return re.sub(r'[^\w.-]+', '_', level_name)
