"""The links between the project's documents lead somewhere."""

import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DOCUMENTS = [
    _ROOT / 'README.md', *sorted((_ROOT / 'launch').glob('*.md')),
    *sorted((_ROOT / 'testdata').rglob('README.md')),
    *sorted((_ROOT / 'testdata' / 'results').glob('[a-z]*.md'))]


def _anchors(text):
  """Returns what '#' may name in a Markdown text, by GitHub's rule."""
  text = re.sub('(?ms)^```.*?^```', '', text)
  return {
      re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
      for heading in re.findall('(?m)^#+ (.*)$', text)}


def _broken_links(document):
  for target in re.findall(r'\]\(\s*([^)\s]+)\s*\)', document.read_text()):
    if target.startswith(('http:', 'https:')):
      continue
    path, _, anchor = target.partition('#')
    file = document.parent / path if path else document
    if not file.exists():
      yield target
    elif anchor and anchor not in _anchors(file.read_text()):
      yield target


@pytest.mark.parametrize(
    'document', _DOCUMENTS, ids=lambda path: str(path.relative_to(_ROOT)))
def test_links(document):
  assert not list(_broken_links(document))


def test_broken_links_are_found(tmp_path):
  document = tmp_path / 'a.md'
  document.write_text(
      '# One two\n```\n# No heading\n```\n'
      '[1](a.md#one-two) [2](#one-two) [3](b.md) [4](#no-heading)\n')
  assert list(_broken_links(document)) == ['b.md', '#no-heading']
