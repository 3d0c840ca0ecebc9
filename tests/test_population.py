"""The program that trains a population, with real processes."""

import dataclasses
import json
import os
import subprocess
import sys
import types

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import config as config_lib
from scalable_agent import population
from scalable_agent.checkpoints import checkpoint_files
from scalable_agent.config import flags as config_flags
from scalable_agent.files import locks
from scalable_agent.populations import lineage
from scalable_agent.sweeps import program
from scalable_agent.sweeps import shared_replay
from scalable_agent.sweeps import trials
from tests.studies import trial_runs

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TIMEOUT_SECONDS = 300.
_CARTPOLE = ('--level_name=gym:CartPole-v1', '--score_range=0,500')


def _main(logdir, *arguments):
  """Runs the true `main` in this process."""
  with flagsaver.flagsaver():
    population.main(flags.FLAGS(
        ['population', f'--logdir={logdir}', *arguments]))


def _train_rigged(logdir, *arguments):
  subprocess.run(
      [sys.executable, '-m', 'scalable_agent.population',
       f'--logdir={logdir}', '--population=2', '--parallel=2',
       '--score_range=0,20',
       '--level_name=gym:tests.populations.rigged:Rigged-v0',
       '--num_actors=1', '--batch_size=1', '--unroll_length=5',
       '--environment_threads=1', '--log_interval_secs=0.1', *arguments],
      cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True,
      timeout=_TIMEOUT_SECONDS)


def test_the_worse_takes_over_the_weights_of_the_better(tmp_path):
  """Runs whose returns are 5 and 10 by their seeds, and an evolution each."""
  _train_rigged(tmp_path, '--total_environment_frames=400',
                '--burn_in_frames=1000', '--episodes=60')
  donors = {
      name: (tmp_path / '01' / name).read_bytes()
      for name in ('ckpt-400.index', 'ckpt-400.data-00000-of-00001')}
  # Both have the episodes to evolve at once, and no more than these.
  _train_rigged(tmp_path, '--total_environment_frames=600',
                '--burn_in_frames=0', '--episodes=60')
  lines = (tmp_path / 'evolution.jsonl').read_text().splitlines()
  records = [json.loads(line) for line in lines]
  assert [record['frames'] for record in records] == [0, 0, 400, 400]
  (worse,) = [r for r in records if r['member'] == 0 and r['frames']]
  (better,) = [r for r in records if r['member'] == 1 and r['frames']]
  assert (worse['score'], better['score']) == (25., 50.)
  assert (worse['drawn'], better['drawn']) == (1, 0)
  assert (worse['drawn_score'], worse['donor_frames']) == (50., 400)
  # Nothing is known yet of the weights that the other has just got.
  assert (better['drawn_score'], better['donor_frames']) == (None, None)
  copies = tmp_path / '00' / 'warm_start' / '400'
  assert {name: (copies / name).read_bytes() for name in donors} == donors
  output = (tmp_path / '00' / 'output.log').read_text()
  assert output.count('Weights and slots are those of') == 1
  assert '/warm_start/400/ckpt-400' in output
  for i, record in enumerate((worse, better)):
    logdir = tmp_path / f'{i:02d}'
    assert checkpoint_files.newest_frames(logdir) == 600
    config = json.loads((logdir / 'config.json').read_text())
    assert (config['seed'], config['learning_rate_schedule']) == (
        1 + 1000 * i, 'constant')
    for name, value in record['parameters'].items():
      assert config[name] == value
  assert (tmp_path / 'lineage.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize('arguments, expected', [
    (('--population=1',), '--population=1 cannot work: a member evolves by'),
    (('--warm_start=/x/ckpt-1',), '--warm_start=/x/ckpt-1 cannot work'),
    (('--mode=test',), '--mode=test cannot work'),
    (('--task=0',), '--task=0 cannot work'),
    (('--job_name=replay', '--replay_host=a:1'),
     '--job_name=replay cannot work: each member trains'),
    (('--population=3', '--parallel=2', '--share_replay',
      '--replay_proportion=0.5'),
     '--parallel=2 cannot work: all 3 members that share replay go at the '
     'same time. Set it to 3.'),
    (('--population=3', '--parallel=2', '--replay_host=a:1',
      '--replay_proportion=0.5'), '--parallel=2 cannot work: all 3 members '),
    (('--learning_rate=1',), '--learning_rate is given, and drawn too'),
    (('--range=epsilon=2:1',), '--range=epsilon=2:1 cannot work: it is empty'),
    (('--adapt=gradient_norm_cip',),
     "There is no setting 'gradient_norm_cip' to give, but --adapt names it. "
     'Did you mean gradient_norm_clip?'),
    (('--range=qqq=1:2',),
     "There is no setting 'qqq' to give, but --range names it."),
    (('--adapt=gradient_norm_clip', '--gradient_norm_clip=0'),
     '--adapt=gradient_norm_clip cannot work: gradient_norm_clip starts'),
    (('--adapt=batch_size',), '--adapt=batch_size cannot work'),
    # One change would be within bounds.
    (('--adapt=discounting', '--discounting=0.5'),
     '--adapt=discounting cannot work: factors of 1.2 could make discounting '
     'too large: it has to be in [0, 1].'),
    # Whether weights fit must not change on the way.
    (('--agent=reactor', '--v_min=-10', '--v_max=10', '--adapt=v_max'),
     '--adapt=v_max cannot work: v_max has to stay as it is, since members '
     'copy the weights of each other'),
    (('--turn_secs=nan',), '--turn_secs=nan cannot work'),
    (('--score_range=5,5',), '--score_range=5,5 cannot work'),
    (('--score_range=0,inf',), '--score_range=0,inf cannot work'),
    (('--score_range=',), '--score_range is needed'),
    (('--range=use_lstm=true,false',), 'use_lstm cannot be drawn (--range): '),
    (('--range=warm_start=a,b',), 'warm_start cannot be drawn'),
    (('--range=mode=test,export',), 'mode cannot be drawn'),
    (('--batch_size=0',), '--batch_size=0 cannot work'),
    (('x',), 'Unexpected arguments: x')])
def test_errors_are_one_line(tmp_path, arguments, expected):
  with pytest.raises(SystemExit) as error:
    _main(tmp_path / 'new', *_CARTPOLE, *arguments)
  assert str(error.value).startswith(f'Error: {expected}')
  assert '\n' not in str(error.value)
  assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize('level, adapted', [
    (_CARTPOLE, []), (('--level_name=atari57',), ['gradient_norm_clip']),
    (('--level_name=pong', '--agent=reactor', '--score_range=-21,21'), [])])
def test_what_is_adapted_is_the_papers_choice_for_the_suite(
    tmp_path, monkeypatch, level, adapted):
  for module, name in ((program, 'carry_out'),
                       (lineage, 'write')):
    monkeypatch.setattr(module, name, lambda *args, **kwargs: None)
  _main(tmp_path, *level, '--population=2')
  with open(tmp_path / 'evolution.jsonl') as f:
    starts = [json.loads(line) for line in f]
  assert [sorted(start['parameters']) for start in starts] == [
      sorted(['entropy_cost', 'learning_rate', 'epsilon', *adapted])] * 2
  if adapted:
    assert {start['parameters']['gradient_norm_clip'] for start in starts} == {
        40.}


def test_a_population_is_trained_by_one_program(tmp_path):
  lock = locks.acquire(str(tmp_path / 'population.lock'))
  with pytest.raises(SystemExit, match='is in use'):
    _main(tmp_path, *_CARTPOLE)
  os.close(lock)


def test_members_share_a_replay_job(tmp_path, monkeypatch):
  monkeypatch.setattr(
      lineage, 'write', lambda *args, **kwargs: None)
  checked, commands = [], []
  monkeypatch.setattr(
      shared_replay.SharedReplay, 'check',
      lambda job: checked.append(job))  # pylint: disable=unnecessary-lambda

  def carry_out(runs, *unused_args, on_poll, **unused_hooks):
    on_poll()
    for run in runs:
      os.makedirs(run.logdir)
      commands.append(run._prepare())

  monkeypatch.setattr(program, 'carry_out', carry_out)
  monkeypatch.setattr(
      trials.machine_memory, 'free_bytes', lambda: 3 * 10**9)
  _main(tmp_path, *_CARTPOLE, '--population=2', '--share_replay',
        '--replay_proportion=0.5', '--replay_capacity=77', '--parallel=7')
  (job,) = checked
  assert '--replay_capacity=77' in job._run._prepare()
  # No more go at the same time than there are.
  assert '--replay_agents=2' in job._run._prepare()
  hosts = {[a for a in command if a.startswith('--replay_host=')][-1]
           for command in (*commands, job._run._prepare())}
  assert len(commands) == 2 and len(hosts) == 1
  with pytest.raises(
      SystemExit, match='unroll_length is [13]0 in one run and [13]0'):
    _main(tmp_path / 'other', *_CARTPOLE, '--population=8', '--parallel=8',
          '--share_replay', '--replay_proportion=0.5',
          '--range=unroll_length=10,30', '--adapt=learning_rate')
  # The job has half of the memory, and the members share the other half.
  assert '--memory_gb=1.500000' in job._run._prepare()
  assert '--memory_gb=0.750000' in commands[0]


def test_a_directory_that_cannot_be_is_refused():
  with pytest.raises(SystemExit, match=(
      '^Error: --logdir=/dev/null/x cannot be written: Not a directory.$')):
    _main('/dev/null/x', *_CARTPOLE)


def test_another_population_is_refused(tmp_path, monkeypatch):
  for module, name in ((program, 'carry_out'),
                       (lineage, 'write')):
    monkeypatch.setattr(module, name, lambda *args, **kwargs: None)
  _main(tmp_path, *_CARTPOLE, '--population=4')
  before = (tmp_path / 'evolution.jsonl').read_bytes()
  _main(tmp_path, *_CARTPOLE, '--population=4')
  for changed in ('--population=3', '--population=5', '--sample_seed=2',
                  '--adapt=gradient_norm_clip'):
    with pytest.raises(SystemExit, match='population of another size, or with'):
      _main(tmp_path, *_CARTPOLE, '--population=4', changed)
  assert (tmp_path / 'evolution.jsonl').read_bytes() == before


def _resume(monkeypatch, tmp_path, *arguments):
  """Returns the `members.Population` that the program would train."""
  found = []
  monkeypatch.setattr(lineage, 'write', lambda *args: None)
  monkeypatch.setattr(
      program, 'carry_out',
      lambda *args, rank, **hooks: found.append(rank.__self__))
  _main(tmp_path, '--level_name=gym:CartPole-v1', '--population=2', *arguments)
  return found[0]


@pytest.mark.parametrize('level, num_levels', [
    ('dmlab30', 30), ('atari57', 57)])
def test_episodes_have_to_be_enough_for_a_score(
    tmp_path, monkeypatch, level, num_levels):
  """That of a suite takes all levels, that of --score_range what there is."""
  few = f'--episodes={num_levels - 1}'
  with pytest.raises(SystemExit) as error:
    _resume(monkeypatch, tmp_path, f'--level_name={level}', few)
  assert str(error.value) == (
      f'Error: {few} cannot work: --level_name={level} has {num_levels} '
      'levels, and a score takes episodes of each, so that no member would '
      f'have one and evolve. Set it well above {num_levels}, or give '
      '--score_range.')
  assert not (tmp_path / 'population.json').exists()
  _resume(monkeypatch, tmp_path, f'--level_name={level}', few,
          '--score_range=0,500')
  _resume(monkeypatch, tmp_path / 'enough', f'--level_name={level}',
          f'--episodes={num_levels}')


def test_who_never_evolves_is_told(tmp_path, monkeypatch, caplog):
  for frames, expected in ((10_000_000, True), (9_999_999, False)):
    caplog.clear()
    _resume(monkeypatch, tmp_path / str(frames), '--score_range=0,500',
            f'--burn_in_frames={frames}')
    assert [text for text in caplog.messages if 'evolve' in text] == [
        '--burn_in_frames=10000000 is not below '
        '--total_environment_frames=10000000: no member will evolve. Lower the '
        'one or raise the other.'] * expected


def test_what_is_not_given_stays_as_the_population_has_it(
    tmp_path, monkeypatch, caplog):
  """By the defaults nobody would evolve any more."""
  _resume(monkeypatch, tmp_path, '--burn_in_frames=50000', '--episodes=1',
          '--adapt=learning_rate', '--score_range=0,500')
  for arguments, episodes, score in (
      ([], 1, 20.), (['--episodes=2', '--score_range=0,200'], 2, 50.),
      ([], 2, 50.)):
    caplog.clear()
    resumed = _resume(monkeypatch, tmp_path, *arguments)
    assert (resumed.burn_in_frames, resumed.episodes, resumed.adapt) == (
        50_000, episodes, ['learning_rate'])
    assert resumed.fitness([types.SimpleNamespace(
        level='gym:CartPole-v1', episode_return=100.)]) == score
    assert [text for text in caplog.messages if 'so far' in text] == (
        arguments and [
            '--episodes=2 is given, and it was 1 so far.',
            "--score_range=0,200 is given, and it was ['0', '500'] so far."])


def test_a_population_of_an_earlier_version_goes_on(tmp_path, monkeypatch):
  """It has no file of its settings."""
  given = '--burn_in_frames=50000', '--score_range=0,500'
  _resume(monkeypatch, tmp_path, *given)
  (tmp_path / 'population.json').unlink()
  assert _resume(monkeypatch, tmp_path, *given).burn_in_frames == 50_000
  assert _resume(monkeypatch, tmp_path).burn_in_frames == 50_000


@pytest.mark.parametrize('text', [
    '{', '[]', '{}', '{"burn_in_frames": -1}', '{"burn_in_frames": null}'])
def test_damaged_settings_are_refused_in_one_line(
    tmp_path, monkeypatch, text):
  (tmp_path / 'population.json').write_text(text)
  with pytest.raises(SystemExit, match='^Error: .*population.json cannot be '
                     'read .*Repair it, or choose another --logdir.$') as error:
    _resume(monkeypatch, tmp_path, '--score_range=0,500')
  assert '\n' not in str(error.value)


def test_what_was_refused_may_start_otherwise(tmp_path, monkeypatch):
  """A share that cannot be of a batch is drawn for the second member alone."""
  for module, name in ((program, 'carry_out'),
                       (lineage, 'write')):
    monkeypatch.setattr(module, name, lambda *args, **kwargs: None)
  given = (*_CARTPOLE, '--population=2', '--batch_size=8',
           '--adapt=learning_rate')
  with pytest.raises(SystemExit, match='^Error: --replay_proportion=0.3 '):
    _main(tmp_path, *given, '--range=replay_proportion=0,0.3')
  _main(tmp_path, *given, '--range=replay_proportion=0,0.5')
  assert len((tmp_path / 'evolution.jsonl').read_text().splitlines()) == 2


def test_a_flag_that_is_left_out_makes_another_population(
    tmp_path, monkeypatch):
  """Members that have not begun would have the default of today."""
  for module, name in ((program, 'carry_out'),
                       (lineage, 'write')):
    monkeypatch.setattr(module, name, lambda *args, **kwargs: None)
  given = (*_CARTPOLE, '--population=2', '--discounting=0.5')
  _main(tmp_path, *given)
  with flagsaver.flagsaver():
    flags.FLAGS(['population', *given])
    # What evolves, and where the weights come from, is another at each start.
    config = dataclasses.asdict(config_lib.resolve(config_flags.given(dict(
        seed=1001, learning_rate_schedule='constant', learning_rate=1e-4,
        epsilon=.5, entropy_cost=1., warm_start='/x/ckpt-1'))))
  trial_runs.write(
      tmp_path, '01', [1.], total=config.pop('total_environment_frames'),
      level=config.pop('level_name'), **config)
  for suffix in 'index', 'data-00000-of-00001':
    (tmp_path / '01' / f'ckpt-1000.{suffix}').touch()
  _main(tmp_path, *given)
  with pytest.raises(SystemExit, match='^Error: --discounting=.* cannot work: '
                     f'{tmp_path}/01 was begun with 0.5. '):
    _main(tmp_path, *_CARTPOLE, '--population=2')
