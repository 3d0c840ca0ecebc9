"""A report as Markdown."""

from scalable_agent.results import document
from scalable_agent.results import markdown
from scalable_agent.results import tables
from scalable_agent.results import videos


def test_render():
  text = markdown.render([
      document.Heading('Atari'), document.Paragraph('Some.'),
      tables.Table(['level', 'a|b'], [['pong', '1'], ['qbert', '–']]),
      document.Picture('pong', b''),
      videos.Video('pong: deep', '/x.gif', 'videos/x.gif')],
                         {'pong': 'curves/pong.png'})
  assert text == (
      '# Scores and learning curves\n\n## Atari\n\nSome.\n\n'
      '| level | a\\|b |\n| --- | --- |\n| pong | 1 |\n| qbert | – |\n\n'
      '![Learning curve of pong](curves/pong.png)\n\n'
      '![pong: deep](videos/x.gif)\n')
