"""Learners that share a replay job, over connections that break."""

import collections
import logging as python_logging
import math
import time

import numpy as np
import pytest
import tree

from scalable_agent import staging
from scalable_agent.environments import ArraySpec
from scalable_agent.remote import link as link_lib
from scalable_agent.remote import server as server_lib
from scalable_agent.remote import sessions as sessions_lib
from scalable_agent.remote import wire
from scalable_agent.replay import replayed_queue
from scalable_agent.shared_replay import methods as methods_lib
from scalable_agent.shared_replay import protocol
from scalable_agent.suites import Facts
from scalable_agent.unroll_messages import call_sizes
from tests import clocks
from tests import stacks
from tests.remote import remote_parts
from tests.replay import unrolls as unrolls_lib
from tests.shared_replay import replay_parts

pytestmark = pytest.mark.usefixtures('bounded')


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', .05)
  monkeypatch.setattr(link_lib, '_LONGEST_WAIT_SECONDS', .2)
  monkeypatch.setattr(server_lib, '_CHECK_SECONDS', .05)
  monkeypatch.setattr(server_lib, '_CLOSE_GRACE_SECONDS', .1)
  monkeypatch.setattr(methods_lib, '_AWAY_SECONDS', 1.)


class _Clock(clocks.Clock):
  """The time that a job's methods see."""

  def advance(self, seconds):
    """Lets time pass, and the job notice it."""
    self.now += seconds
    time.sleep(.3)


@pytest.fixture
def clock(monkeypatch):
  return _Clock(monkeypatch, methods_lib)


def _unrolls(seeds, level='easy'):
  return [replay_parts.make_unroll(seed, level) for seed in seeds]


def _seeds(client, count):
  return collections.Counter(map(replay_parts.seed_of, client.sample(count)))


# -- What is drawn ------------------------------------------------------------


def test_agents_see_each_others_unrolls_and_their_own():
  """Uniformly, and equal to the bit but for core states, which have no use."""
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, 'a') as a, (
        replay_parts.client_of(job, 'b')) as b:
      replay_parts.insert(a, _unrolls(range(10)))
      replay_parts.insert(b, _unrolls(range(10, 40), 'hard'))
      draws = 8000
      for client in a, b:
        counts = _seeds(client, draws)
        assert sorted(counts) == list(range(40))
        np.testing.assert_allclose(
            list(counts.values()), draws / 40, atol=5 * np.sqrt(draws / 40))
      assert {u.level_name for u in a.sample(100)} == {'easy', 'hard'}


def test_what_is_not_finite_ends_no_run():
  """The job would refuse it, and whoever sends it."""
  queue = staging.TrajectoryQueue(12)
  for seed in range(12):
    unroll = replay_parts.make_unroll(seed)
    queue.put(unrolls_lib.with_value(unroll, 2, np.nan) if seed % 3 else unroll)
  with replay_parts.Job() as job, replay_parts.client_of(job) as client:
    source = replayed_queue.ReplayedQueue(queue, client, 3)
    for _ in range(3):
      batch = source.get(7)
      assert set(map(replay_parts.seed_of, batch.unrolls[4:])) <= {0, 3, 6, 9}
    client._link.flush()
    assert job.num_inserted == 4


def test_the_oldest_make_room_whoever_has_acted_them():
  with replay_parts.Job(capacity=6) as job:
    with replay_parts.client_of(job, 'a') as a, (
        replay_parts.client_of(job, 'b')) as b:
      for seed in range(0, 20, 2):
        replay_parts.insert(a, _unrolls([seed]))
        replay_parts.insert(b, _unrolls([seed + 1]))
        newest = seed + 1
        assert set(_seeds(a, 100)) == set(range(max(newest - 5, 0), newest + 1))


def test_a_large_draw_comes_in_several_messages(monkeypatch):
  """Each of which is not longer than agreed on."""
  size = replay_parts.layout().num_bytes
  for most in (1, 5 * size, 1 << 20):
    monkeypatch.setattr(call_sizes, 'MAX_CALL_BYTES', most)
    with replay_parts.Job() as job, replay_parts.client_of(job) as client:
      replay_parts.insert(client, _unrolls(range(12)))
      assert sum(_seeds(client, 33).values()) == 33


@pytest.mark.parametrize('begins', [(), (3,)])
def test_stacks_of_frames_come_back_to_the_bit(begins):
  """Each frame is sent and kept once, unless a game begins in the unroll."""
  facts = Facts(4, (ArraySpec((36, 36, 4), np.dtype(np.uint8)),))
  unroll = replay_parts.make_unroll(1)
  frames = stacks.make(np.random.default_rng(0), 9, 36, 36, begins)
  steps = lambda a: np.concatenate([a, a, a])[:9]
  unroll = unroll._replace(
      env_outputs=tree.map_structure(steps, unroll.env_outputs)._replace(
          observation=(frames,)),
      agent_outputs=tree.map_structure(steps, unroll.agent_outputs))
  changes = dict(facts=facts, unroll_length=8)
  with replay_parts.Job(**changes) as job:
    with replay_parts.client_of(job, **changes) as client:
      replay_parts.insert(client, [unroll])
      (found,) = client.sample(1)
      assert replay_parts.same(found, unroll)
      kept = job.service._contents.state.num_bytes
      assert (kept < .5 * frames.nbytes) == (not begins)


def test_gauges_say_what_is_there_and_what_was_drawn():
  with replay_parts.Job(capacity=8) as job:
    with replay_parts.client_of(job, 'a') as a, (
        replay_parts.client_of(job, 'b')) as b:
      replay_parts.insert(a, _unrolls(range(6)))
      replay_parts.insert(b, _unrolls(range(6, 12)))
      drawn = [replay_parts.seed_of(unroll) for unroll in a.sample(400)]
      gauges = a.take_gauges()
      state = job.service._contents.state
      assert gauges['replay_unrolls'] == 8 == state.num_kept
      assert gauges['replay_mb'] == state.num_bytes / 1e6
      # In inserts, of all agents.
      np.testing.assert_allclose(
          gauges['replay_age_mean'], np.mean([11 - seed for seed in drawn]))
      np.testing.assert_allclose(
          gauges['replay_others'], np.mean([seed >= 6 for seed in drawn]))
      assert .6 < gauges['replay_others'] < .9
      assert gauges['replay_mb_per_second'] > 0
      gauges = a.take_gauges()
      assert gauges['replay_unrolls'] == 8
      assert gauges['replay_mb_per_second'] == gauges['replay_others'] == 0
      gauges = job.service.take_gauges()
      assert gauges['learners'] == 2 and gauges['replay_unrolls'] == 8
      assert gauges['inserted_mb_per_second'] > 0
      assert gauges['replay_mb_per_second'] > 0


def test_an_agent_that_comes_back_is_the_same():
  """As another process: what it had acted is not another's."""
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, 'a') as a:
      replay_parts.insert(a, _unrolls(range(5)))
    for name, others in (('a', 0), ('b', 1)):
      with replay_parts.client_of(job, name) as client:
        client.sample(10)
        assert client.take_gauges()['replay_others'] == others


# -- Connections that break ---------------------------------------------------


@pytest.mark.parametrize('size', [1, 6])
def test_every_unroll_is_inserted_once_though_answers_are_lost(
    monkeypatch, size):
  monkeypatch.setattr(call_sizes, 'MAX_CALL_BYTES', 1)
  with replay_parts.Job() as job, remote_parts.Proxy(job.port) as proxy:
    client = replay_parts.make_client(proxy.port)

    def put():
      for start in range(0, 30, size):
        client.extend(_unrolls(range(start, start + size)))
        client.sample(2)
      replay_parts.insert(client, [])

    thread = remote_parts.Thread(put)
    for i in range(5, 30, 5):
      remote_parts.wait_until(lambda i=i: job.num_inserted >= i)
      proxy.cut()
    thread.result()
    assert proxy.num_connections > 3
    client.close()
    assert job.num_inserted == 30
    messages = [job.service._contents._ring.read(n) for n in range(30)]
    assert [int(replay_parts.layout().peek(bytes(m), 'policy_version'))
            for m in messages] == list(range(30))


def test_a_job_that_was_restarted_begins_anew(caplog):
  """What it had is gone; learners find it again, and say so in a line."""
  caplog.set_level(python_logging.INFO)
  job = replay_parts.Job()
  client = replay_parts.make_client(job.port)
  replay_parts.insert(client, _unrolls(range(5)))
  assert set(_seeds(client, 50)) == set(range(5))
  job.close()
  # Inserts what it could not, and draws of nothing else.
  thread = remote_parts.Thread(
      lambda: (client.extend(_unrolls([7])), client.extend(_unrolls([8])),
               _seeds(client, 50)))
  clause = (f'waits for the replay job at 127.0.0.1:{job.port}, which is out '
            'of reach')

  def waits_for_some_time():
    what, seconds = client.waits() or ('', 0.)
    return what == clause and seconds > .3

  remote_parts.wait_until(waits_for_some_time)
  assert thread.is_alive() and not client.is_held()
  with replay_parts.Job(port=job.port) as again:
    *_, drawn = thread.result()
    assert set(drawn) <= {7, 8}
    client.sample(1)
    assert again.num_inserted == 2 and client.waits() is None
    assert client.take_gauges()['replay_others'] == 0
    client.close()
  assert caplog.text.count('Lost the replay job') == 1
  assert caplog.text.count('which has been restarted') == 1


def test_nobody_waits_for_the_first_unroll():
  """Which could be the one of those that would wait."""
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, 'a') as a, (
        replay_parts.client_of(job, 'b')) as b:
      assert a.sample(3) == []
      # One that is under way is there, however soon it is drawn.
      b.extend(_unrolls([4]))
      assert _seeds(b, 3) == {4: 3} == _seeds(a, 3)


def test_who_draws_when_the_job_is_restarted_goes_on():
  """All of them may, and what they had put in may have been answered."""
  with replay_parts.Job() as job:
    clients = [replay_parts.make_client(job.port, name) for name in 'abc']
    for i, client in enumerate(clients):
      client.extend(_unrolls([i]))
      client.sample(1)
    clients[0]._link.flush()
  threads = [remote_parts.Thread(client.sample, 5) for client in clients]
  time.sleep(.3)
  with replay_parts.Job(port=job.port) as again:
    drawn = [thread.result() for thread in threads]
    assert {replay_parts.seed_of(u) for some in drawn for u in some} <= {1, 2}
    assert len(drawn[1]) == len(drawn[2]) == 5
    assert len(drawn[0]) in (0, 5) and 1 <= again.num_inserted <= 2
    for client in clients:
      client.close()


def test_close_ends_every_wait():
  """For the job, and for what the job waits for."""
  with replay_parts.Job() as job:
    client = replay_parts.make_client(job.port, batch_size=1)
    with replay_parts.client_of(job, 'slow', 1) as slow:
      replay_parts.insert(slow, _unrolls([0]))
      held = remote_parts.Thread(
          lambda: [client.extend(_unrolls([i])) for i in range(9)])
      time.sleep(.3)
      assert held.is_alive()
      client.close()
      with pytest.raises(link_lib.Closed):
        held.result()
  client = replay_parts.make_client(job.port)
  absent = remote_parts.Thread(client.sample, 1)
  time.sleep(.2)
  client.close()
  with pytest.raises(link_lib.Closed):
    absent.result()


def test_a_job_that_closes_ends_who_waits_in_it(caplog):
  job = replay_parts.Job()
  with replay_parts.client_of(job, 'slow', 1) as slow, (
      replay_parts.client_of(job, 'fast', 1)) as fast:
    replay_parts.insert(slow, _unrolls([0]))
    held = remote_parts.Thread(
        lambda: [fast.extend(_unrolls([i])) for i in range(9)])
    remote_parts.wait_until(lambda: job.num_inserted == 4)
    started = time.monotonic()
    job.close()
    assert time.monotonic() - started < 5
    remote_parts.wait_until(lambda: 'Lost the replay job' in caplog.text)
    assert ': the replay job is stopping' in caplog.text
    assert held.is_alive()
    fast.close()
    with pytest.raises(link_lib.Closed):
      held.result()


# -- Pace ---------------------------------------------------------------------


def _insert_many(client, count, size):
  for start in range(0, count, size):
    client.extend(_unrolls(range(start, start + size)))
  client._link.flush()


def _hold(job, fast, slow):
  """Has one agent insert until it waits for another; returns its thread."""
  replay_parts.insert(slow, _unrolls(range(4)))
  thread = remote_parts.Thread(_insert_many, fast, 80, 4)
  # It begins where the other one is. With the third batch it has to wait.
  remote_parts.wait_until(lambda: job.num_inserted == 4 + 3 * 4)
  return thread


def _assert_a_batch_lets_one_pass(job, slow, thread):
  """Each batch of the slow agent lets the one that is held insert one."""
  replay_parts.insert(slow, _unrolls(range(4)))
  remote_parts.wait_until(lambda: job.num_inserted == 24)
  time.sleep(.2)
  assert job.num_inserted == 24 and thread.is_alive()


def test_a_stalled_agent_holds_the_others_and_a_dead_one_does_not(caplog):
  caplog.set_level(python_logging.INFO)
  with replay_parts.Job() as job:
    fast, slow = (replay_parts.make_client(job.port, name, batch_size=4)
                  for name in ('fast', 'slow'))
    thread = _hold(job, fast, slow)
    time.sleep(.3)
    assert job.num_inserted == 16 and thread.is_alive()
    assert fast.waits()[0].endswith(
        'since other learners have inserted less or have not begun')
    assert fast.is_held() and not slow.is_held()
    _assert_a_batch_lets_one_pass(job, slow, thread)
    slow.close()
    thread.result()
    assert job.num_inserted == 8 + 80
    fast.close()
  assert 'Learner "host:slow" is gone or inserts nothing' in caplog.text


def test_who_is_held_is_held_still_when_its_connection_was_cut(monkeypatch):
  """Even if it was away for so long that it did not count."""
  monkeypatch.setattr(methods_lib, '_AWAY_SECONDS', .05)
  monkeypatch.setattr(link_lib, '_FIRST_WAIT_SECONDS', 3.)
  monkeypatch.setattr(link_lib, '_LONGEST_WAIT_SECONDS', 3.)
  with replay_parts.Job() as job, remote_parts.Proxy(job.port) as proxy:
    fast = replay_parts.make_client(proxy.port, 'fast', batch_size=4)
    with replay_parts.client_of(job, 'slow', batch_size=4) as slow:
      thread = _hold(job, fast, slow)
      proxy.cut()
      remote_parts.wait_until(
          lambda: job.service.take_gauges()['learners'] == 1)
      remote_parts.wait_until(
          lambda: job.service.take_gauges()['learners'] == 2)
      time.sleep(.3)
      assert job.num_inserted == 16 and thread.is_alive()
      _assert_a_batch_lets_one_pass(job, slow, thread)
      fast.close()


def test_what_comes_late_does_not_let_what_came_after_it_in_twice():
  with replay_parts.Job() as job, replay_parts.Raw(job.port) as raw:
    session = raw.hello(agent='a', batch_size=1)
    for number in 1, 2, 1, 2:
      raw.answers('Insert', replay_parts.insert_message(session, number))
    assert job.num_inserted == 2


def test_who_sends_again_is_held_still_when_its_old_call_ends(
    monkeypatch, clock):
  """As when the server finds out late that the old connection is dead."""
  monkeypatch.setattr(methods_lib, '_AWAY_SECONDS', math.inf)
  with replay_parts.Job() as job, replay_parts.Raw(job.port) as raw:
    slow, fast = (raw.hello(agent=name, batch_size=1)
                  for name in ('slow', 'fast'))
    first = replay_parts.insert_message(slow, 1)
    raw.answers('Insert', first)
    ahead = wire.join(
        replay_parts.insert_message(fast, i) for i in range(1, 4))
    session = job.methods.sessions.find(fast)
    calls = []
    for _ in range(2):
      calls.append(raw.stream('Insert', [ahead]))
      remote_parts.wait_until(lambda: session._calls == len(calls))
    calls[0].cancel()
    remote_parts.wait_until(lambda: session._calls == 1)
    for _ in range(3):
      raw.answers('Insert', first)
      clock.advance(.5 * methods_lib._SILENT_SECONDS)
    assert job.service.take_gauges()['learners'] == 2
    assert session.has_call
    calls[1].cancel()


def test_the_others_do_not_run_ahead_of_one_whose_connection_was_cut(
    monkeypatch):
  monkeypatch.setattr(methods_lib, '_AWAY_SECONDS', 30.)
  with replay_parts.Job() as job, remote_parts.Proxy(job.port) as proxy:
    slow = replay_parts.make_client(proxy.port, 'slow', batch_size=4)
    with replay_parts.client_of(job, 'fast', batch_size=4) as fast:
      thread = _hold(job, fast, slow)
      proxy.cut()
      time.sleep(.5)
      assert job.num_inserted == 16 and thread.is_alive()
      # It has as much to catch up with as before.
      _assert_a_batch_lets_one_pass(job, slow, thread)
      slow.close()


@pytest.mark.parametrize('comes_late', [False, True])
def test_another_process_of_an_agent_keeps_its_lead(comes_late):
  """Whether the job has noticed that the first one was gone, or not yet."""
  with replay_parts.Job() as job, replay_parts.client_of(
      job, 'slow', batch_size=4) as slow:
    replay_parts.insert(slow, _unrolls(range(4)))
    with replay_parts.client_of(job, 'fast', batch_size=4) as fast:
      replay_parts.insert(fast, _unrolls(range(8)))
    if comes_late:
      remote_parts.wait_until(
          lambda: job.service.take_gauges()['learners'] == 1)
    with replay_parts.client_of(job, 'fast', batch_size=4) as again:
      # With its first batch it is three ahead, and has to wait.
      thread = remote_parts.Thread(_insert_many, again, 80, 4)
      remote_parts.wait_until(lambda: job.num_inserted == 4 + 3 * 4)
      _assert_a_batch_lets_one_pass(job, slow, thread)
      slow.close()
      thread.result()


def test_two_learners_with_one_agents_name_are_said(caplog):
  """As where a log directory was copied; not where one is started again."""
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, 'run') as first:
      replay_parts.insert(first, _unrolls([0]))
      with replay_parts.client_of(job, 'run') as again:
        replay_parts.insert(again, _unrolls([1]))
        assert 'one agent' not in caplog.text
        with replay_parts.client_of(job, 'run', host='copy') as copy:
          replay_parts.insert(copy, _unrolls([2]))
    assert ('Learners "host:run" and "copy:run" are one agent to this job.'
            in caplog.text)


def test_who_is_silent_for_long_holds_nobody(monkeypatch, caplog):
  caplog.set_level(python_logging.INFO)
  monkeypatch.setattr(sessions_lib, '_RECENT_SECONDS', 600.)
  monkeypatch.setattr(methods_lib, '_SILENT_SECONDS', 600.)
  monkeypatch.setattr(methods_lib, '_LONG_SECONDS', .1)
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, 'fast', 1) as fast, (
        replay_parts.client_of(job, 'slow', 1)) as slow:
      replay_parts.insert(slow, _unrolls([0]))
      thread = remote_parts.Thread(_insert_many, fast, 20, 1)
      remote_parts.wait_until(lambda: (
          '1 of 2 learners wait, since learner "host:slow"' in caplog.text))
      assert thread.is_alive()
      monkeypatch.setattr(sessions_lib, '_RECENT_SECONDS', .5)
      thread.result()
      # It goes on where the other one is.
      replay_parts.insert(slow, _unrolls([1]))
      assert job.num_inserted == 22
      thread = remote_parts.Thread(_insert_many, fast, 20, 1)
      remote_parts.wait_until(lambda: job.num_inserted >= 24)
      replay_parts.insert(slow, _unrolls([2]))
      thread.result()


def test_who_draws_and_inserts_nothing_holds_nobody(monkeypatch):
  """As an agent does all of whose unrolls are left out of replay."""
  monkeypatch.setattr(methods_lib, '_SILENT_SECONDS', .5)
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, 'fast', 1) as fast, (
        replay_parts.client_of(job, 'slow', 1)) as slow:
      replay_parts.insert(slow, _unrolls([0]))
      thread = remote_parts.Thread(_insert_many, fast, 20, 1)
      deadline = time.monotonic() + 20.
      while thread.is_alive() and time.monotonic() < deadline:
        slow.sample(1)
        time.sleep(.05)
      thread.result(0.)


def test_who_had_to_wait_for_long_still_counts(clock):
  """It makes its next batch before it inserts again."""
  with replay_parts.Job(num_agents=2) as job:
    with replay_parts.client_of(job, 'first', 1) as first, (
        replay_parts.client_of(job, 'second', 1)) as second:
      thread = remote_parts.Thread(_insert_many, first, 3, 1)
      remote_parts.wait_until(lambda: job.num_inserted == 3)
      clock.advance(.8 * methods_lib.PATIENCE_SECONDS)
      assert thread.is_alive()
      replay_parts.insert(second, _unrolls([0]))
      thread.result()
      clock.advance(.8 * methods_lib._SILENT_SECONDS)
      assert job.service.take_gauges()['learners'] == 2


def test_agents_that_will_come_are_waited_for_at_the_start():
  with replay_parts.Job(num_agents=2) as job:
    with replay_parts.client_of(job, 'first', 4) as first, (
        replay_parts.client_of(job, 'second', 4)) as second:
      thread = remote_parts.Thread(_insert_many, first, 80, 4)
      # Two batches, and the one that waits.
      remote_parts.wait_until(lambda: job.num_inserted == 3 * 4)
      time.sleep(.3)
      assert job.num_inserted == 12 and thread.is_alive()
      # The second batch of the other is as many as the first one's third.
      for count in 1, 2:
        replay_parts.insert(second, _unrolls(range(4)))
        remote_parts.wait_until(
            lambda count=count: job.num_inserted == (3 + 2 * count) * 4)
      assert thread.is_alive()


def test_an_agent_that_never_comes_is_not_waited_for_for_ever(clock, caplog):
  caplog.set_level(python_logging.INFO)
  with replay_parts.Job(num_agents=3) as job:
    # Before the first has come, nobody waits.
    clock.advance(2 * methods_lib.PATIENCE_SECONDS)
    with replay_parts.client_of(job, 'first', 1) as first, (
        replay_parts.client_of(job, 'second', 1)) as second:
      threads = []
      # Of those that come late, each has its time.
      for client in first, second:
        threads.append(remote_parts.Thread(_insert_many, client, 20, 1))
        remote_parts.wait_until(lambda: job.num_inserted == 3 * len(threads))
        clock.advance(.9 * methods_lib.PATIENCE_SECONDS)
        assert all(thread.is_alive() for thread in threads)
      clock.advance(.2 * methods_lib.PATIENCE_SECONDS)
      for thread in threads:
        thread.result()
  assert ('1 of 1 learners wait, since 2 of --replay_agents have not begun to '
          'insert.' in caplog.messages)
  assert ('1 of --replay_agents have not begun to insert, the others go on '
          'without them.' in caplog.messages)


# -- Refusals -----------------------------------------------------------------


@pytest.mark.parametrize('changes, what', [
    (dict(unroll_length=4), '--unroll_length is 3 at the replay job, 4 at the '
     'learner'),
    (dict(level_name='other'), '--level_name is "both" at the replay job, '
     '"other" at the learner'),
    (dict(num_action_repeats=2), '--num_action_repeats is 4 at the replay job, '
     '2 at the learner'),
    (dict(full_action_set=True), '--full_action_set is false at the replay'),
    (dict(facts=Facts(5, remote_parts.SPEC)),
     'the number of actions is 4 at the replay job, 5 at the learner'),
    (dict(facts=Facts(4, remote_parts.SPEC[:1])), 'the list of observations'),
    (dict(replay_state='recomputed'), '--replay_state is "stored" at the')])
def test_other_agents_are_refused_in_a_line_that_names_both(changes, what):
  with replay_parts.Job() as job:
    with replay_parts.client_of(job, **changes) as client:
      with pytest.raises(link_lib.Refused, match=what) as error:
        client.sample(1)
      assert '\n' not in str(error.value)
      assert str(error.value).startswith(
          f'The replay job at 127.0.0.1:{job.port} refuses this learner: ')


def test_another_service_at_the_address_is_said():
  """As where the ports of --learner_hosts and --replay_host are mixed up."""
  with replay_parts.Job() as job, remote_parts.Learner() as learner:
    with replay_parts.client_of(learner) as lost:
      with pytest.raises(link_lib.Refused, match=(
          f'^What listens at 127.0.0.1:{learner.port} is no replay job, but ')):
        lost.sample(1)
    with remote_parts.client_of(job) as lost:
      with pytest.raises(link_lib.Refused, match='is no learner, but anoth'):
        lost.get_weights(-1)


def test_what_cannot_be_learned_from_is_refused_with_its_name():
  with replay_parts.Job() as job:
    with replay_parts.client_of(job) as client:
      unroll = replay_parts.make_unroll(0)
      unroll.env_outputs.reward[1] = np.nan
      with pytest.raises(link_lib.Refused, match='env_outputs.reward'):
        replay_parts.insert(client, [unroll])
    assert job.num_inserted == 0


def test_a_message_of_the_job_that_is_none_is_described():
  client = replay_parts.make_client(1)
  with pytest.raises(link_lib.Refused) as error:
    client._link.read(protocol.split, b'8 bytes!')
  client.close()
  assert str(error.value) == (
      'The replay job at 127.0.0.1:1 sent a message that is not as agreed on: '
      '8 bytes, expected 24.')


def test_more_unrolls_than_were_asked_for_are_refused(monkeypatch):
  monkeypatch.setattr(protocol, 'encode_draw',
                      lambda session, count, encode=protocol.encode_draw:
                      encode(session, count + 2))
  with replay_parts.Job() as job, replay_parts.client_of(job) as client:
    replay_parts.insert(client, _unrolls(range(9)))
    with pytest.raises(link_lib.Refused, match=(
        'agreed on: 5 unrolls, expected 3 or fewer.$')):
      client.sample(3)


def test_agents_may_differ_in_how_they_learn():
  with replay_parts.Job() as job:
    with replay_parts.client_of(
        job, network='deep', discounting=.5, use_lstm=False) as client:
      replay_parts.insert(client, _unrolls([1]))
      assert set(_seeds(client, 1)) == {1}
