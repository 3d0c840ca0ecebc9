"""Seeds of runs that follow each other."""

import itertools

import hypothesis
from hypothesis import strategies
import pytest

from scalable_agent.config import seeds

_USES = (seeds.TRAINING, seeds.TESTS, seeds.ACTIONS)
# The environments of a run have seeds that follow each other.
_NUM_ENVIRONMENTS = 500


def test_runs_of_a_sweep_share_no_environment():
  starts = sorted(
      seeds.derive(seed, use) for seed in range(1, 25) for use in _USES[:2])
  assert all(b - a > _NUM_ENVIRONMENTS
             for a, b in itertools.pairwise(starts))


def test_a_seed_stands_for_the_same_in_every_release():
  """Commands that stand beside results keep their meaning."""
  assert [seeds.derive(1, use) for use in _USES] == [
      761_762_303, 115_291_565, 523_068_587]


@hypothesis.given(
    strategies.integers(0, 2_000_000_000), strategies.sampled_from(_USES),
    strategies.integers(0, 2**63))
def test_there_is_room_above_for_the_numbers_of_environments(
    seed, use, number):
  assert 0 <= seeds.derive(seed, use, number) < 2**31 - 10**9


@pytest.mark.parametrize('others', [
    dict(seed=4), dict(use=seeds.TESTS), dict(number=10), dict(task=1)])
def test_every_argument_counts(others):
  first = dict(seed=3, use=seeds.TRAINING, number=0)
  assert seeds.derive(**first) != seeds.derive(**dict(first, **others))
