"""Runs as processes: how many at a time, crashes, stops, and locks."""

import errno
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import ConfigError
from scalable_agent.files import locks
from scalable_agent.process import signals
from scalable_agent.sweeps import run_processes
from scalable_agent.training import logdir as logdir_lib

pytestmark = pytest.mark.usefixtures('bounded')

# A run keeps a file `done` in its log directory once it is, and tells of its
# starts in `starts`.
_SUCCEED = 'touch done'


@pytest.fixture(name='rest', autouse=True)
def _rest(monkeypatch):
  """A function that sets how many seconds runs rest, at first hardly any."""
  set_seconds = lambda seconds: monkeypatch.setattr(
      run_processes, '_REST_SECONDS', seconds)
  set_seconds(.01)
  return set_seconds


def _make_run(tmp_path, script, name='a', **kwargs):
  logdir = tmp_path / name
  logdir.mkdir(exist_ok=True)
  return run_processes.ManagedRun(
      name, str(logdir), 100,
      lambda: ['bash', '-c', f'cd {logdir}; echo $$ >> starts; {script}'],
      (logdir / 'done').exists, **kwargs)


def _starts(run):
  try:
    with open(os.path.join(run.logdir, 'starts')) as f:
      return len(f.readlines())
  except FileNotFoundError:
    return 0


def _run(runs, parallel=1, stop=None, environs=None, **kwargs):
  changes = []
  run_processes.run_all(
      runs, environs or [{}] * parallel, stop or signals.Stop(),
      lambda run: changes.append((run.name, run.state)), **kwargs)
  return changes


def test_runs_go_one_after_the_other(tmp_path):
  script = f'mkdir ../lock && sleep .1 && rmdir ../lock && {_SUCCEED}'
  runs = [_make_run(tmp_path, script, name) for name in 'abc']
  assert _run(runs) == [(name, state) for name in 'abc'
                        for state in ('running', 'done')]


def test_runs_go_side_by_side(tmp_path):
  """Each of two waits for the other, which is only there if both run."""
  script = ('touch ../{}; while ! [ -e ../{} ]; do sleep .05; done; ' +
            _SUCCEED)
  runs = [_make_run(tmp_path, script.format(mine, other), f'run_{mine}')
          for mine, other in ('xy', 'yx')]
  _run(runs, parallel=2)
  assert [run.state for run in runs] == ['done'] * 2


def test_what_is_done_is_not_started(tmp_path):
  run = _make_run(tmp_path, _SUCCEED)
  (tmp_path / 'a' / 'done').touch()
  again = _make_run(tmp_path, _SUCCEED)
  assert again.state == 'done'
  assert _run([again]) == []
  # Nor what was done by somebody else in the meantime.
  assert _run([run]) == [('a', 'done')]
  assert _starts(run) == 0


@pytest.mark.parametrize('ending', ['exit 1', 'exit 0', 'kill -9 $$'])
def test_a_crash_is_tried_again_twice(tmp_path, ending):
  """After the others; an end is a crash, whatever its code, if not done."""
  recovers = _make_run(
      tmp_path, f'if [ "$(wc -l < starts)" -lt 3 ]; then {ending}; fi; '
      f'{_SUCCEED}', 'recovers')
  fails = _make_run(tmp_path, f'echo out of cheese; {ending}', 'fails')
  changes = _run([recovers, fails])
  assert [name for name, state in changes if state == 'running'] == [
      'recovers', 'fails'] * 3
  assert (recovers.state, recovers.crashes) == ('done', 2)
  assert (fails.state, fails.crashes) == ('failed', 3)
  assert _starts(fails) == 3
  assert fails.last_words() == 'out of cheese'
  assert ('killed by SIGKILL' in fails.failure()) == ('kill' in ending)


@pytest.mark.parametrize('script, rests', [
    ('exit 1', True), ('touch ckpt-$(wc -l < starts).index; exit 1', False)])
def test_a_run_rests_after_two_crashes_without_a_newer_checkpoint(
    tmp_path, rest, script, rests):
  """Its disk may be full for a while."""
  rest(30.)
  run = _make_run(tmp_path, script)
  for has_crashed in False, True:
    run.start()
    run._process.wait()
    run.poll()
    assert (run.state, run.rests) == ('waiting', has_crashed and rests)


@pytest.mark.parametrize('ending, starts', [('exit 0', 1), ('exit 1', 3)])
def test_what_another_start_would_do_no_better_is_done(
    tmp_path, ending, starts):
  run = _make_run(tmp_path, ending, is_trained=lambda: True)
  _run([run])
  assert run.state == ('done' if starts == 1 else 'failed')
  assert _starts(run) == starts


def test_what_ended_since_it_was_told_to_may_do_better(tmp_path):
  run = _make_run(tmp_path, 'trap "exit 0" TERM; touch ready; '
                  'while true; do sleep .05; done', is_trained=lambda: True)
  run.start()
  deadline = time.monotonic() + 60
  while not (tmp_path / 'a' / 'ready').exists():
    assert time.monotonic() < deadline
    time.sleep(.02)
  run.terminate()
  run._process.wait()
  run.poll()
  assert (run.state, run.crashes) == ('waiting', 0)


def test_a_run_that_cannot_be_started_stops_no_other(tmp_path, monkeypatch):
  monkeypatch.setattr(run_processes, '_UNSTARTABLE_SECONDS', .02)
  other = _make_run(tmp_path, f'sleep .5; {_SUCCEED}', 'other')
  broken = _make_run(tmp_path, _SUCCEED, 'broken')
  (tmp_path / 'broken').rmdir()
  (tmp_path / 'broken').write_text('')
  _run([other, broken], parallel=2)
  assert (other.state, other.crashes) == ('done', 0)
  assert (broken.state, broken.crashes) == ('failed', 0)
  assert broken.last_words() == (
      f'It cannot be started: {tmp_path}/broken: File exists.')
  assert broken.failure() == (
      f'cannot be started: {tmp_path}/broken: File exists.')


def test_what_no_start_could_change_is_not_tried_again(tmp_path):
  def prepare():
    raise ConfigError('It has no checkpoint.')

  run = run_processes.ManagedRun(
      'a', str(tmp_path), 100, prepare, lambda: False)
  other = _make_run(tmp_path, _SUCCEED, 'b')
  assert _run([run, other]) == [
      ('a', 'failed'), ('b', 'running'), ('b', 'done')]
  assert run.failure() == 'cannot be started: It has no checkpoint.'


@pytest.mark.parametrize('reason, state, rests', [
    (OSError(errno.ESTALE, 'Stale file handle'), 'waiting', True),
    (ValueError('no JSON'), 'failed', False)])
def test_a_refusal_since_a_file_cannot_be_read_now_is_tried_again(
    tmp_path, reason, state, rests):
  def prepare():
    raise ConfigError('sweep.json cannot be read.') from reason

  run = run_processes.ManagedRun(
      'a', str(tmp_path), 100, prepare, lambda: False)
  run.start()
  assert (run.state, run.rests) == (state, rests)


@pytest.mark.parametrize('reason, states', [
    (OSError(errno.ESTALE, 'Stale file handle'), ['running', 'done']),
    (ValueError('no JSON'), ['failed', 'failed'])])
def test_whether_a_run_is_done_is_asked_again_if_it_cannot_be_read_now(
    tmp_path, reason, states):
  run = _make_answering(tmp_path, 'true', False, False, None, True)
  is_done = run._is_done

  def refuse_what_is_stale():
    try:
      return is_done()
    except OSError:
      raise ConfigError('sweep.json cannot be read.') from reason

  run._is_done = refuse_what_is_stale
  run.start()
  run._process.wait()
  for state in states:
    run.poll()
    assert run.state == state


def test_a_full_disk_is_waited_for_as_long_as_by_one_that_trains(
    tmp_path, rest):
  rest(30.)

  def prepare():
    raise OSError(errno.ENOSPC, 'No space left on device')

  run = run_processes.ManagedRun(
      'a', str(tmp_path), 100, prepare, lambda: False)
  for _ in range(20 * 60 // 30):
    run.start()
    assert (run.state, run.rests, run.crashes) == ('waiting', True, 0)
  run.start()
  assert run.state == 'failed'


def test_a_full_disk_is_waited_for(tmp_path, rest):
  rest(.5)
  times = []

  def prepare():
    times.append(time.monotonic())
    if len(times) < 3:
      raise OSError(errno.ENOSPC, 'No space left on device')
    return ['bash', '-c', f'cd {tmp_path}; {_SUCCEED}']

  run = run_processes.ManagedRun(
      'a', str(tmp_path), 100, prepare, (tmp_path / 'done').exists)
  assert _run([run]) == [('a', 'running'), ('a', 'done')]
  assert len(times) == 3
  assert all(after - before >= .5 for before, after in zip(times, times[1:]))


def _stale(*unused_args):
  raise OSError(errno.ESTALE, 'Stale file handle')


def _make_answering(tmp_path, script, *answers):
  """A run that is done or not as `answers` say, None where nobody can tell."""
  answers = list(answers)

  def is_done():
    answer = answers.pop(0)
    return _stale() if answer is None else answer

  (tmp_path / 'a').mkdir()
  return run_processes.ManagedRun(
      'a', str(tmp_path / 'a'), 100,
      lambda: ['bash', '-c', f'cd {tmp_path}/a; {script}'], is_done)


def test_what_cannot_be_read_now_is_looked_at_again(tmp_path, caplog):
  """Other runs go on."""
  run = _make_answering(tmp_path, 'true', False, False, None, True)
  other = _make_run(tmp_path, f'sleep .5; {_SUCCEED}', 'b')
  _run([run, other], parallel=2)
  assert [(each.state, each.crashes) for each in (run, other)] == [
      ('done', 0)] * 2
  assert caplog.messages == [
      'a: its files cannot be read now, and are read again: Stale file handle.']


def test_what_cannot_be_read_for_minutes_is_not_waited_for(
    tmp_path, monkeypatch):
  monkeypatch.setattr(run_processes, '_UNREADABLE_SECONDS', .5)
  run = _make_answering(tmp_path, 'true', False, False, *[None] * 1000)
  with pytest.raises(OSError, match='Stale'):
    _run([run])


def test_a_run_that_was_told_to_end_has_not_crashed_if_its_files_cannot_be_read(
    tmp_path):
  run = _make_answering(tmp_path, 'sleep 100', False, False, None, False)
  run.start()
  run.terminate()
  run._process.wait()
  run.poll()
  assert (run.state, run.is_told) == ('running', True)
  run.poll()
  assert (run.state, run.is_told, run.crashes) == ('waiting', False, 0)


def test_a_stop_waits_for_all_even_if_files_cannot_be_read(tmp_path):
  run = _make_answering(tmp_path, 'sleep 100', False, False, None)
  other = _make_run(tmp_path, 'sleep 100', 'b')
  stop = signals.Stop()
  _run([run, other], parallel=2, stop=stop, on_poll=stop.set)
  assert [each.state for each in (run, other)] == ['waiting'] * 2


def test_a_crash_counts_if_checkpoints_cannot_be_listed(tmp_path, monkeypatch):
  """As one that has got no further."""
  monkeypatch.setattr(checkpoint_files, 'newest_frames', _stale)
  run = _make_run(tmp_path, 'exit 1')
  _run([run])
  assert (run.state, run.crashes) == ('failed', 3)


def test_a_run_that_cannot_be_shown_ends_with_the_others(tmp_path):
  run = _make_run(tmp_path, 'sleep 100')

  def on_change(changed):
    if changed.state == 'running':
      raise ValueError('Nobody can see this.')

  with pytest.raises(ValueError, match='Nobody'):
    run_processes.run_all([run], [{}], signals.Stop(), on_change)
  assert run.state == 'waiting'
  assert run._process.returncode == -signal.SIGTERM


def test_crashes_count_from_the_last_checkpoint_on(tmp_path):
  """One that gets further each time may crash more often than twice."""
  run = _make_run(
      tmp_path, 'n=$(wc -l < starts); touch ckpt-$((n > 4 ? 4 : n)).index; '
      'exit 1')
  _run([run])
  assert (run.state, run.crashes, _starts(run)) == ('failed', 3, 6)


def test_stop_lets_runs_save(tmp_path):
  """One SIGTERM each; what then is not done is no crash."""
  script = ('trap "echo saved >> saves; {}; exit 0" TERM; touch ready; '
            'while true; do sleep .05; done')
  runs = [_make_run(tmp_path, script.format('true'), 'a'),
          _make_run(tmp_path, script.format(_SUCCEED), 'b'),
          _make_run(tmp_path, _SUCCEED, 'c')]
  stop = signals.Stop()

  def stop_when_both_are_ready():
    if all((tmp_path / name / 'ready').exists() for name in 'ab'):
      stop.set()

  _run(runs, parallel=2, stop=stop, on_poll=stop_when_both_are_ready)
  assert [run.state for run in runs] == ['waiting', 'done', 'waiting']
  assert [run.crashes for run in runs] == [0, 0, 0]
  assert [(tmp_path / name / 'saves').read_text() for name in 'ab'] == [
      'saved\n'] * 2
  assert _starts(runs[2]) == 0


def test_a_run_is_never_at_work_twice(tmp_path):
  """The lock lives with the process, and is waited for."""
  script = f'while ! [ -e go ]; do sleep .05; done; {_SUCCEED}'
  first, second = (_make_run(tmp_path, script) for _ in range(2))
  first.start()
  second.start()
  assert (first.state, second.state) == ('running', 'elsewhere')
  second.poll()
  assert second.state == 'elsewhere'
  (tmp_path / 'a' / 'go').touch()
  deadline = time.monotonic() + 60
  while second.state == 'elsewhere' and time.monotonic() < deadline:
    time.sleep(.05)
    second.poll()
  assert second.state == 'done'
  first.poll()
  assert first.state == 'done'
  assert _starts(first) == 1


def test_a_run_whose_other_process_died_goes_on(tmp_path):
  first = _make_run(tmp_path, 'while ! [ -e ../go ]; do sleep .05; done')
  first.start()
  second = _make_run(tmp_path, _SUCCEED)

  def let_first_go():
    if second.state == 'elsewhere':
      (tmp_path / 'go').touch()

  changes = _run([second], on_poll=let_first_go)
  assert changes[:2] == [('a', 'elsewhere'), ('a', 'waiting')]
  assert (second.state, second.crashes) == ('done', 0)
  first.wait()


@pytest.mark.parametrize('name', [logdir_lib.LOCK_FILE, 'launcher.lock'])
def test_a_run_that_is_elsewhere_is_waited_for(tmp_path, monkeypatch, name):
  """Also one that somebody has started by hand; and no lock is in its way."""
  run = _make_run(tmp_path, _SUCCEED)
  lock = locks.acquire(os.path.join(run.logdir, name))
  run.start()
  monkeypatch.delattr(locks, 'acquire')
  assert run.state == 'elsewhere'
  run.poll()
  assert run.state == 'elsewhere'
  os.close(lock)
  run.poll()
  assert run.state == 'waiting'
  assert _starts(run) == 0


def test_no_two_that_run_have_the_variables_of_the_same_place(tmp_path):
  """A place is free again when its run has ended."""
  script = (f'mkdir ../place_$PLACE && sleep .2 && rmdir ../place_$PLACE && '
            f'echo $PLACE > place && {_SUCCEED}')
  runs = [_make_run(tmp_path, script, name) for name in 'abcde']
  _run(runs, environs=[dict(PLACE='x'), dict(PLACE='y')])
  assert [run.crashes for run in runs] == [0] * 5
  assert {(tmp_path / name / 'place').read_text() for name in 'abcde'} == {
      'x\n', 'y\n'}


def test_the_lowest_rank_goes_first(tmp_path):
  """Also before one that came earlier."""
  runs = [_make_run(tmp_path, _SUCCEED, name) for name in 'abc']
  changes = _run(runs, rank=lambda run: -ord(run.name))
  assert [name for name, state in changes if state == 'running'] == [
      'c', 'b', 'a']


def test_a_run_that_is_told_to_leave_has_not_crashed(tmp_path):
  script = 'trap "exit 0" TERM; touch ready; while true; do sleep .05; done'
  run = _make_run(tmp_path, f'if [ -e ready ]; then {_SUCCEED}; exit; fi; '
                  f'{script}')

  told = []

  def tell():
    if (tmp_path / 'a' / 'ready').exists() and not told:
      told.append(run)
      run.terminate()

  assert [state for _, state in _run([run], on_poll=tell)] == [
      'running', 'waiting', 'running', 'done']
  assert run.crashes == 0


_DEAF = 'trap "" TERM; touch ready; for i in {1..400}; do sleep .05; done'


def test_a_run_that_does_not_leave_is_killed(tmp_path, monkeypatch, caplog):
  """And has crashed; otherwise it would keep its place for ever."""
  monkeypatch.setattr(run_processes, '_GRACE_SECONDS', .3)
  run = _make_run(
      tmp_path, f'if [ -e ready ]; then {_SUCCEED}; exit; fi; {_DEAF}')
  told = []

  def tell():
    if (tmp_path / 'a' / 'ready').exists() and not told:
      told.append(time.monotonic())
      run.terminate()

  _run([run], on_poll=tell)
  assert time.monotonic() - told[0] < 10
  assert (run.state, run.crashes) == ('done', 1)
  assert ['a has not ended 0.3 s after it was told to, and is killed. What it '
          'has not saved is lost.'] == caplog.messages


def test_a_stop_does_not_wait_for_ever(tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(run_processes, '_GRACE_SECONDS', .3)
  run, stop = _make_run(tmp_path, _DEAF), signals.Stop()
  begin = time.monotonic()
  _run([run], stop=stop, on_poll=lambda: (tmp_path / 'a' / 'ready').exists() and
       stop.set())
  assert time.monotonic() - begin < 10
  assert run.state == 'waiting' and 'is killed' in caplog.text


_STARTER = '''
import sys, time
from scalable_agent.sweeps import run_processes
run_processes.ManagedRun(
    'a', sys.argv[1], 1,
    lambda: ['bash', '-c', 'cd ' + sys.argv[1] + '; trap "touch saved; exit" '
             'TERM; touch ready; for i in {1..600}; do sleep .05; done'],
    lambda: False, ends_with_parent=sys.argv[2] == 'True').start()
time.sleep(600)
'''


@pytest.mark.parametrize('ends_with_parent', [True, False])
def test_a_run_ends_with_its_program_if_it_is_to(tmp_path, ends_with_parent):
  program = subprocess.Popen(
      [sys.executable, '-c', _STARTER, str(tmp_path), str(ends_with_parent)],
      cwd=pathlib.Path(__file__).resolve().parents[2])
  deadline = time.monotonic() + 60
  while not (tmp_path / 'ready').exists() and time.monotonic() < deadline:
    time.sleep(.02)
  (run,) = psutil.Process(program.pid).children()
  program.kill()
  program.wait()
  gone, alive = psutil.wait_procs([run], timeout=60 if ends_with_parent else 1)
  for process in alive:
    process.kill()
  assert bool(gone) == ends_with_parent
  assert (tmp_path / 'saved').exists() == ends_with_parent
