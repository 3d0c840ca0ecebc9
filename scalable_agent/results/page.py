"""A report as one HTML page that needs nothing else, not even scripts."""

import base64
import html

from scalable_agent.results import document
from scalable_agent.results import tables

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem;
  max-width: 100rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p { max-width: 50rem; }
.table { overflow: auto; max-height: 85vh; border: 1px solid var(--line);
  border-radius: 6px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  width: 100%; }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: Canvas; vertical-align: bottom;
  border-bottom: 2px solid var(--line); }
td:first-child, th:first-child { text-align: left; }
@media print { .table { max-height: none; } }
tbody tr:nth-child(even) { background: var(--soft); }
td.missing { opacity: .55; }
.curves { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); }
.curves img { width: 100%; background: white; border-radius: 6px; }
"""


def _cell(text):
  kind = ' class="missing"' if text in (tables.MISSING, 'no run') else ''
  return f'<td{kind}>{html.escape(text)}</td>'


def _table(table):
  header = ''.join(f'<th>{html.escape(text)}</th>' for text in table.header)
  rows = ''.join('<tr>' + ''.join(map(_cell, row)) + '</tr>\n'
                 for row in table.rows)
  return (f'<div class="table"><table>\n<thead><tr>{header}</tr></thead>\n'
          f'<tbody>\n{rows}</tbody></table></div>\n')


def _picture(picture):
  level = html.escape(picture.level)
  data = base64.b64encode(picture.png).decode()
  return (f'<img alt="Learning curve of {level}" '
          f'src="data:image/png;base64,{data}">\n')


def render(blocks):
  """Renders a report.

  Args:
    blocks: What `document.build` returns.

  Returns:
    HTML, a string; pictures are in it.
  """
  parts = []
  in_curves = False
  for block in blocks:
    is_picture = isinstance(block, document.Picture)
    if is_picture != in_curves:
      parts.append('<div class="curves">\n' if is_picture else '</div>\n')
      in_curves = is_picture
    if is_picture:
      parts.append(_picture(block))
    elif isinstance(block, document.Heading):
      parts.append(f'<h2>{html.escape(block.text)}</h2>\n')
    elif isinstance(block, document.Paragraph):
      parts.append(f'<p>{html.escape(block.text)}</p>\n')
    else:
      parts.append(_table(block))
  if in_curves:
    parts.append('</div>\n')
  return (
      '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
      '<meta name="viewport" content="width=device-width">\n'
      f'<title>{document.TITLE}</title>\n<link rel="icon" href="data:,">\n'
      f'<style>{_STYLE}</style></head>\n<body><h1>{document.TITLE}</h1>\n' +
      ''.join(parts) + '</body></html>\n')
