"""What a replay job keeps, and what it draws of it."""

import collections
import math
import sys

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from scalable_agent.environments import ArraySpec
from scalable_agent.remote import wire
from scalable_agent.replay import packed_unrolls
from scalable_agent.shared_replay import contents as contents_lib
from scalable_agent.shared_replay import protocol
from scalable_agent.suites import Facts
from scalable_agent.unroll_messages import call_sizes
from scalable_agent.unroll_messages import unroll_message
from tests.replay import episodes
from tests.shared_replay import replay_parts

_T = 4
_EPISODES = dict(
    facts=Facts(2, (ArraySpec((episodes.SIZE,), np.dtype(np.float32)),)),
    unroll_length=_T)


def _make(capacity, max_bytes=math.inf, **options):
  return contents_lib.Contents(
      replay_parts.layout(), capacity, max_bytes, 1, **options)


def _message(seed):
  return replay_parts.insert_message(12345, 678, seed)


def _fields(message):
  layout = replay_parts.layout()
  return tuple(int(layout.peek(bytes(message), name)) for name in (
      'policy_version', 'session', 'sequence'))


def test_messages_are_kept_but_for_who_sent_them():
  """Whoever knows the number of a session could send in its name."""
  contents = _make(10)
  contents.insert(_message(7), agent=3)
  contents.insert(_message(8), agent=5)
  drawn = {bytes(m) for m in contents.draw(50, math.inf)}
  assert {_fields(m) for m in drawn} == {(7, 3, 1), (8, 5, 2)}
  expected = bytearray(_message(7))
  replay_parts.layout().overwrite(expected, dict(session=3, sequence=1))
  assert bytes(expected) in drawn
  for message in drawn:
    replay_parts.layout().check(message)


@pytest.mark.parametrize('num_inserted', [7, 20, 33])
def test_draws_are_uniform_and_independent(num_inserted):
  contents = _make(20)
  for seed in range(num_inserted):
    contents.insert(_message(seed), 0)
  kept = range(max(num_inserted - 20, 0), num_inserted)
  draws = 4000
  counts = collections.Counter(
      _fields(m)[0] for m in contents.draw(draws, math.inf))
  assert sorted(counts) == list(kept)
  expected = draws / len(kept)
  np.testing.assert_allclose(
      [counts[seed] for seed in kept], expected,
      atol=5 * np.sqrt(expected * (1 - 1 / len(kept))))
  # What is not there has made room, but not for want of memory.
  assert not contents.lacks_memory


@hypothesis.settings(max_examples=30)
@hypothesis.given(count=st.integers(1, 9), fitting=st.integers(0, 9))
def test_draws_stay_within_bytes_unless_it_is_one_alone(count, fitting):
  contents = _make(5)
  for seed in range(5):
    contents.insert(_message(seed), 0)
  drawn = contents.draw(count, fitting * replay_parts.layout().num_bytes)
  assert len(drawn) == min(count, max(fitting, 1))
  found = contents.fetch([4, 0, 2], fitting * replay_parts.layout().num_bytes)
  assert [_fields(m)[0] for m in found] == [4, 0, 2][:max(fitting, 1)]


def test_what_fits_does_so_with_what_is_between():
  """Or the other end would refuse a message that is longer than agreed on."""
  facts = Facts(3, (ArraySpec((1,), np.dtype(np.uint8)),))
  layout = replay_parts.layout(facts=facts)
  assert layout.num_bytes % 8
  contents = contents_lib.Contents(layout, 9, math.inf, 0)
  unroll = replay_parts.make_unroll(0)
  contents.insert(layout.encode(unroll_message.UnrollMessage(
      np.uint64(1), np.int64(1), np.int32(0), np.int64(0), (),
      unroll.env_outputs._replace(observation=(np.zeros([4, 1], np.uint8),)),
      unroll.agent_outputs._replace(
          policy_logits=np.zeros([4, 3], np.float32)))), 0)
  for most in (1 << 16, call_sizes.MAX_CALL_BYTES):
    joined = wire.join(contents.draw(1 << 16, most))
    assert most - 2 * layout.num_bytes < len(joined) <= most
  before = len(protocol.join(contents.state, []))
  assert before + call_sizes.MAX_CALL_BYTES <= (
      protocol.max_message_bytes(layout))


def test_no_more_bytes_are_kept_than_there_may_be():
  """However many unrolls that is; the newest is always there."""
  size = sys.getsizeof(bytearray(_message(0)))
  for most, expected in ((3.5 * size, 3), (3 * size, 3), (size, 1), (1, 1)):
    contents = _make(10, most)
    for seed in range(8):
      contents.insert(_message(seed), 0)
      assert contents.state.num_kept == min(seed + 1, expected)
      assert contents.state.num_bytes == contents.state.num_kept * size
      assert contents.lacks_memory == (seed >= expected)
    assert {_fields(m)[0] for m in contents.draw(99, math.inf)} == set(
        range(8 - expected, 8))
    assert contents.fetch([0], math.inf) == []


def test_ages_are_in_inserts():
  contents = _make(10)
  for seed in range(10):
    contents.insert(_message(seed), seed)
  drawn = contents.draw(30, math.inf)
  gauges = contents.take_gauges()
  np.testing.assert_allclose(
      gauges['replay_age_mean'], np.mean([10 - _fields(m)[2] for m in drawn]))
  assert gauges['replay_unrolls'] == 10


def _episode_message(unroll, session=9):
  return replay_parts.layout(100, **_EPISODES).encode(
      unroll_message.UnrollMessage(
          session=np.uint64(session), sequence=np.int64(1),
          level=np.int32(int(unroll.level_name.rpartition('_')[2])),
          policy_version=np.int64(unroll.policy_version), agent_state=(),
          env_outputs=unroll.env_outputs,
          agent_outputs=unroll.agent_outputs._replace(
              action=unroll.agent_outputs.action % 2),
          stream=np.int64(0)))


def test_episodes_are_those_of_each_agent_by_itself():
  """Their environments may have the same names."""
  layout = replay_parts.layout(100, **_EPISODES)
  contents = contents_lib.Contents(
      layout, 1000, math.inf, 1, unroll_length=_T)
  plays = [episodes.Play(name, 30 * _T + 1, seed=3) for name in range(3)]
  assert contents.draw_episode() is None
  for k in range(30):
    for play in plays:
      contents.insert(_episode_message(play.unroll(k, _T)), agent=play.name)
  begun = collections.Counter()
  for _ in range(3000):
    episode = contents.draw_episode()
    messages = contents.fetch(list(episode.numbers), math.inf)
    unrolls = []
    for message in messages:
      nest = layout.decode(bytes(message))
      # As the actor names it.
      unrolls.append(plays[0].unroll(0, _T)._replace(
          level_name=f'level_{nest.level}', env_outputs=nest.env_outputs,
          agent_outputs=nest.agent_outputs))
    pieces = [packed_unrolls.cut(unrolls[at // _T:at // _T + 2], at % _T)
              for at in range(episode.offset,
                              episode.offset + episode.num_steps, _T)]
    name, begin = episodes.entry_of(pieces[0])
    assert plays[name].done[begin]
    assert plays[name].done[begin + episode.num_steps]
    assert not plays[name].done[begin + 1:begin + episode.num_steps].any()
    begun[name, begin] += 1
  counts = np.array(list(begun.values()))
  expected = 3000 / len(counts)
  assert {name for name, _ in begun} == {0, 1, 2}
  np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(expected))


def test_environments_that_are_gone_are_forgotten():
  """Those of agents come and go for as long as a job lives."""
  contents = contents_lib.Contents(
      replay_parts.layout(100, **_EPISODES), 6, math.inf, 1, unroll_length=_T)
  for name in range(20):
    play = episodes.Play(name, 2 * _T + 1, seed=5)
    for k in range(2):
      contents.insert(_episode_message(play.unroll(k, _T)), agent=name)
  assert set(contents._index.streams) == {(name, 0) for name in (17, 18, 19)}
  size = sys.getsizeof(bytearray(_episode_message(play.unroll(0, _T))))
  assert contents.state.num_bytes == 6 * size


def test_the_seed_decides_what_is_drawn():
  def drawn(seed):
    contents = contents_lib.Contents(replay_parts.layout(), 50, math.inf, seed)
    for number in range(50):
      contents.insert(_message(number), 0)
    return [_fields(m)[0] for m in contents.draw(30, math.inf)]
  assert drawn(1) == drawn(1) != drawn(2)
