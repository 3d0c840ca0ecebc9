"""Pictures of studies: the names of variants hide nothing."""

import io

from PIL import Image
import pytest

from scalable_agent.studies import pictures


@pytest.mark.parametrize('length, is_inside', [(40, True), (41, False),
                                               (300, False)])
def test_long_names_stand_below(length, is_inside):
  figure, axis = pictures._axis('level', 'x', 'y')
  for letter in 'ab':
    axis.plot([0, 1], [0, 1], label=(f'{letter * 9} ' * 30)[:length])
  with Image.open(io.BytesIO(pictures._to_png(figure, axis))) as image:
    width = image.width
  names = axis.get_legend().get_window_extent()
  assert names.width <= width
  assert (names.y1 > axis.bbox.y0) == is_inside
