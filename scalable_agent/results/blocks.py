"""The kinds of blocks that a report is made of, whatever its format."""

import collections

Heading = collections.namedtuple('Heading', 'text')
Paragraph = collections.namedtuple('Paragraph', 'text')

Picture = collections.namedtuple('Picture', 'level png')
Picture.__doc__ = """A PNG, such as the learning curve of a level.

  level: What it is of. No other picture of the report has this name.
  png: Its bytes.
"""

Table = collections.namedtuple('Table', 'header rows')
Table.__doc__ = """Text in rows and columns; a row's first cell names it.

  header: A list of C strings.
  rows: A list of lists of C strings.
"""

Video = collections.namedtuple('Video', 'caption source path')
Video.__doc__ = """A GIF of an episode.

  caption: Of which level, agent and seed.
  source: Its path.
  path: Where the report has it, relative to the page.
"""


def of_kind(blocks, kind):
  """Returns those of a list of blocks that are of one kind, a list."""
  return [block for block in blocks if isinstance(block, kind)]
