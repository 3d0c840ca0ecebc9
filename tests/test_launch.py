"""The scripts of launch/, with an interpreter that says what it is to do."""

import os
import re
import runpy
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests import conftest

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _executable(path, text):
  path.write_text(text)
  path.chmod(0o755)


def _venv(tmp_path):
  """A virtual environment whose python prints its arguments."""
  (tmp_path / 'venv' / 'bin').mkdir(parents=True)
  _executable(tmp_path / 'venv' / 'bin' / 'python',
              '#!/bin/sh\nfor a in "$@"; do echo "$a"; done\n')
  return tmp_path / 'venv'


def _run(script, *arguments, **environ):
  path = os.path.join(_ROOT, 'launch', script)
  # What sbatch takes need not be executable.
  program = [path] if os.access(path, os.X_OK) else ['bash', path]
  return subprocess.run(
      [*program, *arguments], timeout=60,
      stdin=subprocess.DEVNULL, capture_output=True, text=True,
      env=dict(os.environ, **{k: str(v) for k, v in environ.items()}))


def test_quickstart_installs_once_and_then_trains(tmp_path):
  """Without a stamp the package is installed; with it only the run starts."""
  venv = _venv(tmp_path)
  first, second = (_run('quickstart.sh', VENV=venv, LOGDIR=tmp_path)
                   for _ in range(2))
  assert 'install' in first.stdout and '--editable' in first.stdout
  assert second.stdout.splitlines() == [
      '-m', 'scalable_agent.experiment',
      f'--flagfile={_ROOT}/launch/flags/small_machine.flags',
      f'--logdir={tmp_path}/pong', '--level_name=pong']


def test_scripts_find_the_checkout_where_cd_prints(tmp_path):
  """As it does with CDPATH for a relative name."""
  found = subprocess.run(
      ['bash', '-c', 'source launch/environment.sh; echo "$root|$venv"'],
      cwd=_ROOT, timeout=60, capture_output=True, text=True, check=True,
      env=dict(os.environ, CDPATH=f'.:{_ROOT}', VENV=str(tmp_path)))
  assert found.stdout == f'{_ROOT}|{tmp_path}\n'


def test_quickstart_passes_arguments_on_after_its_own(tmp_path):
  """The user's flags come last, where they win; the level names the run."""
  venv = _venv(tmp_path)
  arguments = ['--level_name=gym:CartPole-v1', '--logdir=/other place']
  _run('quickstart.sh', VENV=venv, LOGDIR=tmp_path)
  lines = _run('quickstart.sh', *arguments, VENV=venv,
               LOGDIR=tmp_path).stdout.splitlines()
  assert lines[-2:] == arguments
  assert f'--logdir={tmp_path}/gym_CartPole-v1' in lines


@pytest.mark.parametrize('arguments, name', [
    (['--level_name', 'breakout'], 'breakout'),
    (['-level_name', 'gym:A-v1', '--seed', '2'], 'gym_A-v1'),
    (['--level_name=qbert', '--level_name', 'breakout'], 'breakout'),
    (['--seed', '2'], 'pong')])
def test_quickstart_trains_each_level_in_a_directory_of_its_own(
    tmp_path, arguments, name):
  """However the level is given."""
  venv = _venv(tmp_path)
  _run('quickstart.sh', VENV=venv, LOGDIR=tmp_path)
  lines = _run('quickstart.sh', *arguments, VENV=venv,
               LOGDIR=tmp_path).stdout.splitlines()
  assert f'--logdir={tmp_path}/{name}' in lines
  assert lines[-len(arguments):] == arguments


def test_test_script_installs_the_test_extra_and_runs_all(tmp_path):
  venv = _venv(tmp_path)
  lines = _run('test.sh', VENV=venv).stdout.splitlines()
  assert f'{_ROOT}[test]' in lines
  pytest_arguments = [
      '-m', 'pytest', '--numprocesses=4', '--dist=loadfile',
      '--no-loadscope-reorder', '--max-worker-restart=0']
  assert lines[-7:] == pytest_arguments + ['tests']
  lines = _run('test.sh', '-k', 'a b', VENV=venv).stdout.splitlines()
  assert lines == pytest_arguments + ['-k', 'a b']


@pytest.mark.parametrize('script, last', [
    ('test.sh', 'tests'), ('quickstart.sh', '--level_name=pong')])
def test_a_virtual_environment_may_be_named_from_where_one_is(
    tmp_path, monkeypatch, script, last):
  _venv(tmp_path)
  monkeypatch.chdir(tmp_path)
  result = _run(script, VENV='venv')
  assert result.returncode == 0, result.stderr
  assert result.stdout.splitlines()[-1] == last


def test_the_files_that_start_first_are_there():
  assert len(set(conftest.LONGEST)) == len(conftest.LONGEST)
  for name in conftest.LONGEST:
    assert os.path.exists(os.path.join(_ROOT, 'tests', name)), name


def test_old_or_missing_interpreters_are_refused_in_one_line(tmp_path):
  old = tmp_path / 'old'
  _executable(old, '#!/bin/sh\n'
              'test "$1" = --version && echo Python 3.8.1 || exit 1\n')
  result = _run('quickstart.sh', VENV=tmp_path / 'none', PYTHON=old)
  assert result.returncode == 1
  assert result.stderr.startswith('Error: Python 3.8.1 cannot run this')
  assert result.stderr.count('\n') == 1
  missing = _run('test.sh', VENV=tmp_path / 'none', PYTHON='no-such-python')
  assert missing.returncode == 1
  assert missing.stderr == 'Error: no-such-python is not installed.\n'


def test_a_virtual_environment_that_could_not_be_made_is_made_again(tmp_path):
  base = tmp_path / 'python3'
  _executable(base, f"""#!/bin/sh
if test "$2" = venv; then
  mkdir -p "$3/bin"
  printf '#!/bin/sh\\ntest -e {tmp_path}/pip\\n' > "$3/bin/python"
  chmod +x "$3/bin/python"
  test -e {tmp_path}/package && touch {tmp_path}/pip
fi
""")
  for is_installed in False, True:
    if is_installed:
      (tmp_path / 'package').touch()
    result = _run('quickstart.sh', VENV=tmp_path / 'venv', PYTHON=base)
    assert ('cannot make virtual environments' in result.stderr) != is_installed
    assert result.returncode == (not is_installed)


def test_a_failed_installation_is_tried_again(tmp_path):
  venv = _venv(tmp_path)
  _executable(venv / 'bin' / 'python', '#!/bin/sh\ntest "$3" = --version && '
              'exit\necho "$2"; exit 1\n')
  for _ in range(2):
    result = _run('quickstart.sh', VENV=venv)
    assert result.returncode == 1
    assert 'Error: pip could not install.' in result.stderr
    assert result.stdout == 'pip\n'


@pytest.mark.parametrize('comes_back', [True, False])
def test_a_virtual_environment_without_pip(tmp_path, comes_back):
  """As Ctrl-C leaves one; and one of a user's own is not made again."""
  venv = _venv(tmp_path)
  _executable(venv / 'bin' / 'python', f"""#!/bin/sh
case "$2" in
  pip) test -e {tmp_path}/pip ;;
  ensurepip) {'touch' if comes_back else 'false'} {tmp_path}/pip ;;
  *) echo started ;;
esac
""")
  result = _run('quickstart.sh', VENV=venv)
  assert (result.returncode == 0) == comes_back
  assert (f'Error: there is no pip in {venv}. Remove' in
          result.stderr) != comes_back


_WAIT_FOR_TERM = 'trap "exit 0" TERM; sleep 60 & wait'


def _start_jobs(tmp_path, learner, actor, *arguments, **environ):
  """Starts local.sh, with jobs that are what these two shell commands do."""
  venv = _venv(tmp_path)
  _executable(venv / 'bin' / 'python', f"""#!/bin/bash
if [[ "$2" == pip ]]; then exit; fi
echo "$*" >>"{tmp_path}/started"
if [[ "$*" == *job_name=learner* ]]; then {learner}; else {actor}; fi
""")
  return subprocess.Popen(
      # In the background of a script, which the tests may run in, ctrl-C is
      # ignored, and no shell can catch it then.
      ['env', '--default-signal=INT',
       os.path.join(_ROOT, 'launch', 'local.sh'), *arguments],
      stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
      start_new_session=True, env=dict(
          os.environ, VENV=str(venv), JOB_LOGS=str(tmp_path / 'logs'),
          **environ))


def _started(tmp_path):
  path = tmp_path / 'started'
  return sorted(path.read_text().splitlines()) if path.exists() else []


def _log(tmp_path, job):
  """What a job has said since it was started last."""
  text = (tmp_path / 'logs' / f'{job}.log').read_text()
  return re.split(
      r'(?m)^== (?:learner|actor) \d+, started at \d{4}-\d\d-\d\d [\d:]{8}\n',
      text)[-1]


def _wait_until(condition):
  deadline = time.time() + 30
  while not condition():
    assert time.time() < deadline
    time.sleep(.1)


def _is_running(pid):
  try:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def test_local_jobs_get_their_flags_and_end_together(tmp_path):
  # Bash takes numbers that begin with 0 for octal ones.
  process = _start_jobs(
      tmp_path, 'echo learning', 'sleep 1', '--level_name=pong', LEARNERS='02',
      ACTORS='01', PORT='09000', RESTARTS='08')
  process.communicate(timeout=60)
  assert process.returncode == 0
  shared = ('--learner_hosts=localhost:9000,localhost:9001 --num_actors=1 '
            '--level_name=pong --insecure_network')
  assert _started(tmp_path) == [
      f'-m scalable_agent.experiment --job_name={job} {shared}'
      for job in ('actor --task=0', 'learner --task=0', 'learner --task=1')]
  assert _log(tmp_path, 'learner-1') == 'learning\n'


def test_a_local_actor_that_fails_once_training_is_done_does_no_harm(tmp_path):
  process = _start_jobs(tmp_path, 'sleep 1', 'sleep 2; exit 9', ACTORS='1')
  _, errors = process.communicate(timeout=60)
  assert process.returncode == 0
  assert 'actor 0 has ended with code 9' in errors
  assert 'Error' not in errors and len(_started(tmp_path)) == 2


def test_local_jobs_show_how_far_they_are(tmp_path):
  """As the learner logs it, without times, and nothing of what the script does.
  """
  log = 'I1123 01:15:23.762660 1407 progress.py:20] 8.32k of 16k (52 %)'
  process = _start_jobs(
      tmp_path, f'echo "{log}"; sleep 1; echo Done', 'sleep 1', ACTORS='1',
      PORT='9000')
  _, errors = process.communicate(timeout=60)
  assert errors.splitlines()[1:] == [  # The first is that it installs.
      f'Learners on localhost:9000, 1 actors, logs in {tmp_path}/logs',
      '8.32k of 16k (52 %)', 'Done']


def test_local_jobs_end_without_complaint_on_ctrl_c(tmp_path):
  """Which a terminal sends to all that the script has started."""
  process = _start_jobs(tmp_path, _WAIT_FOR_TERM, _WAIT_FOR_TERM, ACTORS='1')
  _wait_until(lambda: len(_started(tmp_path)) == 2)
  time.sleep(.5)  # For the traps of the jobs.
  os.killpg(process.pid, signal.SIGINT)
  _, errors = process.communicate(timeout=30)
  assert process.returncode == 0
  assert errors.count('\n') == 2, errors


def test_local_jobs_stop_on_a_signal(tmp_path):
  process = _start_jobs(tmp_path, _WAIT_FOR_TERM, _WAIT_FOR_TERM, ACTORS='3')
  _wait_until(lambda: len(_started(tmp_path)) == 4)
  time.sleep(.5)  # For the traps of the jobs.
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=30)
  assert process.returncode == 0


def test_a_local_job_that_cannot_save_is_an_error(tmp_path):
  process = _start_jobs(
      tmp_path, 'trap "echo The disk is full; exit 3" TERM; sleep 60 & wait',
      _WAIT_FOR_TERM, ACTORS='1')
  _wait_until(lambda: len(_started(tmp_path)) == 2)
  time.sleep(.5)  # For the traps of the jobs.
  process.send_signal(signal.SIGTERM)
  _, errors = process.communicate(timeout=30)
  assert process.returncode == 1
  assert 'learner 0 has ended with code 3:\nThe disk is full\n' in errors
  assert len(_started(tmp_path)) == 2


def test_local_jobs_that_do_not_stop_are_killed(tmp_path):
  """With what they have started, and no sooner than they may have saved."""
  deaf = f'trap "" TERM; sleep 40 & echo $! >{tmp_path}/child; wait'
  process = _start_jobs(
      tmp_path, f'[[ "$*" == *task=0* ]] || {{ {deaf}; }}; '
      f'until test -e {tmp_path}/child; do sleep .05; done; exit 1',
      'trap "sleep 1; exit 0" TERM; sleep 60 & wait',
      LEARNERS='2', ACTORS='1', STOP_SECS='4')
  _, errors = process.communicate(timeout=30)
  assert process.returncode == 1
  assert (
      'Error: after 4 s (STOP_SECS) these have not ended, and are killed: '
      'learner 1.\n') in errors
  assert 'learner 1 has ended with code 137:' in errors
  assert 'actor 0 has ended' not in errors
  child = int((tmp_path / 'child').read_text())
  _wait_until(lambda: not _is_running(child))


def test_local_logs_keep_what_was_in_them(tmp_path):
  """Nothing of which counts as this run's, not even half a line."""
  (tmp_path / 'logs').mkdir()
  for job in ('learner', 'actor'):
    (tmp_path / 'logs' / f'{job}-0.log').write_text('Before\nkilled in a li')
  process = _start_jobs(
      tmp_path, 'echo learning; sleep 1; exit 1', 'sleep 60', ACTORS='1',
      RESTARTS='1')
  _, errors = process.communicate(timeout=30)
  assert 'learning' in errors
  assert 'Before' not in errors and 'killed in a li' not in errors
  start = r'== learner 0, started at [\d-]+ [\d:]+\n'
  assert re.fullmatch(
      f'Before\nkilled in a li\n{start}learning\n{start}learning\n',
      (tmp_path / 'logs' / 'learner-0.log').read_text())


def test_local_learners_come_before_actors_and_ctrl_c_reaches_neither(tmp_path):
  say = 'echo $(nice) $(ps -o pgid= -p $$)'
  process = _start_jobs(tmp_path, say, f'{say}; sleep 1', ACTORS='1')
  process.communicate(timeout=60)
  learner, actor = (
      list(map(int, _log(tmp_path, f'{name}-0').split()))
      for name in ('learner', 'actor'))
  assert actor[0] == min(learner[0] + 5, 19)
  assert len({learner[1], actor[1], os.getpgid(0)}) == 3


def test_a_killed_local_job_is_started_again(tmp_path):
  once = f'test -e {tmp_path}/x || {{ touch {tmp_path}/x; kill -9 $$; }}; exit'
  process = _start_jobs(tmp_path, 'sleep 4', once, ACTORS='1')
  _, errors = process.communicate(timeout=60)
  assert process.returncode == 0
  assert 'actor 0 has ended with code 137' in errors
  assert len(_started(tmp_path)) == 3


def test_local_jobs_that_die_together_are_all_started_again(tmp_path):
  count = f'$(wc -l <{tmp_path}/started)'
  until = lambda condition: f'until {condition}; do sleep .05; done'
  die_once = lambda then: (
      f'if (({count} <= 4)); then {until(f"test -e {tmp_path}/x")}; '
      f'kill -9 $$; fi; {then}')
  # The learner ends first, and not before one too many would have started.
  process = _start_jobs(
      tmp_path,
      die_once(f'{until(f"(({count} >= 8))")}; sleep 1; touch {tmp_path}/done'),
      die_once(until(f'test -e {tmp_path}/done')), ACTORS='3')
  try:
    _wait_until(lambda: len(_started(tmp_path)) == 4)
    (tmp_path / 'x').touch()
    process.communicate(timeout=30)
  finally:
    process.terminate()
  assert process.returncode == 0
  started = _started(tmp_path)
  assert len(started) == 8 and started[::2] == started[1::2]


@pytest.mark.parametrize('seconds', [0, 3])
def test_a_learner_that_failed_at_its_end_gets_its_actors_again(
    tmp_path, seconds):
  """They have heard that training is done, and end before or after it."""
  again = lambda job: f'[[ $(grep -c name={job} {tmp_path}/started) == 2 ]]'
  process = _start_jobs(
      tmp_path,
      f'{again("learner")} || {{ sleep 1; touch {tmp_path}/done; exit 1; }}; '
      f'until {again("actor")}; do sleep .05; done',
      f'{again("actor")} && exec sleep 2; '
      f'until test -e {tmp_path}/done -o {seconds} = 0; do sleep .05; done; '
      f'sleep {seconds}', ACTORS='1')
  try:
    process.communicate(timeout=30)
  finally:
    process.terminate()
  assert process.returncode == 0
  assert len(_started(tmp_path)) == 4


def test_a_local_job_that_failed_is_not_started_after_a_signal(tmp_path):
  process = _start_jobs(tmp_path, _WAIT_FOR_TERM, 'exit 1', ACTORS='1')
  for line in process.stderr:
    if 'actor 0 has ended' in line:
      break
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=30)
  assert process.returncode == 0
  assert len(_started(tmp_path)) == 2


def test_a_local_learner_that_fails_for_good_stops_the_rest(tmp_path):
  process = _start_jobs(
      tmp_path, 'echo Error: it is raining >&2; exit 1', _WAIT_FOR_TERM,
      ACTORS='2', RESTARTS='1')
  _, errors = process.communicate(timeout=60)
  assert process.returncode == 1
  assert errors.count('learner 0 has ended with code 1:') == 2
  assert 'Error: it is raining' in errors
  assert 'Error: learner 0 has failed, stopping all jobs.' in errors
  assert len(_started(tmp_path)) == 4


def _run_slurm(tmp_path, learner, actor):
  """Runs slurm.sbatch, with jobs that are what these two shell commands do.

  What stands in for SLURM runs each step as one process. As there, srun kills
  it on SIGTERM, and scancel sends its signal to what the steps run.
  """
  venv = _venv(tmp_path)
  _executable(venv / 'bin' / 'python', f"""#!/bin/bash
echo "$*" >>"{tmp_path}/started"
if [[ "$*" == *job_name=learner* ]]; then {learner}; else {actor}; fi
""")
  programs = tmp_path / 'programs'
  programs.mkdir()
  # Slowly: a script that reads the first line only would close the pipe.
  _executable(programs / 'scontrol',
              '#!/bin/sh\necho node-0; /bin/sleep .2; echo node-1\n')
  # The script's seconds.
  _executable(programs / 'sleep', '#!/bin/sh\nexec /bin/sleep .1\n')
  _executable(programs / 'srun', f"""#!/bin/bash
echo "$*" >>"{tmp_path}/steps"
while [[ "$1" != bash ]]; do shift; done
# It begins when scancel knows it.
(until [[ -e "{tmp_path}/known-$$" ]]; do /bin/sleep .01; done
 SLURM_PROCID=0 exec "$@") & task=$!
trap 'kill -KILL $task' TERM
echo $task >>"{tmp_path}/tasks"
touch "{tmp_path}/known-$$"
while kill -0 $task 2>/dev/null; do wait $task; code=$?; done
exit $code
""")
  _executable(programs / 'scancel', f"""#!/bin/bash
[[ "$*" == "--signal=TERM 7" ]] && kill $(cat "{tmp_path}/tasks") 2>/dev/null
exit 0
""")
  return _run(
      'slurm.sbatch', '--level_name=pong', VENV=venv, ACTORS=3,
      PATH=f'{programs}:{os.environ["PATH"]}', LOGDIR=tmp_path / 'logdir',
      SLURM_SUBMIT_DIR=tmp_path, SLURM_JOB_ID=7,
      SLURM_JOB_NODELIST='node-[0-1]')


@pytest.mark.parametrize('code', [0, 5])
def test_slurm_ends_as_its_learner(tmp_path, code):
  """Which the actors outlive; they are ended, and the token is removed."""
  result = _run_slurm(
      tmp_path, f'until test -e {tmp_path}/acts; do /bin/sleep .05; done; '
      f'exit {code}', f'touch {tmp_path}/acts; exec /bin/sleep 50')
  assert result.returncode == code, result.stderr
  shared = (f'--learner_hosts=node-0:8000 --num_actors=3 --auth_token_file='
            f'{tmp_path}/.token-7 --level_name=pong --task=0')
  assert _started(tmp_path) == [
      f'-m scalable_agent.experiment --job_name=actor {shared}',
      '-m scalable_agent.experiment --job_name=learner '
      f'--logdir={tmp_path}/logdir {shared}']
  steps = (tmp_path / 'steps').read_text()
  assert '--ntasks=3 --cpus-per-task=1 ' in steps
  assert '--ntasks=1 --nodes=1 --nodelist=node-0 --cpus-per-task=1 ' in steps
  assert not (tmp_path / '.token-7').exists()
  for pid in (tmp_path / 'tasks').read_text().split():
    assert not _is_running(int(pid))


def test_slurm_stops_the_learner_when_the_actors_have_failed(tmp_path):
  """Which saves; nobody pays for a learner that waits alone."""
  result = _run_slurm(
      tmp_path, f'trap "touch {tmp_path}/saved; exit 0" TERM; '
      f'touch {tmp_path}/learns; for i in {{1..300}}; do /bin/sleep .1; done',
      f'until test -e {tmp_path}/learns; do /bin/sleep .05; done; exit 3')
  assert result.returncode == 3
  assert 'Error: the actors have ended with code 3' in result.stderr
  assert (tmp_path / 'saved').exists()


def test_slurm_trains_to_the_end_without_an_actor_that_failed(tmp_path):
  """The code of all actors is then that of the one."""
  result = _run_slurm(
      tmp_path, f'until test -e {tmp_path}/acted; do /bin/sleep .05; done; '
      f'/bin/sleep .3; touch {tmp_path}/saved',
      f'touch {tmp_path}/acted; exit 3')
  assert result.returncode == 0, result.stderr
  assert (tmp_path / 'saved').exists()


def test_experts_are_trained_by_the_program_of_the_checkout(monkeypatch):
  """Which need not be installed, neither here nor for what it starts."""
  calls = []
  monkeypatch.setattr(os, 'execve', lambda *arguments: calls.append(arguments))
  monkeypatch.setattr(sys, 'argv', ['atari57_experts.py', '--games=pong', 'x'])
  script = os.path.join(_ROOT, 'launch', 'atari57_experts.py')
  assert os.access(script, os.X_OK)
  for before, after in (('/other', f'{_ROOT}{os.pathsep}/other'), ('', _ROOT)):
    monkeypatch.setenv('PYTHONPATH', before)
    runpy.run_path(script, run_name='__main__')
    program, arguments, environ = calls.pop()
    assert program == sys.executable
    assert arguments == [
        sys.executable, '-m', 'scalable_agent.sweeps.atari57_experts',
        '--games=pong', 'x']
    assert environ == dict(os.environ, PYTHONPATH=after)


def test_what_scripts_and_reports_write_is_ignored_by_git():
  with open(os.path.join(_ROOT, '.gitignore')) as f:
    assert {'/job_logs/', '/report/'} <= set(f.read().splitlines())


_FLAG_FILES = os.path.join(_ROOT, 'launch', 'flags')


def _flag_file(name):
  return f'--flagfile={_FLAG_FILES}/{name}.flags'


def _config(*arguments):
  """The configuration of an experiment with some arguments."""
  from absl import flags
  from absl.testing import flagsaver
  from scalable_agent import config as config_lib
  # The files of populations have its flags too.
  from scalable_agent import population  # pylint: disable=unused-import
  from scalable_agent.config import flags as config_flags

  with flagsaver.flagsaver():
    flags.FLAGS(['experiment', '--level_name=pong', *arguments])
    return config_lib.resolve(config_flags.given())


@pytest.mark.parametrize('name', sorted(
    name.removesuffix('.flags') for name in os.listdir(_FLAG_FILES)))
def test_flagfiles_hold_flags_that_exist(name):
  _config(_flag_file(name))


@pytest.mark.parametrize('name, arguments', [
    ('atari_shallow', []),
    ('atari_deep', ['--network=deep']),
    ('atari57', ['--level_name=atari57']),
    # Without what its members have each for themselves.
    ('atari57_population', [
        '--level_name=atari57', '--learning_rate_schedule=constant']),
    ('dmlab_single', [
        '--level_name=rooms_watermaze', '--num_actors=48', '--batch_size=32']),
    # The command of the released code's README.
    ('dmlab30', [
        '--level_name=dmlab30', '--num_actors=150', '--batch_size=32',
        '--entropy_cost=0.0033391318945337044',
        '--learning_rate=0.00031866995608948655',
        '--reward_clipping=soft_asymmetric',
        '--total_environment_frames=10000000000']),
    ('dmlab30_population', [
        '--level_name=dmlab30', '--num_actors=150', '--batch_size=32',
        '--learning_rate_schedule=constant',
        '--total_environment_frames=10000000000'])])
def test_published_flagfiles_are_the_defaults_but_for_what_they_say(
    name, arguments):
  others = ['--level_name=rooms_watermaze'] if name == 'dmlab_single' else []
  assert _config(_flag_file(name), *others) == _config(*arguments)


@pytest.mark.parametrize('name, expected', [
    # Section 5.1; the rates are the middle of those it sweeps.
    ('laser_atari', dict(
        network='deep', channel_multiplier=4, use_lstm=False, discounting=.995,
        unroll_length=19, batch_size=128, num_replayed_unrolls=123,
        gradient_norm_clip=0., reward_clipping='abs_one', learning_rate=.0006,
        entropy_cost=.01, learning_rate_schedule='constant',
        entropy_on_replay=False, train_on_new=True)),
    # And sections 5.2 and A.2.
    ('laser_dmlab30', dict(
        level_name='dmlab30', network='deep', use_lstm=True, unroll_length=79,
        replay_proportion=.875, replay_state='recomputed',
        replay_capacity=10_000_000 // 79, epsilon=.1,
        learning_rate_schedule='constant', entropy_on_replay=False,
        train_on_new=True, learning_rate=0.00031866995608948655,
        entropy_cost=0.0033391318945337044))])
def test_flagfiles_of_laser_are_what_its_paper_says(name, expected):
  """But for the trust region's threshold, which it does not give."""
  config = _config(_flag_file(name))
  assert {key: getattr(config, key) for key in expected} == expected
  assert 0. < config.trust_region_threshold < 1.


@pytest.mark.parametrize('name, adapted', [
    ('atari57', [
        'entropy_cost', 'learning_rate', 'epsilon', 'gradient_norm_clip']),
    ('dmlab30', ['entropy_cost', 'learning_rate', 'epsilon'])])
def test_flagfiles_of_populations_are_appendix_f(name, adapted):
  """With the ranges of Table D.1, and for Atari what Appendix G adapts."""
  from absl import flags
  from absl.testing import flagsaver
  from scalable_agent import population
  from scalable_agent.sweeps import samples

  with flagsaver.flagsaver():
    flags.FLAGS(['population', _flag_file(f'{name}_population')])
    assert flags.FLAGS.range == list(samples.TABLE_D1)
    assert flags.FLAGS.adapt == adapted
    assert (flags.FLAGS.burn_in_frames, flags.FLAGS.episodes) == (
        20_000_000, 5000)
    starts = population.start_parameters(flags.FLAGS.adapt)
    assert (len(starts), list(starts[0])) == (24, adapted)
    flags.FLAGS.unparse_flags()


def test_sweeps_hold_flags_and_runs_that_exist(monkeypatch):
  """Each grid has as many runs as it says, and each of them can be resolved."""
  from absl import flags
  from absl.testing import flagsaver
  from scalable_agent import config as config_lib
  from scalable_agent import population
  from scalable_agent import sweep
  from scalable_agent.config import flags as config_flags
  from scalable_agent.sweeps import grid

  monkeypatch.chdir(_ROOT)
  directory = os.path.join(_ROOT, 'launch', 'sweeps')
  for name in sorted(os.listdir(directory)):
    path = os.path.join(directory, name)
    with open(path) as f:
      text = f.read()
    with flagsaver.flagsaver():
      flags.FLAGS(['program', f'--flagfile={path}'])
      if 'scalable_agent.population' in text:
        settings = population.read_settings()
        count = len(population.start_parameters(settings.adapt))
        assert f'A population of {count} ' in text, name
        continue
      trials = sweep.make_trials()
      assert f'{len(trials)} runs' in text, name
      for trial in trials[:32]:
        config_lib.resolve(config_flags.given(grid.settings_of(trial)))
