"""The program that trains experts, with real processes."""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

from absl import flags
from absl.testing import flagsaver
import psutil
import pytest

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.evaluation import scores as scores_lib
from scalable_agent.sweeps import atari57_experts
from scalable_agent.sweeps import slurm

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_TIMEOUT_SECONDS = 300.
_TINY = (
    '--games=breakout,pong', '--total_environment_frames=6000',
    '--num_actors=4', '--batch_size=2', '--unroll_length=10', '--width=36',
    '--height=36', '--save_checkpoint_secs=0.1', '--log_interval_secs=1')


def _start(logdir, *arguments, **environ):
  return subprocess.Popen(
      [sys.executable, os.path.join(_ROOT, 'launch', 'atari57_experts.py'),
       f'--logdir={logdir}', *arguments],
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      text=True, cwd=os.path.dirname(logdir),
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2', **environ))


def _run(logdir, *arguments, **environ):
  process = _start(logdir, *arguments, **environ)
  try:
    output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
  finally:
    process.kill()
  return process.returncode, output, errors


def _contents(directory):
  return {path.name: path.read_bytes() for path in directory.iterdir()
          if path.is_file()}


def _frames(directory):
  return checkpoint_files.newest_frames(str(directory))


def _kill_once_saved(program, directory):
  """Kills a program, and what it has started, once a run has a checkpoint."""
  deadline = time.monotonic() + _TIMEOUT_SECONDS
  while not _frames(directory):
    assert program.poll() is None, program.communicate()
    assert time.monotonic() < deadline
    time.sleep(.02)
  processes = [program, *psutil.Process(program.pid).children(recursive=True)]
  for process in processes:
    with contextlib.suppress(psutil.NoSuchProcess):
      process.kill()
  program.communicate()
  psutil.wait_procs(processes[1:])


def test_killed_and_run_again_it_finishes_the_rest(tmp_path):
  """What was done is left alone, what was under way resumes."""
  pong, breakout = tmp_path / 'pong', tmp_path / 'breakout'
  for _ in range(5):
    _kill_once_saved(_start(tmp_path, *_TINY), pong)
    killed_at = _frames(pong)
    if killed_at < 6000:
      break
    # On a busy machine it can be done before the next look.
    shutil.rmtree(pong)

  assert _frames(breakout) == 6000
  assert 0 < killed_at < 6000
  before = _contents(breakout)

  code, output, errors = _run(tmp_path, *_TINY)
  assert code == 0, output + errors
  assert _contents(breakout) == before
  assert _frames(pong) == 6000
  assert b'Resuming from' in _contents(pong)['output.log']
  assert 'breakout: ' not in output and 'pong: done' in output
  rows = [line.split() for line in output.splitlines()]
  assert '2 of 2 done' in output
  assert [row[:4] for row in rows if len(row) > 3 and row[1] != 'of'] == [
      ['game', 'state', 'frames', 'frames/s'],
      ['breakout', 'done', '6k', '100%'],
      ['pong', 'done', '6k', '100%']]

  code, output, _ = _run(tmp_path, *_TINY)
  assert (code, output) == (0, 'All games are done.\n')


def test_a_game_that_crashes_is_reported(tmp_path):
  """With what it said last, after two more tries; the others run."""
  (tmp_path / 'pong').mkdir()
  (tmp_path / 'pong' / 'ckpt-8.index').touch()
  # Where TensorFlow crashes, and so each run of the game when it loads it.
  broken = tmp_path / 'broken'
  broken.mkdir()
  (broken / 'tensorflow.py').write_text(
      'import os\nprint("a library crashes", flush=True)\nos.abort()\n')
  # The program itself, which does not load TensorFlow, rests for no time.
  (broken / 'sitecustomize.py').write_text(
      'from scalable_agent.sweeps import run_processes\n'
      'run_processes._REST_SECONDS = .1\n')
  code, output, errors = _run(
      tmp_path, '--games=pong', '--mode=test', '--test_num_episodes=1',
      '--parallel=2', PYTHONPATH=str(broken))
  assert code == 1
  assert output.count('pong: running') == 3
  last = errors.strip().splitlines()[-1]
  assert last.startswith('Error: pong crashed 3 times')
  assert f'{tmp_path}/pong/output.log' in last
  assert _contents(tmp_path / 'pong')['output.log'].count(
      b'a library crashes\n') == 3


@pytest.mark.parametrize('arguments, expected', [
    (('--games=pogn',), 'Error: --games=pogn is no Atari game. Did you mean '
     'pong'),
    (('--games=',), 'Error: --games names no game.'),
    (('--level_name=pong',), 'Error: --level_name=pong cannot work'),
    (('--games=pong', '--batch_size=0'), 'Error: --batch_size=0 cannot work'),
    (('--games=pong', 'qbert'), 'Error: Unexpected arguments: qbert'),
    (('--games=pong', '--slurm=submit'), 'Error: --slurm=submit needs sbatch'),
    (('--games=pong', '--slurm=print', '--logdir=/50% off'),
     "Error: --logdir='/50% off' cannot work with --slurm, as sbatch"),
])
def test_errors_are_one_line(tmp_path, arguments, expected):
  # Where there is no sbatch.
  code, output, errors = _run(
      tmp_path / 'new', *arguments, PATH=str(tmp_path))
  assert code == 1 and output == ''
  assert errors.startswith(expected) and errors.count('\n') == 1
  assert not (tmp_path / 'new').exists()


def test_slurm_runs_a_task_for_each_game_that_is_not_done(tmp_path):
  """The script, run as SLURM would, starts this program for its game."""
  (tmp_path / 'pong').mkdir()
  (tmp_path / 'pong' / 'ckpt-100.index').touch()
  (tmp_path / 'pong' / 'config.json').write_text('{}')
  sbatch = tmp_path / 'sbatch'
  sbatch.write_text(f'#!/bin/bash\nexec /bin/cat > {tmp_path}/submitted\n')
  sbatch.chmod(0o755)
  scripts = []
  for action in ('print', 'submit'):
    code, output, errors = _run(
        tmp_path, '--games=alien,pong,qbert', f'--slurm={action}',
        '--slurm_options=--gres=gpu:1,--mail-type=END,FAIL,--time=9',
        '--nouse_lstm', '--total_environment_frames=100', PATH=str(tmp_path),
        PYTHONPATH=f'{tmp_path}/a folder:relative')
    assert code == 0, errors
    scripts.append(output)
  script = scripts[0]
  assert (tmp_path / 'submitted').read_text() == script
  lines = script.splitlines()
  assert lines[0] == '#!/bin/bash'
  for option in ('--array=0-1', '--gres=gpu:1', '--mail-type=END,FAIL',
                 '--time=9', f'--output={tmp_path}/slurm-%A_%a.out'):
    assert f'#SBATCH {option}' in lines
  script = script.replace(
      sys.executable,
      """bash -c 'printenv PYTHONPATH; printf "%s\\n" "$@"' job""")
  # In a shell that knows nothing of the one that made the script.
  result = subprocess.run(
      ['bash'], input=script, text=True, capture_output=True, check=True,
      env=dict(PATH=os.environ['PATH'], SLURM_ARRAY_TASK_ID='1'))
  python_path, *printed = result.stdout.splitlines()
  assert python_path.split(':') == [
      _ROOT, f'{tmp_path}/a folder', f'{tmp_path.parent}/relative']
  # An installed package has no launch/.
  assert printed[:2] == ['-m', 'scalable_agent.sweeps.atari57_experts']
  assert set(printed[2:]) == {
      f'--logdir={tmp_path}', '--nouse_lstm',
      '--total_environment_frames=100', '--games=qbert'}


@pytest.mark.parametrize('options, expected', [
    ('', []), ('--time=9', ['--time=9']),
    ('--mail-type=END,FAIL,--time=9, -x n1,n2',
     ['--mail-type=END,FAIL', '--time=9', '-x n1,n2'])])
def test_slurm_gets_each_option_whole(options, expected):
  """And the directory of logs, with whatever is in its name."""
  logdir = '/my "runs" of Bob\'s, #2'
  script = slurm.script(
      'some.program', [], 'games', ['pong'], logdir, options)
  start = '#SBATCH '
  found = [line[len(start):] for line in script.splitlines()
           if line.startswith(start)]
  assert found[-len(expected) - 1:] == ['--signal=B:TERM@120', *expected]
  # Which reads quotes as a shell does.
  assert [f'--output={logdir}/slurm-%A_%a.out'] in map(shlex.split, found)


@pytest.mark.parametrize('character', ['%', '\\', '\n'])
def test_slurm_refuses_directories_that_sbatch_would_misread(character):
  with pytest.raises(config_lib.ConfigError, match='--logdir=.* Choose'):
    slurm.script(
        'some.program', [], 'games', ['pong'], f'/my{character}runs', '')


def test_slurm_keeps_the_path_of_tasks_where_none_is_set(tmp_path):
  """As of an installed package."""
  environ = dict(os.environ)
  environ.pop('PYTHONPATH', None)
  result = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.sweeps.atari57_experts',
       '--games=pong', '--slurm=print', f'--logdir={tmp_path}'],
      cwd=_ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True,
      text=True, timeout=_TIMEOUT_SECONDS, check=True)
  assert 'runs=(pong)' in result.stdout.splitlines()
  assert 'PYTHONPATH' not in result.stdout


def test_films_are_in_a_directory_for_each_game(tmp_path):
  for game in ('pong', 'qbert'):
    (tmp_path / game).mkdir()
    (tmp_path / game / 'ckpt-100.index').touch()
  with flagsaver.flagsaver():
    flags.FLAGS(['experts', f'--logdir={tmp_path}', '--mode=test',
                 '--video_dir=/x'])
    runs, _ = atari57_experts._make_runs(('pong', 'qbert'))
  assert [run._prepare()[-1] for run in runs] == [
      '--video_dir=/x/pong/videos', '--video_dir=/x/qbert/videos']


def _identity(logdir, game):
  return scores_lib.identity(config_lib.resolve(dict(
      logdir=str(logdir / game), level_name=game, mode='test')))


@pytest.mark.parametrize('games, expected_code', [
    ('pong,breakout', 0), ('pong,breakout,qbert', 1)])
def test_test_mode_ends_with_a_table_of_scores(tmp_path, games, expected_code):
  """Of those that had been tested before, and whether or not others fail."""
  for game, returns in (('pong', [14.6, 14.6]), ('breakout', [30.5, 30.5])):
    (tmp_path / game).mkdir()
    (tmp_path / game / 'ckpt-100.index').touch()
    (tmp_path / game / 'config.json').write_text(
        json.dumps(dict(level_name=game, network='shallow', use_lstm=False)))
    (tmp_path / game / 'test_scores.json').write_text(json.dumps(dict(
        frames=100, test=_identity(tmp_path, game), levels={game: dict(
            num_episodes=2, episode_returns=returns)})))
  code, output, errors = _run(
      tmp_path, f'--games={games}', '--mode=test', '--test_num_episodes=2')
  assert code == expected_code, errors
  if code:
    assert 'qbert' in errors and 'has no checkpoint' in errors
  else:
    assert output.startswith('All games are done.\n')
  header, breakout, pong, _, _, statistics = output.splitlines()[-6:]
  assert header.startswith('level ')
  for line, game in ((breakout, 'breakout'), (pong, 'pong')):
    assert line.split()[0] == game and ' 100.0 % ' in line
  assert statistics.split()[:5] == ['shallow', '100.0', '%', '100.0', '%']


@pytest.mark.parametrize('games', ['pong', 'pong,qbert'])
def test_scores_that_cannot_be_read_are_told_in_one_line(tmp_path, games):
  """And hide no game that failed."""
  pong = tmp_path / 'pong'
  pong.mkdir()
  (pong / 'ckpt-100.index').touch()
  (pong / 'config.json').write_text(json.dumps(dict(level_name='pong')))
  (pong / 'test_scores.json').write_text(json.dumps(dict(
      frames=100, test=_identity(tmp_path, 'pong'),
      levels=dict(pong=dict(num_episodes=2)))))
  code, _, errors = _run(
      tmp_path, f'--games={games}', '--mode=test', '--test_num_episodes=2')
  assert code == 1
  lines = errors.splitlines()
  assert lines[0].startswith(f'Error: {pong}/test_scores.json holds no test')
  assert len(lines) == len(games.split(','))
  if 'qbert' in games:
    assert 'qbert' in lines[1] and 'has no checkpoint' in lines[1]
