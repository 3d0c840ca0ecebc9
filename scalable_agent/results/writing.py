"""Writes the parts of a report into its directory."""

import os

from scalable_agent.files import file_names
from scalable_agent.files import whole_file
from scalable_agent.results import blocks as blocks_lib


def write_pictures(blocks, report_dir, folder):
  """Writes the pictures among blocks.

  Args:
    blocks: A list of blocks, see `blocks`.
    report_dir: The report's directory.
    folder: A directory in it, which is made if it is not there.

  Returns:
    A dict of a picture's level to its path in the report's directory.
  """
  os.makedirs(os.path.join(report_dir, folder), exist_ok=True)
  paths = {}
  for picture in blocks_lib.of_kind(blocks, blocks_lib.Picture):
    path = _free_path(f'{folder}/{file_names.of_level(picture.level)}',
                      paths.values())
    paths[picture.level] = path
    whole_file.write(os.path.join(report_dir, path), picture.png)
  return paths


def _free_path(stem, taken):
  """Returns a picture's path; names that differ may become the same stem."""
  path, number = f'{stem}.png', 1
  while path in taken:
    number += 1
    path = f'{stem}_{number}.png'
  return path


def write_texts(texts, report_dir):
  """Writes a dict of file name to text into the report's directory."""
  for name, text in texts.items():
    # The name of a directory need not be text.
    whole_file.write(os.path.join(report_dir, name),
                     text.encode(errors='backslashreplace'))
