"""A report as HTML."""

import base64
import html.parser

from scalable_agent.results import blocks
from scalable_agent.results import page

_BLOCKS = [
    blocks.Heading('A < B'), blocks.Paragraph('x & "y"'),
    blocks.Table(['level', '<score>'], [['pong', '1'], ['<b>', '–']]),
    blocks.Picture('pong', b'one'), blocks.Picture('a"b', b'two'),
    blocks.Video('<pong>, seed 1', '/x.gif', 'videos/0"x.gif'),
    blocks.Paragraph('the end')]


class Balance(html.parser.HTMLParser):
  """Checks that what is opened is closed, and keeps what is said."""

  def __init__(self):
    super().__init__()
    self.open, self.data, self.images = [], [], []

  def handle_starttag(self, tag, attrs):
    if tag == 'img':
      self.images.append(dict(attrs))
    elif tag not in ('meta', 'link'):
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.data.append(data.strip())


def _parsed():
  parser = Balance()
  parser.feed(page.render(_BLOCKS, 'C > D'))
  assert parser.open == []
  return parser


def test_text_is_escaped():
  data = _parsed().data
  assert {'C > D', 'A < B', 'x & "y"', '<score>', '<b>', 'the end'} <= set(data)


def test_pictures_are_in_the_page():
  images = _parsed().images
  assert [image['alt'] for image in images[:2]] == [
      'Learning curve of pong', 'Learning curve of a"b']
  assert [base64.b64decode(image['src'].split(',')[1])
          for image in images[:2]] == [b'one', b'two']


def test_videos_are_beside_the_page():
  parsed = _parsed()
  assert parsed.images[2]['src'] == 'videos/0"x.gif'
  assert '<pong>, seed 1' in parsed.data


def test_a_column_of_text_is_read_from_the_left_with_its_header():
  text = 'training, 100 episodes, 1 seed'
  rendered = page.render([blocks.Table(
      ['level', 'score', 'from'],
      [['x', '1', text], ['y', '2', 'no run']])], 'Scores')
  for cell in ('<th>score</th>', '<th class="long">from</th>', '<td>1</td>',
               f'<td class="long">{text}</td>',
               '<td class="long missing">no run</td>'):
    assert cell in rendered
