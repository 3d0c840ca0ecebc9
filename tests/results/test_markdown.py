"""A report as Markdown."""

from scalable_agent.results import blocks
from scalable_agent.results import markdown


def test_render():
  text = markdown.render([
      blocks.Heading('Atari'), blocks.Paragraph('Some.'),
      blocks.Table(['level', 'a|b'], [['pong', '1'], ['qbert', '–']]),
      blocks.Picture('pong', b''),
      blocks.Video('pong: deep', '/x.gif', 'videos/x.gif')],
                         {'pong': 'curves/pong.png'}, 'Scores')
  assert text == (
      '# Scores\n\n## Atari\n\nSome.\n\n'
      '| level | a\\|b |\n| --- | --- |\n| pong | 1 |\n| qbert | – |\n\n'
      '![Learning curve of pong](curves/pong.png)\n\n'
      '![pong: deep](videos/x.gif)\n')
