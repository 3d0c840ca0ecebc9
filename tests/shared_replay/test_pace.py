"""Who has to wait for whom."""

import hypothesis
from hypothesis import strategies as st

from scalable_agent.shared_replay import pace as pace_lib


def _members(*batch_sizes):
  return [pace_lib.Member(f'"{i}"', i, size)
          for i, size in enumerate(batch_sizes)]


def test_who_is_alone_never_waits():
  (member,) = _members(2)
  pace = pace_lib.Pace()
  assert pace.slowest() is None
  for _ in range(9):
    pace.advance(member, 100)
    assert pace.may_go_on(member)


def test_two_batches_are_the_lead():
  fast, slow = _members(3, 5)
  pace = pace_lib.Pace()
  pace.advance(slow, 0)
  for _ in range(6):
    pace.advance(fast, 1)
    assert pace.may_go_on(fast)
  pace.advance(fast, 1)
  assert not pace.may_go_on(fast) and pace.may_go_on(slow)
  pace.advance(slow, 1)
  assert pace.may_go_on(fast)


def test_who_comes_begins_where_the_slowest_is():
  first, second, late = _members(1, 1, 1)
  pace = pace_lib.Pace()
  pace.advance(first, 500)
  pace.advance(second, 3)
  assert first.position == 500 and second.position == 503
  pace.advance(late, 1)
  assert late.position == 501


def test_who_is_gone_counts_no_more_and_catches_up_when_it_is_back():
  fast, slow = _members(1, 1)
  pace = pace_lib.Pace()
  pace.advance(slow, 1)
  pace.advance(fast, 3)
  assert not pace.may_go_on(fast)
  assert pace.keep([fast]) == [slow] and pace.keep([fast, slow]) == []
  assert pace.may_go_on(fast) and len(pace) == 1
  pace.advance(fast, 1000)
  pace.advance(slow, 1)
  assert slow.position == fast.position + 1
  assert pace.may_go_on(slow) and pace.may_go_on(fast)


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    moves=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80))
def test_nobody_gets_far_ahead_and_not_all_wait(sizes, moves):
  """Whoever may go on does so by a batch; whoever leaves comes back."""
  members = _members(*sizes)
  pace = pace_lib.Pace()
  for member in members:
    pace.advance(member, 0)
  there = set(members)
  for i, leaves in moves:
    member = members[i % len(members)]
    if leaves:
      there.discard(member)
      pace.keep(there)
    elif pace.may_go_on(member) or member not in there:
      there.add(member)
      pace.advance(member, member.lead // pace_lib.LEAD_BATCHES)
    slowest = min((m.position for m in there), default=0)
    for m in there:
      assert m.position - slowest <= m.lead + m.lead // 2
    assert not there or any(map(pace.may_go_on, there))
