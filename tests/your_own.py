"""The examples of launch/your_own.md, which users copy."""

import collections
import pathlib
import re

_PATH = pathlib.Path(__file__).resolve().parents[1] / 'launch/your_own.md'

Example = collections.namedtuple('Example', 'flag path code')
Example.__doc__ = """A program of a user's, all strings.

  flag: That chooses it, as in '--name=value'.
  path: Of its file, relative.
  code: The contents of the file.
"""


def example(heading):
  """Returns the `Example` of the section with this heading."""
  _, _, text = _PATH.read_text().partition(f'\n## {heading}\n')
  before, code = text.partition('\n## ')[0].split('```python\n')
  return Example(
      re.findall('`(--[^`]+)`', before)[-1],
      re.findall('`([^`]+[.]py)`', before)[-1], code.partition('```')[0])
