"""Curves: means over episodes and seeds, and pictures of them."""

import io

import numpy as np
from PIL import Image

from scalable_agent.results import curves
from scalable_agent.results import runs


def _episodes(frames, returns):
  return runs.Episodes(np.array(frames), np.array(returns, np.float64))


def test_moving_mean_is_over_the_last_values():
  values = np.random.default_rng(0).normal(size=37)
  expected = [values[max(i - 9, 0):i + 1].mean() for i in range(37)]
  np.testing.assert_allclose(curves.moving_mean(values, 10), expected)


def test_over_seeds_takes_those_that_got_so_far():
  """Mean, least and greatest; a shorter seed ends without pulling others."""
  frames, mean, low, high = curves.over_seeds([
      _episodes([0, 100], [2., 2.]), _episodes([0, 50], [4., 4.])])
  both = frames <= 50
  assert 0 < both.sum() < len(frames) and frames[-1] == 100
  np.testing.assert_allclose(mean, np.where(both, 3, 2))
  np.testing.assert_allclose(low, 2)
  np.testing.assert_allclose(high, np.where(both, 4, 2))


def test_a_gap_between_seeds_is_left_out():
  frames, mean, _, _ = curves.over_seeds(
      [_episodes([0, 10], [1., 1.]), _episodes([90, 100], [5., 5.])])
  assert set(mean) == {1., 5.}
  assert not ((frames > 10) & (frames < 90)).any()


def test_episodes_of_a_level_by_agent():
  run = lambda **episodes: runs.Run('', {}, 1, episodes, {}, None)
  a, b = _episodes([1], [2]), _episodes([3], [4])
  agents = {'x': [run(pong=a), run(qbert=b)], 'y': [run(pong=b)], 'z': [run()]}
  assert curves.episodes_by_agent(agents, 'pong') == {'x': [a], 'y': [b]}


def test_pictures_grow_with_their_panels():
  panels = {name: {'agent': [_episodes([1, 2], [3., 4.]), _episodes([1], [2.])]}
            for name in ('pong', 'b', 'c')}
  sizes = []
  for columns in (4, 2):
    with Image.open(io.BytesIO(curves.draw(panels, columns))) as image:
      assert image.format == 'PNG'
      sizes.append(image.size)
  assert sizes == [(1800, 400), (1200, 800)]
