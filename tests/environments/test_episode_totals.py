"""Returns and lengths of episodes, as outputs come in."""

import numpy as np

from scalable_agent.environments.pools import episode_totals


def _add(totals, ids, reward, done):
  """Returns what `EpisodeTotals.add` does, as lists."""
  info, is_first, is_last = totals.add(
      np.array(ids), np.array(reward, np.float32), np.array(done, bool))
  assert info.episode_return.dtype == np.float32
  assert info.episode_step.dtype == np.int32
  assert is_first.dtype == is_last.dtype == bool
  return [values.tolist() for values in (*info, is_first, is_last)]


def test_totals_of_episodes():
  totals = episode_totals.EpisodeTotals(3)
  assert _add(totals, [2, 0], [0, 0], [True, True]) == [
      [0, 0], [0, 0], [True, True], [False, False]]
  assert _add(totals, [0], [1.5], [False]) == [[1.5], [1], [False], [False]]
  # The last step belongs to its episode; the next begins with nothing.
  assert _add(totals, [2, 0, 1], [3, 2, 0], [False, True, True]) == [
      [3, 3.5, 0], [1, 2, 0], [False, False, True], [False, True, False]]
  assert _add(totals, [0, 2], [7, 1], [False, True]) == [
      [7, 4], [1, 2], [False, False], [False, True]]


def test_new_environments_begin_with_nothing():
  totals = episode_totals.EpisodeTotals(2)
  _add(totals, [0, 1], [0, 0], [True, True])
  _add(totals, [0, 1], [5, 6], [False, False])
  totals.begin_anew(np.array([1]))
  assert _add(totals, [0, 1], [1, 0], [False, True]) == [
      [6, 0], [2, 0], [False, True], [False, False]]


def test_an_infinite_return_ends_with_its_episode():
  totals = episode_totals.EpisodeTotals(1)
  _add(totals, [0], [0], [True])
  assert _add(totals, [0], [np.inf], [True])[0] == [np.inf]
  assert _add(totals, [0], [1], [False])[0] == [1]


def test_what_is_returned_is_the_callers():
  totals = episode_totals.EpisodeTotals(1)
  info, _, _ = totals.add(np.array([0]), np.zeros(1, np.float32),
                          np.ones(1, bool))
  info.episode_return[:] = info.episode_step[:] = 9
  assert _add(totals, [0], [1], [False]) == [[1], [1], [False], [False]]
