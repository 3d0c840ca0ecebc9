"""A report as one HTML page that needs no scripts, and no file but videos."""

import base64
import html

from scalable_agent.results import blocks as blocks_lib
from scalable_agent.results import tables

# Columns of cells with more characters are text: read from the left, and broken
# into lines where they stay in sight.
_LONG = 24

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto;
  padding: 0 1rem; max-width: 110rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
p { max-width: 50rem; }
.table { overflow: auto; max-height: 85vh; width: fit-content; max-width: 100%;
  border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
  background: Canvas; }
th { position: sticky; top: 0; z-index: 1; vertical-align: bottom;
  white-space: normal; border-bottom: 2px solid var(--line); }
td:first-child, th:first-child { position: sticky; left: 0; text-align: left;
  border-right: 1px solid var(--line); }
th:first-child { z-index: 2; }
td.long, th.long { text-align: left; }
td.long:first-child { white-space: normal; overflow-wrap: anywhere;
  min-width: min(20rem, 40vw); }
td.missing { color: #8889; }
tbody tr:nth-child(even) td {
  background: linear-gradient(var(--soft), var(--soft)), Canvas; }
.curves, .videos { display: grid; gap: 1rem; grid-template-columns: 1fr; }
.curves img { width: 100%; background: white; border-radius: 6px; }
.videos { grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); }
figure { margin: 0; } figcaption { font-size: .85rem; }
.videos img { max-width: 100%; image-rendering: pixelated; }
/* Curves over frames and over hours stand side by side. */
@media (min-width: 43rem) { .curves { grid-template-columns: 1fr 1fr; } }
@media (min-width: 86rem) { .curves { grid-template-columns: repeat(4, 1fr); } }
@media print { .table { max-height: none; } }
"""

# Blocks that stand side by side, and the class of what holds them.
_SIDE_BY_SIDE = {blocks_lib.Picture: 'curves', blocks_lib.Video: 'videos'}


def _heading(heading):
  return f'<h2>{html.escape(heading.text)}</h2>\n'


def _paragraph(paragraph):
  return f'<p>{html.escape(paragraph.text)}</p>\n'


def _row(tag, cells, are_long):
  """Returns the cells of a row, each a `tag`."""
  parts = []
  for text, is_long in zip(cells, are_long, strict=True):
    kinds = ['long'] if is_long else []
    kinds += ['missing'] if text in (tables.MISSING, 'no run') else []
    kind = f' class="{" ".join(kinds)}"' if kinds else ''
    parts.append(f'<{tag}{kind}>{html.escape(text)}</{tag}>')
  return ''.join(parts)


def _table(table):
  are_long = [any(len(row[i]) > _LONG for row in table.rows)
              for i in range(len(table.header))]
  header = _row('th', table.header, are_long)
  rows = ''.join(f'<tr>{_row("td", row, are_long)}</tr>\n'
                 for row in table.rows)
  return (f'<div class="table"><table>\n<thead><tr>{header}</tr></thead>\n'
          f'<tbody>\n{rows}</tbody></table></div>\n')


def _picture(picture):
  level = html.escape(picture.level)
  data = base64.b64encode(picture.png).decode()
  return (f'<img alt="Learning curve of {level}" '
          f'src="data:image/png;base64,{data}">\n')


def _video(video):
  caption = html.escape(video.caption)
  return (f'<figure><img loading="lazy" alt="{caption}" '
          f'src="{html.escape(video.path)}"><figcaption>{caption}</figcaption>'
          '</figure>\n')


_RENDERERS = {
    blocks_lib.Heading: _heading, blocks_lib.Paragraph: _paragraph,
    blocks_lib.Table: _table, blocks_lib.Picture: _picture,
    blocks_lib.Video: _video}


def render(blocks, title):
  """Renders a report.

  Args:
    blocks: A list of blocks, see `blocks`.
    title: The heading of all.

  Returns:
    HTML, a string; pictures are in it, videos are beside it.
  """
  title = html.escape(title)
  parts = []
  around = None
  for block in blocks:
    group = _SIDE_BY_SIDE.get(type(block))
    if group != around:
      parts += ['</div>\n'] if around else []
      parts += [f'<div class="{group}">\n'] if group else []
      around = group
    parts.append(_RENDERERS[type(block)](block))
  if around:
    parts.append('</div>\n')
  return (
      '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
      '<meta name="viewport" content="width=device-width">\n'
      f'<title>{title}</title>\n<link rel="icon" href="data:,">\n'
      f'<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n' +
      ''.join(parts) + '</body></html>\n')
