"""A report as Markdown."""

from scalable_agent.results import document
from scalable_agent.results import tables
from scalable_agent.results import videos


def _row(cells):
  return '| ' + ' | '.join(
      cell.replace('|', '\\|') for cell in cells) + ' |\n'


def _block(block, picture_paths, picture_text):
  if isinstance(block, document.Heading):
    return f'## {block.text}\n'
  if isinstance(block, document.Paragraph):
    return f'{block.text}\n'
  if isinstance(block, document.Picture):
    return (f'![{picture_text.format(block.level)}]'
            f'({picture_paths[block.level]})\n')
  if isinstance(block, videos.Video):
    return f'![{block.caption}]({block.path})\n'
  assert isinstance(block, tables.Table)
  return (_row(block.header) + '| --- |' +
          ' --- |' * (len(block.header) - 1) + '\n' +
          ''.join(map(_row, block.rows)))


def render(blocks, picture_paths, title=document.TITLE,
           picture_text='Learning curve of {}'):
  """Renders a report.

  Args:
    blocks: What `document.build` returns.
    picture_paths: A dict of level to the path of its picture, relative to the
      file that the text is written to.
    title: The heading of all.
    picture_text: What a picture shows, with {} for its level.

  Returns:
    Markdown, a string.
  """
  return '\n'.join([f'# {title}\n'] + [
      _block(block, picture_paths, picture_text) for block in blocks])
