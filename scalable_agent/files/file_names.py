"""Names of files: of test scores, and of what is about a level."""

import re

# In a log directory.
TEST_SCORES = 'test_scores.json'


def of_level(level_name):
  """Returns a level's name without characters that mean something in paths."""
  return re.sub(r'[^\w.-]+', '_', level_name)
