"""Which episodes a buffer finds in unrolls, and which it draws."""

import collections

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tree

from scalable_agent.replay import episode_buffer
from scalable_agent.replay import packed_unrolls
from tests import stacks
from tests.replay import episodes
from tests.replay import races


def _whole(play, num_unrolls, length, oldest=0):
  """The episodes of a play that can be cut to the end, by a slow look.

  Args:
    play: A `episodes.Play`.
    num_unrolls: How many of its unrolls are known.
    length: T.
    oldest: The first unroll of it that is kept.
  """
  last = num_unrolls * length
  found = []
  for begin, end in play.episodes(last + 1):
    cuts = range(begin, end, length)
    if begin >= oldest * length and cuts[-1] + length <= last:
      found.append((play.name, begin, end - begin))
  return found


def _drawn(buffer, length, count):
  """Draws episodes; returns a Counter of name, first entry and length."""
  counts = collections.Counter()
  for _ in range(count):
    if not (found := buffer.draw(1)):
      return counts
    (drawn,) = found
    pieces = [packed_unrolls.cut(
        drawn.unrolls[at // length:at // length + (2 if at % length else 1)],
        at % length)
              for at in range(drawn.offset, drawn.offset + drawn.num_steps,
                              length)]
    # And no unroll more than the last of them is cut out of.
    last_cut = drawn.offset + (drawn.num_steps - 1) // length * length
    assert len(drawn.unrolls) == (last_cut + length - 1) // length + 1
    name, begin = episodes.entry_of(pieces[0])
    for i, piece in enumerate(pieces):
      assert episodes.entry_of(piece) == (name, begin + i * length)
      assert len(piece.env_outputs.reward) == length + 1
    counts[name, begin, drawn.num_steps] += 1
  return counts


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    length=st.integers(1, 7), num_plays=st.integers(1, 3),
    num_unrolls=st.integers(1, 14), capacity=st.integers(1, 30),
    end_probability=st.sampled_from([.05, .2, .6, 1.]),
    seed=st.integers(0, 99))
def test_finds_the_whole_episodes_in_what_is_kept(
    length, num_plays, num_unrolls, capacity, end_probability, seed):
  """Whatever their lengths, and however the environments' unrolls mix."""
  plays = [episodes.Play(name, length * num_unrolls + 1, seed, end_probability)
           for name in range(num_plays)]
  order = np.random.default_rng(seed).permutation(
      np.repeat(np.arange(num_plays), num_unrolls))
  buffer = episode_buffer.EpisodeBuffer(capacity, length, seed)
  put = collections.Counter()
  for name in order:
    buffer.extend([plays[name].unroll(put[name], length)])
    put[name] += 1
  kept = collections.Counter(order[-capacity:])
  expected = {episode for play in plays for episode in _whole(
      play, num_unrolls, length, num_unrolls - kept[play.name])}
  assert set(_drawn(buffer, length, 12 * len(expected) + 1)) <= expected
  assert len(buffer.draw(3)) == (3 if expected else 0)
  assert len(buffer._index.episodes) == len(expected)


def test_draws_are_uniform_over_episodes():
  """Long ones are not drawn more often; they take longer to replay."""
  play = episodes.Play(0, 401, seed=1)
  buffer = episode_buffer.EpisodeBuffer(1000, 5, seed=1)
  buffer.extend([play.unroll(k, 5) for k in range(80)])
  expected = _whole(play, 80, 5)
  assert len({num_steps for _, _, num_steps in expected}) > 5
  draws = 100 * len(expected)
  counts = _drawn(buffer, 5, draws)
  assert set(counts) == set(expected)
  np.testing.assert_allclose(
      [counts[episode] for episode in expected], 100, atol=5 * np.sqrt(100))


def test_the_seed_decides_what_is_drawn():
  play = episodes.Play(0, 401, seed=1)
  def drawn(seed):
    buffer = episode_buffer.EpisodeBuffer(1000, 5, seed)
    buffer.extend([play.unroll(k, 5) for k in range(80)])
    return [episode[1:] for episode in buffer.draw(30)]
  assert drawn(1) == drawn(1) != drawn(2)


def test_no_episode_spans_a_gap():
  """Unrolls may be dropped on the way, as those that are too old."""
  play = episodes.Play(0, 201, seed=2)
  buffer = episode_buffer.EpisodeBuffer(1000, 5, seed=1)
  lost = {7, 20}
  buffer.extend([play.unroll(k, 5) for k in range(40) if k not in lost])
  whole = _whole(play, 40, 5)
  expected = {
      (name, begin, num_steps) for name, begin, num_steps in whole
      if all(begin >= 5 * (k + 1) or
             range(begin, begin + num_steps, 5)[-1] + 5 <= 5 * k for k in lost)}
  assert len(expected) < len(whole)
  assert set(_drawn(buffer, 5, 400)) == expected


def test_an_environment_that_is_replaced_is_another():
  """Its last episode has no end, whatever its successor does first."""
  play = episodes.Play(0, 101, seed=3, end_probability=.1)
  buffer = episode_buffer.EpisodeBuffer(1000, 5, seed=1)
  buffer.extend([play.unroll(k, 5) for k in range(10)])
  # As if it went on, but by its name.
  buffer.extend([play.unroll(k, 5)._replace(stream=(0, 1))
                 for k in range(10, 20)])
  drawn = set(_drawn(buffer, 5, 300))
  for _, begin, num_steps in drawn:
    last_cut = begin + (num_steps - 1) // 5 * 5
    assert begin >= 50 or last_cut + 5 <= 50
  assert any(begin >= 50 for _, begin, _ in drawn)


def test_an_episode_longer_than_the_buffer_is_never_drawn():
  """Nor does it take more memory than there is."""
  play = episodes.Play(0, 501, seed=4, end_probability=0.)
  play.done[[100, 460]] = True
  buffer = episode_buffer.EpisodeBuffer(10, 5, seed=1)
  for k in range(100):
    buffer.extend([play.unroll(k, 5)])
    assert buffer.draw(2) == []
    assert buffer.take_gauges()['replay_unrolls'] == min(k + 1, 10)
  (stream,) = buffer._index.streams.values()
  assert len(stream.numbers) <= 11


def test_long_episodes_and_short_ones_go_with_their_first_unroll():
  """Whichever ended first."""
  plays = [episodes.Play(name, 301, 7, end_probability)
           for name, end_probability in enumerate((.5, .1, .03))]
  buffer = episode_buffer.EpisodeBuffer(30, 5, seed=1)
  num_spanning = 0
  for k in range(60):
    for play in plays:
      buffer.extend([play.unroll(k, 5)])
      kept = buffer._ring.numbers
      found = buffer._index.episodes
      assert found == sorted(found)
      assert all(n in kept for episode in found for n in episode.numbers)
      num_spanning += any(a.numbers[-1] > b.numbers[-1]
                          for a, b in zip(found, found[1:]))
    oldest = max(k - 9, 0)
    assert len(found) == sum(
        len(_whole(play, k + 1, 5, oldest)) for play in plays)
  assert num_spanning > 10


def test_a_short_episode_behind_one_that_is_too_long_is_found_at_once():
  play = episodes.Play(0, 101, seed=4, end_probability=0.)
  play.done[[60, 61]] = True
  buffer = episode_buffer.EpisodeBuffer(10, 5, seed=1)
  buffer.extend([play.unroll(k, 5) for k in range(13)])
  assert set(_drawn(buffer, 5, 9)) == {(0, 60, 1)}


def test_an_episode_that_begins_an_entry_too_early_is_not_found():
  """It begins in the last unroll that is gone, and ends in one that is kept."""
  play = episodes.Play(0, 101, seed=0, end_probability=0.)
  play.done[[4, 21]] = True
  buffer = episode_buffer.EpisodeBuffer(4, 5, seed=1)
  buffer.extend([play.unroll(k, 5) for k in range(5)])
  assert buffer.draw(1) == []


@pytest.mark.parametrize('begin', [0, 2])
@pytest.mark.parametrize('num_steps', [14, 15, 16])
def test_an_episode_is_found_with_the_unroll_in_which_its_last_cut_ends(
    begin, num_steps):
  """The buffer holds no more, and what follows may be lost."""
  play = episodes.Play(0, 101, seed=0, end_probability=0.)
  play.done[0] = begin == 0
  play.done[[begin, begin + num_steps]] = True
  num_unrolls = -(-(begin + -(-num_steps // 5) * 5) // 5)
  buffer = episode_buffer.EpisodeBuffer(num_unrolls, 5, seed=1)
  for k in range(num_unrolls):
    assert buffer.draw(1) == []
    buffer.extend([play.unroll(k, 5)])
  assert set(_drawn(buffer, 5, 1)) == {(0, begin, num_steps)}


def test_environments_that_are_gone_are_forgotten():
  buffer = episode_buffer.EpisodeBuffer(6, 5, seed=1)
  for name in range(20):
    play = episodes.Play(name, 11, seed=5)
    buffer.extend([play.unroll(k, 5) for k in range(2)])
  assert len(buffer._index.streams) == 3


def test_ages_are_those_of_the_unrolls():
  play = episodes.Play(0, 31, seed=6, end_probability=0.)
  play.done[[4, 8]] = True
  buffer = episode_buffer.EpisodeBuffer(100, 5, seed=1)
  buffer.extend([play.unroll(k, 5) for k in range(6)])
  for _ in range(100):
    buffer.take_gauges()
    if buffer.draw(1)[0].offset == 4:
      break
  # From entry 4 to 8 it is cut out of unrolls 0 and 1.
  assert buffer.take_gauges()['replay_age_mean'] == pytest.approx(4.5)


@pytest.mark.parametrize('part, within, first, second', [
    ('_ring', 'append', 'extend', 'draw'), ('_index', 'add', 'extend', 'draw'),
    ('_ring', 'read', 'draw', 'extend'),
    ('_ring', 'take_gauges', 'take_gauges', 'extend')])
def test_whoever_is_in_the_middle_keeps_others_out(
    monkeypatch, part, within, first, second):
  play = episodes.Play(0, 21, seed=1, end_probability=1.)
  buffer = episode_buffer.EpisodeBuffer(10, 5, seed=1)
  buffer.extend([play.unroll(k, 5) for k in range(3)])
  calls = dict(extend=lambda: buffer.extend([play.unroll(3, 5)]),
               draw=lambda: buffer.draw(1), take_gauges=buffer.take_gauges)
  races.check_waits(
      monkeypatch, getattr(buffer, part), within, calls[first], calls[second])


def test_unrolls_are_kept_packed_and_without_core_states():
  """Which nobody wants: they are computed anew."""
  play = episodes.Play(0, 21, seed=1, end_probability=1.)
  frames = stacks.make(np.random.default_rng(1), 21, 8, 8, ())
  buffer = episode_buffer.EpisodeBuffer(10, 5, seed=1)
  for k in range(4):
    unroll = play.unroll(k, 5)
    buffer.extend([unroll._replace(env_outputs=unroll.env_outputs._replace(
        observation=(frames[5 * k:5 * k + 6],)))])
  (drawn,) = buffer.draw(1)
  assert drawn.unrolls[0].agent_state == ()
  held = sum(a.nbytes for unroll in drawn.unrolls
             for a in tree.flatten(unroll.env_outputs.observation))
  # A stack of four and five frames.
  assert held == len(drawn.unrolls) * 9 * 8 * 8
