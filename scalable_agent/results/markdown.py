"""A report as Markdown."""

from scalable_agent.results import blocks as blocks_lib


def _row(cells):
  return '| ' + ' | '.join(
      cell.replace('|', '\\|') for cell in cells) + ' |\n'


def _table(table):
  return (_row(table.header) + '| --- |' +
          ' --- |' * (len(table.header) - 1) + '\n' +
          ''.join(map(_row, table.rows)))


def render(blocks, picture_paths, title, picture_text='Learning curve of {}'):
  """Renders a report.

  Args:
    blocks: A list of blocks, see `blocks`.
    picture_paths: A dict of level to the path of its picture, relative to the
      file that the text is written to.
    title: The heading of all.
    picture_text: What a picture shows, with {} for its level.

  Returns:
    Markdown, a string.
  """
  renderers = {
      blocks_lib.Heading: lambda heading: f'## {heading.text}\n',
      blocks_lib.Paragraph: lambda paragraph: f'{paragraph.text}\n',
      blocks_lib.Table: _table,
      blocks_lib.Picture: lambda picture: (
          f'![{picture_text.format(picture.level)}]'
          f'({picture_paths[picture.level]})\n'),
      blocks_lib.Video: lambda video: f'![{video.caption}]({video.path})\n'}
  return '\n'.join([f'# {title}\n'] + [
      renderers[type(block)](block) for block in blocks])
