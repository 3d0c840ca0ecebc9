"""Pictures of studies: the names of variants hide nothing."""

import io

from PIL import Image
import pytest

from scalable_agent.studies import pictures


@pytest.mark.parametrize('length, columns', [(40, 2), (41, 1), (300, 1)])
def test_names_stand_below(length, columns):
  """Short ones beside each other, and none wider than the picture."""
  figure, axis = pictures._axis('level', 'x', 'y')
  for letter in 'ab':
    axis.plot([0, 1], [0, 1], label=(f'{letter * 9} ' * 30)[:length])
  with Image.open(io.BytesIO(pictures._to_png(figure, axis))) as image:
    width = image.width
  names = axis.get_legend().get_window_extent()
  assert names.width <= width
  assert names.y1 < axis.bbox.y0
  first, second = (text.get_window_extent()
                   for text in axis.get_legend().get_texts())
  assert (first.y0 == second.y0) == (columns == 2)
