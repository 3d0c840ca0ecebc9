"""A report as Markdown."""

from scalable_agent.results import document
from scalable_agent.results import tables


def _row(cells):
  return '| ' + ' | '.join(
      cell.replace('|', '\\|') for cell in cells) + ' |\n'


def _block(block, picture_paths):
  if isinstance(block, document.Heading):
    return f'## {block.text}\n'
  if isinstance(block, document.Paragraph):
    return f'{block.text}\n'
  if isinstance(block, document.Picture):
    return (f'![Learning curve of {block.level}]'
            f'({picture_paths[block.level]})\n')
  assert isinstance(block, tables.Table)
  return (_row(block.header) + '| --- |' +
          ' --- |' * (len(block.header) - 1) + '\n' +
          ''.join(map(_row, block.rows)))


def render(blocks, picture_paths):
  """Renders a report.

  Args:
    blocks: What `document.build` returns.
    picture_paths: A dict of level to the path of its picture, relative to the
      file that the text is written to.

  Returns:
    Markdown, a string.
  """
  return '\n'.join([f'# {document.TITLE}\n'] + [
      _block(block, picture_paths) for block in blocks])
