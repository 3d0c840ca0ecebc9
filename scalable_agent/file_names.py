"""Names of levels as names of files."""

import re


def of_level(level_name):
  """The level's name without what has a meaning in paths, such as / and :."""
  return re.sub(r'[^\w.-]+', '_', level_name)
