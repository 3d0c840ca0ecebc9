"""Training and trained agents in a user's script, and starts without flags."""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests import test_experiment
from tests.test_experiment import _contents
from tests.test_experiment import _error_of
from tests.test_experiment import run_main  # pylint: disable=unused-import

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TIMEOUT_SECONDS = 240.
_FRAMES = 10 * 32 * 20  # Whole updates.
_SETTINGS = ('environment_threads=1, log_interval_secs=.1, seed=3, '
             'evaluate_every_frames=3000, test_num_episodes=4')


def _example():
  """The script of the README, made short, and the log directory in it."""
  text = (_ROOT / 'README.md').read_text()
  _, _, section = text.partition('\n## Trained agents\n')
  script = section.partition('\n## ')[0].split('```python\n')[1]
  return script.partition('```')[0]


@pytest.fixture(scope='module')
def scripted(tmp_path_factory):
  """The log directory of the README's script, and what the script says."""
  logdir = tmp_path_factory.mktemp('script') / 'run'
  script = _example().replace('/tmp/cartpole', str(logdir))
  assert str(logdir) in script and 'FLAGS' not in script
  short = re.sub(r'total_environment_frames=[0-9_]+',
                 f'total_environment_frames={_FRAMES}, {_SETTINGS}', script)
  assert short != script
  result = subprocess.run(
      [sys.executable, '-c', short + '\nprint(policy.frames, action, reward)'],
      env=dict(os.environ, PYTHONPATH=str(_ROOT)), cwd=logdir.parent,
      stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=_TIMEOUT_SECONDS)
  assert result.returncode == 0, result.stderr[-4000:]
  assert 'Traceback' not in result.stderr
  return logdir, result.stdout


def test_a_script_trains_and_acts(scripted):
  logdir, said = scripted
  frames, action, reward = said.split()[-3:]
  assert int(frames) == _FRAMES == test_experiment._frames(logdir)[-1]
  assert action in ('0', '1') and float(reward) == 1.
  config = test_experiment._config(logdir)
  assert (config['level_name'], config['seed']) == ('gym:CartPole-v1', 3)


def _rows(logdir):
  with open(logdir / 'evaluations.csv', newline='') as f:
    header, *rows = csv.reader(f)
  assert header == ['frames', 'level', 'episode_return', 'episode_frames']
  return [(int(frames), level, float(value), int(length))
          for frames, level, value, length in rows]


def test_it_is_evaluated_on_the_way(scripted):
  """Whole episodes, of the first weights behind each multiple of 3000."""
  logdir, _ = scripted
  rows = _rows(logdir)
  frames = sorted({row[0] for row in rows})
  assert 3000 <= frames[0] and 6000 <= frames[-1] <= _FRAMES
  for number in frames:
    played = [row for row in rows if row[0] == number]
    assert len(played) == 4
    for _, level, value, length in played:
      assert level == 'gym:CartPole-v1'
      assert value == length >= 8  # One point per step.
  tags = test_experiment._event_tags(logdir)
  assert tags['1_return/mean_return_of_evaluation'] == frames


def test_the_best_is_kept_and_says_why(scripted):
  logdir, _ = scripted
  best = json.loads((logdir / 'best' / 'best.json').read_text())
  assert best['measure'] == 'mean_return' and 8 <= best['value'] <= 500
  assert (logdir / 'best' / f'{best["checkpoint"]}.index').exists()
  rows = test_experiment._episodes(logdir)
  returns = [float(row[2]) for row in rows]
  # Episodes that ended at the same frame may have ended before or after.
  before = sum(int(row[0]) < best['frames'] for row in rows)
  until = sum(int(row[0]) <= best['frames'] for row in rows)
  means = [sum(returns[end - 100:end]) / 100
           for end in range(max(before, 100), until + 1)]
  assert any(best['value'] == pytest.approx(mean) for mean in means)


@pytest.mark.parametrize('checkpoint', ['latest', 'best', 'path'])
def test_test_mode_needs_no_other_flag(scripted, run_main, checkpoint):
  logdir, _ = scripted
  before = _contents(logdir)
  best = json.loads((logdir / 'best' / 'best.json').read_text())['frames']
  name, frames = dict(
      latest=('latest', _FRAMES), best=('best', best),
      path=(logdir / 'ckpt-0', 0))[checkpoint]
  result = run_main(f'--logdir={logdir}', '--mode=test',
                    f'--checkpoint={name}')
  assert result.code == 0, result
  after = _contents(logdir)
  scores = json.loads(after['test_scores.json'])
  earlier = before.get('test_scores.json')
  # The scores of another checkpoint are kept beside these.
  assert (earlier is None or earlier in after.values() or
          json.loads(earlier)['test'] == scores['test'])
  assert {name: content for name, content in after.items()
          if not name.startswith('test_scores.')} == {
              name: content for name, content in before.items()
              if not name.startswith('test_scores.')}
  assert scores['frames'] == frames
  assert scores['levels']['gym:CartPole-v1']['num_episodes'] == 4


def test_a_flag_that_is_given_wins_and_is_told(scripted, run_main, caplog):
  logdir, _ = scripted
  result = run_main(f'--logdir={logdir}', '--mode=test', '--seed=11',
                    '--test_num_episodes=2')
  assert result.code == 0, result
  assert 'Differs from the run: seed was 3, is now 11' in caplog.text
  scores = json.loads((logdir / 'test_scores.json').read_text())
  assert scores['levels']['gym:CartPole-v1']['num_episodes'] == 2


@pytest.mark.parametrize('mode', ['train', 'test', 'export'])
def test_what_cannot_change_is_refused(scripted, run_main, mode):
  logdir, _ = scripted
  before = _contents(logdir)
  error = _error_of(run_main(
      f'--logdir={logdir}', f'--mode={mode}', '--level_name=pong'))
  assert f'--logdir={logdir} holds a run with level_name=gym:CartPole' in error
  assert _contents(logdir) == before


def test_a_resume_needs_no_other_flag(scripted, run_main, caplog):
  """It goes on with the run's settings, and with what the user changes."""
  logdir, _ = scripted
  before = test_experiment._config(logdir)
  evaluated = _rows(logdir)
  result = run_main(f'--logdir={logdir}', '--total_environment_frames=7000')
  assert result.code == 0, result
  after = test_experiment._config(logdir)
  assert after == dict(before, total_environment_frames=7000)
  assert 'total_environment_frames was 6400, is now 7000' in caplog.text
  assert test_experiment._frames(logdir)[-1] >= 7000
  # All evaluations were done, and none is due before 9000.
  assert _rows(logdir) == evaluated
