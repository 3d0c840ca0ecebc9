"""Curves: means over episodes and seeds, and pictures of them."""

import io
import itertools

from matplotlib import figure as figure_lib
import numpy as np
from PIL import Image
import pytest

from scalable_agent.results import curves
from scalable_agent.results import runs


def _episodes(frames, returns):
  return runs.Episodes(np.array(frames), np.array(returns, np.float64))


def test_moving_mean_is_over_the_last_values():
  values = np.random.default_rng(0).normal(size=370)
  expected = [values[max(i - 99, 0):i + 1].mean() for i in range(370)]
  np.testing.assert_allclose(curves.moving_mean(values), expected)


def test_over_seeds_takes_those_that_got_so_far():
  """Mean, least and greatest; a shorter seed ends without pulling others."""
  frames, mean, low, high, is_of_all = curves.over_seeds([
      _episodes([0, 100], [2., 2.]), _episodes([0, 50], [4., 4.])])
  both = frames <= 50
  assert 0 < both.sum() < len(frames) and frames[-1] == 100
  np.testing.assert_array_equal(is_of_all, both)
  np.testing.assert_allclose(mean, np.where(both, 3, 2))
  np.testing.assert_allclose(low, 2)
  np.testing.assert_allclose(high, np.where(both, 4, 2))


def test_a_gap_between_seeds_is_left_out():
  frames, mean, _, _, is_of_all = curves.over_seeds(
      [_episodes([0, 10], [1., 1.]), _episodes([90, 100], [5., 5.])])
  assert set(mean) == {1., 5.} and not is_of_all.any()
  assert not ((frames > 10) & (frames < 90)).any()


def _run(seed, clock=None, **episodes):
  return runs.Run('', dict(level_name='pong', seed=seed), 1, episodes, {}, None,
                  clock)


def test_lines_of_a_level():
  """Of agents that have an episode, in the styles of all of them."""
  a, b = _episodes([1], [2]), _episodes([3], [4])
  agents = {'x': [_run(1, qbert=b)], 'y': [_run(1, pong=a), _run(1, pong=b)],
            'z': [_run(2, pong=b)]}
  y, z = curves.lines(agents, 'pong')
  _, second, third = itertools.islice(curves.STYLES, 3)
  assert (y.label, y.style, y.episodes) == (
      'y (2 runs of 1 seed)', second, [a, b])
  assert (z.label, z.style, z.episodes) == ('z (1 seed)', third, [b])


def test_no_two_of_many_agents_look_alike():
  agents = {f'agent {i}': [_run(i, pong=_episodes([1], [i]))]
            for i in range(40)}
  styles = [line.style for line in curves.lines(agents, 'pong')]
  assert len({tuple(sorted(style.items())) for style in styles}) == 40
  assert len({style['color'] for style in styles[:10]}) == 10


def test_hours_of_lines_are_those_of_the_runs_clock():
  clock = runs.Clock(np.array([0, 100, 200]), np.array([0., 1., 5.]))
  (line,) = curves.lines({'x': [
      _run(1, clock, pong=_episodes([50, 150], [7., 8.])),
      _run(2, pong=_episodes([50], [9.]))]}, 'pong')
  (hours,) = line.hours
  np.testing.assert_allclose(hours.frames, [.5, 3.])
  np.testing.assert_array_equal(hours.returns, [7., 8.])


def _line(label='agent', hours=()):
  return curves.Line(
      label, dict(color='C0'),
      [_episodes([1, 2], [3., 4.]), _episodes([1], [2.])], list(hours))


def _size(png):
  with Image.open(io.BytesIO(png)) as image:
    assert image.format == 'PNG'
    return image.size


def test_pictures_grow_with_their_panels():
  (width, height), (wide, as_high), (widest, high) = (
      _size(curves.draw({name: [_line()] for name in names}))
      for names in ('a', 'abc', 'abcde'))
  assert (wide, as_high) == (3 * width, height)
  assert (widest, high) == (4 * width, 2 * height)


def _dark_rows(png):
  """Which rows of pixels have something dark in them, bool."""
  with Image.open(io.BytesIO(png)) as image:
    return (np.array(image.convert('L')) < 100).any(axis=1)


def test_legends_stand_below_the_curves():
  """Each further name makes the picture higher, and the curves no lower."""
  one, three = (curves.draw({'pong': [
      _line(str(i) * 30) for i in range(count)]}) for count in (1, 3))
  assert _size(three)[1] > _size(one)[1]
  # A row of pixels may be rounded up or down.
  assert (_dark_rows(one)[:300] != _dark_rows(three)[:300]).sum() <= 2


@pytest.mark.parametrize('length', [30, 70, 130])
def test_names_of_agents_are_not_cut_off(length):
  name = ('learning_rate=0.0001, target_update_period=100, ' * 3)[:length]
  picture = np.array(Image.open(io.BytesIO(curves.draw(
      {'pong': [_line(name)]}))).convert('L'))
  assert picture[-20:].min() < 128 and picture[-20:, -3:].min() > 200


def test_curves_over_hours_are_those_of_the_hours():
  one, other = (
      [_line(hours=[_episodes([.5, 3.], [3., last])])] for last in (4., 5.))
  assert curves.draw({'pong': one}) == curves.draw({'pong': other})
  over_hours = curves.draw({'pong': one}, in_hours=True)
  assert over_hours != curves.draw({'pong': other}, in_hours=True)
  assert _size(over_hours) == _size(curves.draw({'pong': one}))


def test_scores_of_a_human_are_dashed_and_of_random_actions_dotted():
  figure = figure_lib.Figure(figsize=(4, 4))
  curves._draw_panel(figure, (0, 0, 4, 4), 'pong', [_line()], False)
  (axis,) = figure.axes
  styles = {line.get_linestyle(): line.get_ydata()[0] for line in axis.lines
            if line.get_color() == 'grey'}
  assert styles == {'--': 14.6, ':': -20.7}


def test_evaluations_are_means_of_each_time():
  frames, means = curves.evaluation_means(
      _episodes([100, 200, 100, 200, 200], [1., 2., 5., 4., 9.]))
  np.testing.assert_array_equal(frames, [100, 200])
  np.testing.assert_allclose(means, [3., 5.])


def test_evaluations_are_drawn_over_frames_alone():
  run = _run(1, pong=_episodes([1, 2], [3., 4.]))
  run = run._replace(evaluations=dict(pong=_episodes([1, 1], [9., 5.])))
  (line,) = curves.lines({'x': [run, _run(2, pong=_episodes([1], [2.]))]},
                         'pong')
  assert len(line.evaluations) == 1
  without = line._replace(evaluations=[])
  draw = lambda line, **kwargs: curves.draw({'pong': [line]}, **kwargs)
  assert draw(line) != draw(without)
  assert draw(line, in_hours=True) == draw(without, in_hours=True)
