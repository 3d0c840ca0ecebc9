"""Who has to wait for whom."""

import hypothesis
from hypothesis import strategies as st

from scalable_agent.shared_replay import pace as pace_lib


def _members(*batch_sizes):
  members = [pace_lib.Member(i) for i in range(len(batch_sizes))]
  for member, size in zip(members, batch_sizes):
    member.join(f'"{member.number}"', size)
  return members


def test_who_is_alone_never_waits():
  (member,) = _members(2)
  pace = pace_lib.Pace()
  assert pace.slowest() is None and pace.may_go_on(member)
  for _ in range(9):
    pace.advance(member, 100)
    assert pace.may_go_on(member)
  pace.keep([])
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


def test_who_comes_back_keeps_its_lead():
  """Also if nobody was there meanwhile."""
  fast, slow = _members(1, 1)
  pace = pace_lib.Pace()
  pace.advance(slow, 1)
  pace.advance(fast, 3)
  for there in [slow], []:
    pace.keep(there)
    for member in slow, fast:
      pace.advance(member, 0)
    assert (slow.position, fast.position) == (1, 4)
    assert not pace.may_go_on(fast) and pace.may_go_on(slow)


def test_the_first_to_come_back_begins_where_the_slowest_was():
  fast, slow = _members(1, 1)
  pace = pace_lib.Pace()
  pace.advance(slow, 1)
  pace.keep([])
  pace.advance(fast, 500)
  pace.keep([])
  for member in slow, fast:
    pace.advance(member, 0)
  assert slow.position == fast.position == 501


def test_those_that_come_first_wait_near_the_start_for_those_that_will():
  first, second, last = _members(2, 3, 1)
  pace = pace_lib.Pace(num_agents=3)
  assert pace.num_awaited == 3
  pace.advance(first, 4)
  assert pace.may_go_on(first) and pace.num_awaited == 2
  pace.advance(first, 1)
  assert not pace.may_go_on(first)
  # All begin at the start, and not where the first one waits.
  pace.advance(second, 6)
  assert second.position == 6 and pace.num_awaited == 1
  assert pace.may_go_on(second) and not pace.may_go_on(first)
  pace.advance(last, 1)
  assert last.position == 1 and pace.num_awaited == 0
  assert pace.may_go_on(first) and pace.may_go_on(second)
  # From then on, the slowest alone counts: how far all are does not.
  for member in last, first, second:
    pace.advance(member, 100)
  assert pace.may_go_on(last) and pace.may_go_on(first)
  (late,) = _members(1)
  pace.advance(late, 1)
  assert late.position == 102


def test_an_agent_that_begins_twice_is_one():
  first, other = _members(1, 1)
  pace = pace_lib.Pace(num_agents=2)
  pace.advance(first, 1)
  pace.keep([])
  first.join('"again"', 1)
  pace.advance(first, 2)
  assert pace.num_awaited == 1 and not pace.may_go_on(first)
  pace.advance(other, 1)
  assert pace.num_awaited == 0 and pace.may_go_on(first)


def test_an_agent_that_has_begun_and_is_gone_is_not_awaited_again():
  first, other = _members(1, 1)
  pace = pace_lib.Pace(num_agents=2)
  pace.advance(first, 1)
  pace.advance(other, 1)
  pace.keep([other])
  assert pace.num_awaited == 0
  pace.advance(other, 100)
  assert pace.may_go_on(other)


def test_whoever_is_awaited_no_more_holds_nobody():
  first, late = _members(1, 1)
  pace = pace_lib.Pace(num_agents=2)
  pace.advance(first, 100)
  assert not pace.may_go_on(first)
  pace.await_no_more()
  assert pace.may_go_on(first) and pace.num_awaited == 0
  pace.advance(late, 1)
  assert late.position == 101


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    moves=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80))
def test_nobody_gets_far_ahead_and_not_all_wait(sizes, moves):
  """Whoever may go on does so by a batch; whoever leaves comes back.

  It then says again what may not have been heard, which is nothing new.
  """
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
    elif member not in there:
      there.add(member)
      pace.advance(member, 0)
    elif pace.may_go_on(member):
      pace.advance(member, member.lead // pace_lib.LEAD_BATCHES)
    slowest = min((m.position for m in there), default=0)
    for m in there:
      assert m.position - slowest <= m.lead + m.lead // 2
    assert not there or any(map(pace.may_go_on, there))
