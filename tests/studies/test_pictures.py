"""Pictures of studies: the names of variants hide nothing."""

import io

from PIL import Image
import pytest

from scalable_agent.studies import pictures


@pytest.mark.parametrize('count, length, columns',
                         [(2, 40, 2), (2, 41, 1), (2, 300, 1), (9, 41, 1)])
def test_names_stand_below(count, length, columns):
  """Short ones beside each other, and none wider than the picture."""
  figure, axis = pictures._axis('level', 'x', 'y')
  for letter in 'abcdefghi'[:count]:
    axis.plot([0, 1], [0, 1], label=(f'{letter * 9} ' * 30)[:length])
  with Image.open(io.BytesIO(pictures._to_png(figure, axis))) as image:
    width = image.width
  names = axis.get_legend().get_window_extent()
  assert names.width <= width
  assert names.y1 < axis.xaxis.label.get_window_extent().y0
  # Many names make the picture higher, and the curves no lower.
  assert axis.bbox.height > figure.bbox.height / 2
  first, second = (text.get_window_extent()
                   for text in axis.get_legend().get_texts()[:2])
  assert (first.y0 == second.y0) == (columns == 2)
