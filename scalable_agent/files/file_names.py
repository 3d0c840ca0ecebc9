"""Names of files that several parts know, and of what is about a level."""

import os
import re

# In a log directory.
CONFIG = 'config.json'
TEST_SCORES = 'test_scores.json'
REPLAY_AGENT = 'replay_agent'
# The folder in which the report finds films, if --video_dir has named it.
VIDEOS = 'videos'


def is_remote(path):
  """Whether a path is one for `tf.io.gfile`, such as gs://bucket/maps."""
  return '://' in path


def of_level(level_name):
  """Returns a level's name without characters that mean something in paths."""
  return re.sub(r'[^\w.-]+', '_', level_name)


def video(video_dir, level_name):
  """Returns the path of the GIF that test mode makes of a level."""
  return os.path.join(video_dir, of_level(level_name) + '.gif')
