"""Members of a population as processes: turns, copies, kills."""

import collections
import errno
import json
import os
import pathlib
import subprocess
import sys
import time

import psutil
import pytest

from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.populations import evolution
from scalable_agent.populations import lineage
from scalable_agent.populations import members as members_lib
from scalable_agent.process import signals
from scalable_agent.sweeps import run_processes

pytestmark = pytest.mark.usefixtures('bounded')

_FAKE = str(pathlib.Path(__file__).with_name('fake_run.py'))
_EPISODES = 5
_SECONDS = 60.


def _make(directory, skills, total=400, secs_per_episode=.005, burn_in=0,
          turn_seconds=1., start_seconds=0., evaluation_seconds=0., seed=1):
  """A population of fake runs, as another process left it or new."""
  history = evolution.History(os.path.join(directory, 'evolution.jsonl'))
  if not history.records:
    history.add(*[
        evolution.start(i, dict(cost=float(i + 1), rate=float(i + 1)))
        for i in range(len(skills))])
  population = members_lib.Population(
      history, lambda episodes: episodes[-1].episode_return, burn_in,
      _EPISODES, turn_seconds, adapt=('cost',), seed=seed)
  for i, skill in enumerate(skills):
    logdir = os.path.join(directory, str(i))

    def make_command(settings, logdir=logdir, skill=skill):
      own = dict(settings, logdir=logdir, skill=skill, total=total,
                 secs_per_episode=secs_per_episode,
                 start_seconds=start_seconds,
                 evaluation_seconds=evaluation_seconds)
      return [sys.executable, _FAKE,
              *(f'--{name}={value}' for name, value in own.items())]

    population.members.append(members_lib.Member(
        population, i, logdir, total, make_command,
        evaluate_every_frames=total if evaluation_seconds else 0))
  return population


def _run(population, parallel=2, on_poll=lambda: None):
  stop = signals.Stop()

  def poll():
    population.on_poll()
    on_poll()

  run_processes.run_all(
      [member.run for member in population.members], [{}] * parallel, stop,
      on_poll=poll, rank=population.rank)


def _weights(directory, member):
  logdir = os.path.join(directory, str(member))
  frames = checkpoint_files.newest_frames(logdir)
  with open(f'{checkpoint_files.path_of(logdir, frames)}.index') as f:
    return frames, json.load(f)


def _check(directory, size):
  """What has to hold however often a population was killed."""
  path = os.path.join(directory, 'evolution.jsonl')
  records = evolution.History(path).records
  num_copies = 0
  for member in range(size):
    mine = [record for record in records if record.member == member]
    for before, after in zip(mine, mine[1:]):
      # The fake's episodes have 10 frames each.
      assert after.frames - before.frames >= 10 * _EPISODES
    frames, weights = _weights(directory, member)
    _, *copied = lineage.ancestry(records, member, frames)
    assert [(os.path.basename(logdir), at) for logdir, at, _ in
            weights['copies']] == [(str(part.member), part.start)
                                   for part in copied]
    num_copies += len(copied)
  return records, num_copies


@pytest.fixture(name='ready')
def _ready(tmp_path):
  """Two members that have their first episodes, the second far better."""
  population = _make(tmp_path, (1., 50.), total=60)
  _run(population)
  assert not [r for r in population.history.records if r.frames]
  return tmp_path


def test_the_weights_and_parameters_of_the_better_are_copied_once(ready):
  population = _make(ready, (1., 50.), total=90)
  _run(population)
  # Once more, from what it saved since: this is not another copy.
  _run(_make(ready, (1., 50.), total=100))
  records, _ = _check(ready, 2)
  (first,) = [record for record in records if record.frames == 60 and
              record.member == 0]
  assert (first.score, first.drawn, first.drawn_score) == (1., 1, 50.)
  assert first.donor == 1 and first.donor_frames >= 60
  # It has its own rate, which does not evolve, and the donor's cost, or that
  # changed by the factor.
  assert first.parameters['rate'] == 1.
  donors = [record.parameters['cost'] for record in records
            if record.member == 1]
  assert any(first.parameters['cost'] / cost == pytest.approx(factor)
             for cost in donors for factor in (1., 1.2, 1 / 1.2))
  assert _weights(ready, 0)[0] == 100  # Its own frames, counted on.
  assert _weights(ready, 0)[1]['skill'] == 50.
  (second,) = [record for record in records if record.frames and
               record.member == 1]
  assert second.donor is None and second.donor_frames is None
  assert second.drawn == 0 and second.score == 50.


@pytest.mark.parametrize('seed', [1, 2])
def test_an_evolution_follows_from_its_own_random_numbers(tmp_path, seed):
  """With a copy or without one, it draws first and changes parameters then."""
  population = _make(tmp_path, (0.,) * 3, total=10 ** 6, seed=seed)
  for turn in range(1, 21):
    for member in population.members:
      logdir = tmp_path / str(member.index)
      logdir.mkdir(exist_ok=True)
      frames = 10 * _EPISODES * turn
      # Each is the best in one turn of three.
      skill = 50. * ((member.index + turn) % 3)
      with open(logdir / 'episodes.csv', 'a') as f:
        f.write(f'{frames},level,{skill},10\n' * _EPISODES)
      (logdir / f'ckpt-{frames}.index').write_text('{}')
      member.run._prepare()
  costs, num_changed = collections.defaultdict(list), collections.Counter()
  for record in population.history.records:
    own, cost = costs[record.member], record.parameters['cost']
    if own:
      rng = evolution.generator(seed, record.member, len(own))
      assert record.drawn == evolution.draw_other(record.member, 3, rng)
      before = own[-1] if record.donor is None else costs[record.donor][-1]
      assert record.parameters == dict(
          evolution.perturb(dict(cost=before), rng), rate=record.member + 1.)
      num_changed[record.donor is None] += cost != before
    own.append(cost)
  assert [len(found) for found in costs.values()] == [21] * 3
  # Of those with a copy, and of those without.
  assert min(num_changed[False], num_changed[True]) > 2


def test_killed_between_copy_and_save_it_copies_once(ready):
  """The weights that are lost are those of the copy, which is made again."""
  population = _make(ready, (1., 50.), total=400, secs_per_episode=.05)
  member = population.members[0]
  sign = ready / '0' / 'has_warm_started'
  for _ in range(2):
    member.run.start()
    assert member.run.state == 'running'
    deadline = time.monotonic() + _SECONDS
    while not sign.exists():
      assert time.monotonic() < deadline
      time.sleep(.01)
    sign.unlink()
    for process in psutil.Process().children():
      process.kill()
    member.run.wait()
    # Another controller goes on from the files.
    population = _make(ready, (1., 50.), total=400, secs_per_episode=.05)
    member = population.members[0]
  assert len(population.history.of(0)) == 2
  assert _weights(ready, 0) == (60, dict(skill=1., copies=[]))
  _run(_make(ready, (1., 50.), total=100), parallel=1)
  records, num_copies = _check(ready, 2)
  assert len([r for r in records if r.member == 0]) == 2 and num_copies == 1


def test_killed_between_copy_and_record_it_evolves_once(ready, monkeypatch):
  """What is copied and not recorded has not happened."""
  def die(*unused_args):
    raise KeyboardInterrupt

  population = _make(ready, (1., 50.), total=100)
  with monkeypatch.context() as patch:
    patch.setattr(evolution.History, 'add', die)
    with pytest.raises(KeyboardInterrupt):
      population.members[0].run.start()
  assert (ready / '0' / 'warm_start').exists()
  _run(_make(ready, (1., 50.), total=100))
  records, num_copies = _check(ready, 2)
  assert len([r for r in records if r.member == 0]) == 2 and num_copies == 1


def test_nothing_is_copied_of_weights_that_are_not_saved(ready):
  """A donor that has itself just copied has old weights in its checkpoint."""
  population = _make(ready, (1., 50.), total=100)
  donor = population.members[1]
  assert donor.score() == 50.
  population.history.add(
      evolution.Record(1, 60, 50., 0, 70., 0, 60, dict(cost=1.)))
  with open(ready / '1' / 'episodes.csv', 'a') as f:
    f.write('70,level,80,10\n' * _EPISODES)
  assert donor.score() is None
  (ready / '1' / 'ckpt-70.index').write_text('{}')
  assert donor.score() == 80.


def test_a_donor_that_removes_its_checkpoint_meanwhile_is_copied(
    ready, monkeypatch):
  """Then the one after it is."""
  logdir = ready / '1'
  copy = checkpoint_files.copy

  def remove_and_copy(path, directory):
    monkeypatch.setattr(checkpoint_files, 'copy', copy)
    (logdir / 'ckpt-80.index').write_text((
        logdir / 'ckpt-60.index').read_text())
    (logdir / 'ckpt-60.index').unlink()
    copy(path, directory)

  monkeypatch.setattr(checkpoint_files, 'copy', remove_and_copy)
  donor = _make(ready, (1., 50.)).members[1]
  assert donor.copy_weights(ready / 'copies') == 80
  assert checkpoint_files.newest_frames(ready / 'copies') == 80


def test_before_the_burn_in_nobody_evolves(tmp_path):
  population = _make(tmp_path, (1., 50.), total=300, burn_in=1000)
  _run(population)
  assert len(population.history.records) == 2
  assert [_weights(tmp_path, i)[0] for i in range(2)] == [300, 300]


def test_a_member_whose_frames_cannot_be_read_goes_last(tmp_path, monkeypatch):
  listings = checkpoint_files.newest_frames

  def newest_frames(logdir):
    if os.path.basename(logdir) == '0':
      raise OSError(errno.ESTALE, 'Stale file handle')
    return listings(logdir)

  population = _make(tmp_path, (1.,) * 2)
  monkeypatch.setattr(checkpoint_files, 'newest_frames', newest_frames)
  runs = [member.run for member in population.members]
  assert sorted(runs, key=population.rank) == runs[::-1]


def test_more_members_than_cores_take_turns(tmp_path):
  """Nobody is left behind, and no more than --parallel run at a time."""
  population = _make(tmp_path, (1.,) * 3, total=200, secs_per_episode=.08,
                     burn_in=10 ** 9, turn_seconds=.4)
  frames, running = [], []

  def watch():
    frames.append(sorted(member.saved_frames for member in population.members))
    running.append(sum(member.run.state == 'running'
                       for member in population.members))

  _run(population, parallel=1, on_poll=watch)
  assert max(running) == 1
  assert any(0 < least and most < 200 for least, _, most in frames)
  assert [_weights(tmp_path, i)[0] for i in range(3)] == [200] * 3
  assert [member.run.crashes for member in population.members] == [0] * 3


@pytest.mark.parametrize('frames, is_told', [(59, True), (60, False)])
@pytest.mark.parametrize('turn_seconds', [1., 10.])
def test_nobody_is_told_to_leave_in_the_last_evaluation(
    tmp_path, monkeypatch, frames, is_told, turn_seconds):
  """Neither since others wait, nor since the last episodes let it evolve."""
  population = _make(tmp_path, (1.,) * 2, total=60, turn_seconds=turn_seconds)
  member, _ = population.members
  logdir = tmp_path / '0'
  logdir.mkdir()
  (logdir / 'metrics.jsonl').write_text(f'{{"frames": {frames}}}\n')
  if turn_seconds == 10.:
    (logdir / 'episodes.csv').write_text('59,level,1,10\n' * _EPISODES)
  told = []
  member.run.state = 'running'
  monkeypatch.setattr(member.run, 'terminate', lambda: told.append(member))
  monkeypatch.setattr(members_lib.Member, 'trained_seconds', lambda member: (
      2. if member.run.state == 'running' else 0.))
  population.on_poll()
  assert bool(told) == is_told


def test_an_evaluation_that_was_cut_off_is_made_up_for(tmp_path):
  _run(_make(tmp_path, (1.,) * 2, total=60))
  population = _make(tmp_path, (1.,) * 2, total=60, evaluation_seconds=.1)
  assert [member.run.state for member in population.members] == ['waiting'] * 2
  _run(population)
  assert [member.run.state for member in population.members] == ['done'] * 2
  assert (tmp_path / '0' / 'evaluations.csv').exists()


def test_a_turn_begins_with_the_first_frames(tmp_path):
  """However long a start takes: else nobody would ever get any further."""
  population = _make(tmp_path, (1.,) * 3, total=60, secs_per_episode=.02,
                     burn_in=10 ** 9, turn_seconds=.1, start_seconds=.5)
  _run(population, parallel=1)
  assert [_weights(tmp_path, i)[0] for i in range(3)] == [60] * 3


def test_what_a_killed_process_has_logged_begins_no_turn(tmp_path):
  """Its log is cut to what was saved only late in the next start."""
  (tmp_path / '0').mkdir()
  (tmp_path / '0' / 'metrics.jsonl').write_text('{"frames": 30}\n')
  population = _make(tmp_path, (1.,) * 2, total=60, secs_per_episode=.02,
                     burn_in=10 ** 9, turn_seconds=.1, start_seconds=.5)
  _run(population, parallel=1)
  assert [_weights(tmp_path, i)[0] for i in range(2)] == [60] * 2


def test_no_more_leave_than_wait(tmp_path):
  population = _make(tmp_path, (1.,) * 4, total=200, secs_per_episode=.05,
                     burn_in=10 ** 9, turn_seconds=.2)
  told = []
  _run(population, parallel=3, on_poll=lambda: told.append(
      sum(member.run.is_told for member in population.members)))
  assert max(told) == 1
  assert [_weights(tmp_path, i)[0] for i in range(4)] == [200] * 4


@pytest.mark.parametrize('frames, told', [
    ((30, 10, 20), []),  # The one that waits is ahead of both.
    ((15, 10, 20), [2]),  # It is behind one of them.
    ((10, 10, 10), [1]), ((5, 10, 20), [2])])
def test_nobody_leaves_for_one_that_is_ahead(
    tmp_path, monkeypatch, frames, told):
  """It would be started again at once, since the one behind goes first."""
  population = _make(tmp_path, (1.,) * 3, turn_seconds=1.)
  left = []
  monkeypatch.setattr(population, 'rank', lambda unused_run: frames[0])
  for i in 1, 2:
    member = population.members[i]
    (tmp_path / str(i)).mkdir()
    (tmp_path / str(i) / 'metrics.jsonl').write_text(
        json.dumps(dict(frames=frames[i])) + '\n')
    member.run.state = 'running'
    monkeypatch.setattr(member.run, 'terminate', lambda i=i: left.append(i))
  monkeypatch.setattr(members_lib.Member, 'trained_seconds', lambda member: (
      2. if member.run.state == 'running' else 0.))
  population.on_poll()
  assert left == told


@pytest.mark.parametrize('rests', [False, True])
def test_nobody_leaves_for_one_that_cannot_start_yet(
    tmp_path, monkeypatch, rests):
  population = _make(tmp_path, (1.,) * 2, turn_seconds=1.)
  member, other = population.members
  told = []
  member.run.state = 'running'
  monkeypatch.setattr(member.run, 'terminate', lambda: told.append(member))
  monkeypatch.setattr(members_lib.Member, 'trained_seconds', lambda member: (
      2. if member.run.state == 'running' else 0.))
  if rests:
    other.run._rest()
  population.on_poll()
  assert bool(told) != rests


def test_one_that_does_not_leave_keeps_no_other_from_it(tmp_path, monkeypatch):
  """Two wait, and the one that was told first does not listen."""
  population = _make(tmp_path, (1.,) * 5)
  ages = dict(enumerate((9., 3., 5., 0., 0.)))
  told = []
  for member in population.members:
    run = member.run
    run.state = 'running' if ages[member.index] else 'waiting'
    run.is_told = member.index == 0
    monkeypatch.setattr(run, 'terminate', lambda name=run.name: told.append(
        name))
  monkeypatch.setattr(members_lib.Member, 'trained_seconds',
                      lambda member: ages[member.index])
  population.on_poll()
  assert told == ['2']


_CONTROLLER = '''
import sys
from tests.populations import test_members
test_members._run(test_members._make(
    sys.argv[1], (1., 20., 40.), total=600, secs_per_episode=.01))
'''


def test_killed_again_and_again_nothing_is_lost_or_done_twice(tmp_path):
  """The members end with the program, and what they saved is gone on with."""
  root = pathlib.Path(__file__).resolve().parents[2]
  for seconds in (1.2, 1.8, 2.4, None):
    program = subprocess.Popen(
        [sys.executable, '-c', _CONTROLLER, str(tmp_path)], cwd=root)
    try:
      program.wait(seconds)
    except subprocess.TimeoutExpired:
      members = psutil.Process(program.pid).children(recursive=True)
      program.kill()
      program.wait()
      # Told by the kernel to save and end.
      assert psutil.wait_procs(members, timeout=_SECONDS)[1] == []
  assert program.returncode == 0
  records, num_copies = _check(tmp_path, 3)
  assert num_copies and len(records) > 6
  assert [_weights(tmp_path, i)[0] for i in range(3)] == [600] * 3
