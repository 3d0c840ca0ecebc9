"""The program that trains many runs, with real processes."""

import dataclasses
import json
import os
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import psutil
import pytest

from scalable_agent import config as config_lib
from scalable_agent import sweep
from scalable_agent.config import flags as config_flags
from scalable_agent.files import locks
from scalable_agent.results import blocks as blocks_lib
from scalable_agent.studies import document
from scalable_agent.studies import outcomes
from scalable_agent.training import run_config
from tests.studies import trial_runs

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TIMEOUT_SECONDS = 300.
_SHARED = ('--share_replay', '--replay_proportion=0.5')
_RATES = '--vary=learning_rate=0.001,0.002'


def _arguments(logdir, *arguments):
  return ['sweep', f'--logdir={logdir}', '--level_name=gym:CartPole-v1',
          '--batch_size=4', '--num_actors=4', *arguments]


def _main(*arguments):
  """Runs the true `main` in this process."""
  with flagsaver.flagsaver():
    sweep.main(flags.FLAGS(_arguments(*arguments)))


def test_variants_are_trained_and_what_is_done_is_left_alone(tmp_path, capsys):
  arguments = (tmp_path, '--vary=entropy_cost=0.01,0.02', '--parallel=2',
               '--seed=5', '--total_environment_frames=400')
  result = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.sweep',
       *_arguments(*arguments)[1:]], cwd=_ROOT, stdin=subprocess.DEVNULL,
      capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True)
  assert '2 of 2 done' in result.stdout
  for value in (.01, .02):
    logdir = tmp_path / f'entropy_cost={value}'
    config = json.loads((logdir / 'config.json').read_text())
    assert (config['entropy_cost'], config['seed']) == (value, 5)
    assert json.loads((logdir / 'sweep.json').read_text()) == dict(
        variant=[dict(entropy_cost=value)], sample={})
  _main(*arguments)
  assert capsys.readouterr().out == 'All runs are done.\n'


def test_runs_share_a_replay_job_that_ends_with_them(tmp_path):
  result = subprocess.run(
      [sys.executable, '-m', 'scalable_agent.sweep', *_arguments(
          tmp_path, '--share_replay', '--vary=learning_rate=0.001,0.002',
          '--parallel=2', '--replay_proportion=0.5', '--replay_capacity=30',
          '--intra_op_threads=1', '--log_interval_secs=0.1',
          '--total_environment_frames=4000')[1:]],
      cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=_TIMEOUT_SECONDS, check=True)
  assert '2 of 2 done' in result.stdout
  for rate in .001, .002:
    lines = (tmp_path / f'learning_rate={rate}' / 'metrics.jsonl').read_text()
    shares = [json.loads(line)['replay_others'] for line in lines.splitlines()]
    assert any(.1 < share < .9 for share in shares)
  output = (tmp_path / 'replay_job' / 'output.log').read_text()
  # One of them may have ended by itself.
  assert output.count(' has joined') >= 2 and '30 of 30 unrolls' in output
  assert 'Traceback' not in output
  for process in psutil.process_iter(['cmdline']):
    assert f'--logdir={tmp_path}/replay_job' not in (
        process.info['cmdline'] or [])


def _do_nothing(*unused_args, **unused_hooks):
  pass


def test_the_replay_job_knows_how_many_runs_will_come(tmp_path, monkeypatch):
  jobs = []
  monkeypatch.setattr(
      sweep.shared_replay.SharedReplay, 'check',
      lambda job: jobs.append(job))  # pylint: disable=unnecessary-lambda
  monkeypatch.setattr(sweep.program, 'finish',
                      lambda *args, on_poll, **hooks: on_poll())
  _main(tmp_path, '--vary=learning_rate=0.001,0.002,0.003', *_SHARED,
        '--parallel=9')
  (job,) = jobs
  assert '--replay_agents=3' in job._run._prepare()


def test_the_replay_job_and_the_runs_share_the_memory(tmp_path, monkeypatch):
  monkeypatch.setattr(
      sweep.trials_lib.machine_memory, 'free_bytes', lambda: 6 * 10**9)
  jobs, commands = [], []
  monkeypatch.setattr(
      sweep.shared_replay.SharedReplay, 'check',
      lambda job: jobs.append(job))  # pylint: disable=unnecessary-lambda

  def finish(runs, *unused_args, on_poll, **unused_hooks):
    on_poll()
    for run in runs:
      os.makedirs(run.logdir)
      commands.append(run._prepare())

  monkeypatch.setattr(sweep.program, 'finish', finish)
  _main(tmp_path, '--vary=learning_rate=0.001,0.002,0.003', *_SHARED,
        '--parallel=3')
  assert '--memory_gb=3.000000' in jobs[0]._run._prepare()
  assert len(commands) == 3
  assert all('--memory_gb=1.000000' in command for command in commands)


def test_runs_that_share_replay_have_seeds_of_their_own(tmp_path, monkeypatch):
  """Or they would begin as copies of each other, in the same environments."""
  found = []

  def finish(runs, *unused_args, **unused_hooks):
    for run in runs:
      os.makedirs(run.logdir, exist_ok=True)
      found.append((run.name, [
          argument for argument in run._prepare()
          if argument.startswith('--seed=')][-1]))

  monkeypatch.setattr(sweep.program, 'finish', finish)
  arguments = (tmp_path, _RATES, *_SHARED, '--parallel=2', '--seed=7')
  _main(*arguments)
  expected = [('learning_rate=0.001', '--seed=7'),
              ('learning_rate=0.002', '--seed=1007')]
  assert found == expected
  found.clear()
  _main(*arguments, '--only=learning_rate=0.002')
  assert found == expected[1:]


def test_runs_can_have_the_seeds_of_runs_that_share_replay(
    tmp_path, monkeypatch):
  """Each of --seeds is a sweep, and each condition has the same seeds."""
  found = {}

  def finish(runs, *unused_args, **unused_hooks):
    for run in runs:
      os.makedirs(run.logdir)
      seed = [argument for argument in run._prepare()
              if argument.startswith('--seed=')][-1]
      mark = json.loads((tmp_path / run.name / 'sweep.json').read_text())
      found[run.name] = seed, mark['sweep_seed']

  monkeypatch.setattr(sweep.program, 'finish', finish)
  _main(tmp_path, '--vary=replay_proportion=0,0.5', _RATES, '--own_seeds',
        '--seeds=2', '--seed=7')
  assert found == {
      f'replay_proportion={share}_learning_rate={rate}_seed={seed}': (
          f'--seed={seed + 1000 * i}', seed)
      for share in (0.0, 0.5) for i, rate in enumerate((.001, .002))
      for seed in (7, 8)}


def test_runs_share_the_gpus_as_they_need_them(tmp_path, monkeypatch):
  """One that has not two for itself would fail."""
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '0,1,2,3')
  found = []
  monkeypatch.setattr(sweep.program, 'finish', lambda *args, environs, **hooks:
                      found.append(environs))
  for parallel, expected in (2, ['0,1', '2,3']), (4, [None] * 4):
    _main(tmp_path, f'--parallel={parallel}', '--vary=num_learner_devices=1,2')
    assert [each.get('CUDA_VISIBLE_DEVICES')
            for each in found.pop()] == expected


def test_runs_share_the_memory_out_unless_the_user_does(tmp_path, monkeypatch):
  """No more of them than go at the same time, and no less than all of it."""
  monkeypatch.setattr(
      sweep.trials_lib.machine_memory, 'free_bytes', lambda: 6 * 10**9)
  commands = []

  def finish(runs, *unused_args, **unused_hooks):
    for run in runs:
      os.makedirs(run.logdir, exist_ok=True)
    commands.append(runs[0]._prepare())

  monkeypatch.setattr(sweep.program, 'finish', finish)
  for flags_, expected in (
      (('--parallel=2',), ['--memory_gb=3.000000']),
      (('--parallel=9',), ['--memory_gb=2.000000']), ((), []),
      (('--parallel=2', '--memory_gb=5.0'),
       ['--memory_gb=3.000000', '--memory_gb=5.0'])):
    _main(tmp_path, '--vary=learning_rate=0.001,0.002,0.003', *flags_)
    # Of two flags of one name the last wins.
    assert [argument for argument in commands.pop()
            if argument.startswith('--memory_gb')] == expected


def _make_trials(*arguments):
  with flagsaver.flagsaver():
    flags.FLAGS(_arguments(*arguments))
    return sweep.make_trials()


def _names(capsys, *arguments):
  """The runs that a job array would have."""
  _main(*arguments, '--slurm=print')
  script = capsys.readouterr().out
  (line,) = [line for line in script.splitlines() if line.startswith('runs=')]
  return script, line.removeprefix('runs=(').removesuffix(')').split()


def test_the_second_round_has_the_best_of_each_variant(tmp_path, capsys):
  arguments = (tmp_path, '--samples=5', '--vary=policy_lag=0,10',
               '--total_environment_frames=1000')
  trials = _make_trials(*arguments)
  for i, trial in enumerate(trials):
    # Of lag 0 the last samples are the best, of lag 10 the first.
    lag = trial.variant[0]['policy_lag']
    trial_runs.write(tmp_path, trial.name, [float(-i if lag else i)],
                     trial.variant, trial.sample)
  _, names = _names(capsys, *arguments, '--best=2', '--seeds=2', '--seed=7')
  assert sorted(names) == sorted(
      f'policy_lag={lag}_sample={i:02d}_seed={seed}'
      for lag, best in ((0, (3, 4)), (10, (0, 1))) for i in best
      for seed in (7, 8))


def test_the_second_round_of_another_agent(tmp_path, capsys):
  arguments = (tmp_path, '--vary=learning_rate=0.1,0.2', '--agent=reactor',
               '--v_min=0', '--v_max=9', '--total_environment_frames=9000')
  for i, rate in enumerate((.1, .2)):
    trial_runs.write(tmp_path, f'a{i}', [float(i)], [dict(learning_rate=rate)],
                     total=9000, agent='reactor')
  _, names = _names(capsys, *arguments, '--best=1', '--seeds=1', '--seed=7')
  assert names == ['learning_rate=0.2_seed=7']


def test_runs_that_have_not_ended_are_not_the_best(tmp_path, capsys, caplog):
  """Their final return would be that of their beginning."""
  for i, rate in enumerate((.1, .2)):
    trial_runs.write(tmp_path, f'a{i}', [float(i)], [dict(learning_rate=rate)],
                     total=(1000, 500)[i])
  config = tmp_path / 'a1' / 'config.json'
  config.write_text(config.read_text().replace('500', '1000'))
  _, names = _names(capsys, tmp_path, '--vary=learning_rate=0.1,0.2',
                    '--total_environment_frames=1000', '--best=1', '--seeds=1',
                    '--seed=7')
  assert names == ['learning_rate=0.1_seed=7']
  assert '1 of 2 samples have no finished run' in caplog.text
  # Until the other one has ended.
  assert 'from the first if it has 0 samples at the most' in caplog.text


def test_the_report_chooses_what_the_second_round_does(
    tmp_path, capsys, caplog):
  """Neither takes a run that began best, and has not ended."""
  arguments = (tmp_path, '--samples=5', '--total_environment_frames=1000')
  trials = _make_trials(*arguments)
  for i, trial in enumerate(trials):
    trial_runs.write(tmp_path, trial.name, [float(i)] * 10, [], trial.sample)
  unfinished = tmp_path / trials[4].name / 'episodes.csv'
  unfinished.write_text('\n'.join(
      unfinished.read_text().splitlines()[:4]) + '\n')
  again = arguments + ('--best=3', '--seeds=2', '--seed=7')
  _, names = _names(capsys, *again)
  assert 'at the most' not in caplog.text
  assert sorted(names) == [f'sample={i:02d}_seed={seed}'
                           for i in (1, 2, 3) for seed in (7, 8)]
  for name in names:
    trial_runs.write(tmp_path, name, [5.],
                     sample=trials[int(name[7:9])].sample, seed=int(name[-1]))
  blocks = document.build(outcomes.read_all(tmp_path), ['best3'])
  ((_, *row),) = blocks_lib.of_kind(blocks, blocks_lib.Table)[0].rows
  assert row[:5] == ['4', '3', '2', '5', '2']
  text = str(blocks)
  assert 'Runs that have not all of their frames are left out.' in text
  assert (f'1 of 11 runs have not all of their frames: {unfinished.parent}.'
          ) in text


def test_the_second_round_has_seeds_of_its_own(tmp_path):
  """One that the first round had would count twice for its sample."""
  arguments = (tmp_path, '--samples=1', '--total_environment_frames=1000')
  (trial,) = _make_trials(*arguments, '--seed=3')
  trial_runs.write(tmp_path, trial.name, [1.], [], trial.sample, seed=3)
  with pytest.raises(SystemExit, match='^Error: --best=1 cannot work with '
                     '--seed=3, which the first round had'):
    _main(*arguments, '--best=1', '--seeds=2', '--seed=2')


def test_the_second_round_may_name_the_ranges_in_another_order(
    tmp_path, capsys):
  ranges = '--range=learning_rate=0.1:0.2', '--range=epsilon=1:2'
  arguments = tmp_path, '--samples=2', '--total_environment_frames=1000'
  trials = _make_trials(*arguments, *ranges)
  for i, trial in enumerate(trials):
    trial_runs.write(tmp_path, trial.name, [float(i)], [],
                     dict(reversed(trial.sample.items())))
  _, names = _names(
      capsys, *arguments, *ranges, '--best=1', '--seeds=1', '--seed=7')
  assert names == ['sample=01_seed=7']


def test_the_second_round_of_runs_with_seeds_of_their_own(tmp_path, capsys):
  arguments = (tmp_path, '--samples=2', '--total_environment_frames=1000',
               '--own_seeds')
  trials = _make_trials(*arguments)
  assert [trial.seed for trial in trials] == [1, 1001]
  for i, trial in enumerate(trials):
    trial_runs.write(tmp_path, trial.name, [float(i)], [], trial.sample,
                     seed=trial.seed, sweep_seed=trial.sweep_seed)
  again = *arguments, '--best=1', '--seeds=1'
  _, names = _names(capsys, *again, '--seed=7')
  assert names == ['sample=01_seed=7']
  with pytest.raises(SystemExit, match='^Error: --best=1 cannot work with '
                     '--seed=1, which the first round had'):
    _main(*again)


def test_a_run_that_begins_again_with_another_seed_says_so(
    tmp_path, monkeypatch):
  """It had no checkpoint yet, so nothing else knows of its first seed."""
  def finish(runs, *unused_args, **unused_hooks):
    for run in runs:
      os.makedirs(run.logdir, exist_ok=True)
      run._prepare()

  monkeypatch.setattr(sweep.program, 'finish', finish)
  path = tmp_path / 'learning_rate=0.001' / 'sweep.json'
  for arguments, expected in (((), None), (('--own_seeds',), 1),
                              (('--own_seeds', '--seed=4'), 4), ((), None)):
    _main(tmp_path, _RATES, *arguments)
    assert json.loads(path.read_text()).get('sweep_seed') == expected


def test_a_test_leaves_what_says_which_trial_a_run_is(tmp_path, monkeypatch):
  """Its seed is that of the test."""
  path = tmp_path / 'seed=1' / 'sweep.json'
  trial_runs.write(tmp_path, 'seed=1', [1.], sweep_seed=1)
  for suffix in 'index', 'data-00000-of-00001':
    (tmp_path / 'seed=1' / f'ckpt-1000.{suffix}').touch()
  before = path.read_bytes()
  commands = []
  monkeypatch.setattr(sweep.program, 'finish', lambda runs, *_, **__: (
      commands.extend(run._prepare() for run in runs)))
  _main(tmp_path, '--seeds=1', '--mode=test')
  assert '--seed=1' in commands[0] and path.read_bytes() == before


def test_a_second_round_without_the_samples_of_the_first_is_refused(tmp_path):
  arguments = (tmp_path, '--samples=2', '--total_environment_frames=1000')
  trials = _make_trials(*arguments)
  for trial in trials:
    trial_runs.write(tmp_path, trial.name, [1.], [], trial.sample)
  with pytest.raises(SystemExit, match='^Error: --best=1 cannot work: none of '
                     'the best samples in .* Give --sample_seed and'):
    _main(*arguments, '--best=1', '--seeds=1', '--seed=7', '--sample_seed=2')


def test_a_task_of_an_array_runs_what_the_sweep_would(tmp_path, capsys):
  arguments = (tmp_path, '--samples=2', '--variant=policy_lag=3 entropy_cost=1',
               '--variant=policy_lag=4', '--seeds=2', '--range=epsilon=1,2')
  script, expected = _names(capsys, *arguments)
  assert len(expected) == 8
  program = """bash -c 'printf "%s\\n" "$@"' job"""
  result = subprocess.run(
      ['bash'], input=script.replace(sys.executable, program), text=True,
      capture_output=True, check=True,
      env=dict(PATH=os.environ['PATH'], SLURM_ARRAY_TASK_ID='3'))
  printed = result.stdout.splitlines()
  assert printed[:2] == ['-m', 'scalable_agent.sweep']
  assert f'--only={expected[3]}' in printed
  assert '--variant=policy_lag=3 entropy_cost=1' in printed
  with flagsaver.flagsaver():
    flags.FLAGS(['sweep', *printed[2:]])
    assert [trial.name for trial in sweep.make_trials()] == expected


@pytest.mark.parametrize('arguments, expected', [
    ((), 'Nothing varies'),
    (('--vary=policy_lg=0,1',), "There is no setting 'policy_lg' to give, but "
     '--vary names it. Did you mean policy_lag'),
    (('--variant=qqq=2',),
     "There is no setting 'qqq' to give, but --variant names it."),
    (('--samples=2', '--range=qqq=1:2'),
     "There is no setting 'qqq' to give, but --range names it."),
    (('--vary=policy_lag=0,x',), '--policy_lag=x cannot work'),
    (('--vary=policy_lag=0,-1',), '--policy_lag=-1 cannot work'),
    (('--vary=policy_lag=',), '--vary=policy_lag= cannot work: it is empty'),
    (('--samples=2', '--range=epsilon=1:1'), '--range=epsilon=1:1 cannot work'),
    (('--samples=2', '--epsilon=1'), '--epsilon is given for all runs'),
    (('--range=epsilon=1:2', '--seeds=2'), '--range needs --samples'),
    (('--slurm_options=--mem=8G', '--seeds=2'),
     '--slurm_options needs --slurm'),
    (('--seeds=2', '--vary=seed=1,2'), 'seed cannot be varied as other'),
    (('--variant=seed=7',), 'seed cannot be varied as other settings are'),
    (('--samples=2', '--range=seed=1,2'), 'seed cannot be varied as other'),
    (('--samples=2', '--range=learner_hosts=a,b'),
     'learner_hosts cannot be varied by a sweep'),
    (('--seeds=2', '--only=seed=9'), '--only=seed=9 is no run of this sweep'),
    (('--seeds=2', '--only='), '--only= names no run'),
    (('--seeds=2', '--mode=export'), '--mode=export cannot work'),
    (('--seeds=2', '--job_name=replay', '--replay_host=a:1'),
     '--job_name=replay cannot work: each run of a sweep trains'),
    (('--seeds=2', 'seeds'), 'Unexpected arguments: seeds'),
    (('--samples=2', '--best=1'), '--best=1 cannot work: '),
    (('--seeds=2', '--slurm=submit'), '--slurm=submit needs sbatch'),
    ((_RATES, *_SHARED), '--parallel=1 cannot work: all 2 runs that share '
     'replay go at the same time. Set it to 2.'),
    ((_RATES, '--replay_host=a:1', '--replay_proportion=0.5'),
     '--parallel=1 cannot work: all 2 runs that share '),
    ((_RATES, '--share_replay', '--agent=reactor', '--parallel=2'),
     '--share_replay cannot work with --agent=reactor'),
    ((_RATES, *_SHARED, '--parallel=2', '--slurm=print'),
     '--slurm=print cannot work with --share_replay'),
    (('--seeds=1', _RATES, *_SHARED, '--parallel=2'),
     '--seeds=1 cannot work with shared replay: '),
    (('--seeds=2', *_SHARED, '--parallel=2'),
     '--seeds=2 cannot work with shared replay: runs that share replay learn '
     'from each other. Make one sweep for each, with another --seed and '
     '--logdir.'),
    (('--vary=trust_region_threshold=0,0.03', _RATES, *_SHARED, '--parallel=4'),
     'Shared replay cannot work: the sweep compares '
     'trust_region_threshold=0.0 with trust_region_threshold=0.03, and runs '),
    (('--variant=entropy_cost=1', '--variant=discounting=1', *_SHARED),
     'Shared replay cannot work: the sweep compares the others with '
     'discounting=1.0'),
    (('--vary=unroll_length=5,6', *_SHARED, '--parallel=2'),
     'Shared replay cannot work: unroll_length is 5 in one run and 6'),
    (('--seeds=2', _RATES, '--replay_host=a:1', '--replay_proportion=0.5',
      '--slurm=print'), '--seeds=2 cannot work with shared replay: runs '),
    (('--vary=discounting=.9,1', '--replay_host=a:1',
      '--replay_proportion=0.5', '--slurm=print'),
     'Shared replay cannot work: the sweep compares discounting=0.9 with '),
    (('--seeds=2', '--share_replay', '--replay_host=a:1'),
     '--replay_proportion=0.0 cannot work'),
    (('--vary=replay_host=a:1,b:1',), 'replay_host')])
def test_errors_are_one_line(tmp_path, monkeypatch, arguments, expected):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(SystemExit) as error:
    _main(tmp_path / 'new', *arguments)
  assert str(error.value).startswith(f'Error: {expected}')
  assert '\n' not in str(error.value)
  assert not (tmp_path / 'new').exists()


def test_a_directory_that_cannot_be_is_refused_before_any_run():
  with pytest.raises(SystemExit, match=(
      '^Error: --logdir=/dev/null/x cannot be written: Not a directory.$')):
    _main('/dev/null/x', '--seeds=2')


def test_a_directory_of_other_samples_is_refused(tmp_path):
  arguments = (tmp_path, '--samples=1', '--total_environment_frames=1000')
  trial_runs.write(tmp_path, 'sample=00', [1.], [], {'epsilon': 3.})
  with pytest.raises(SystemExit, match='begun with other values'):
    _main(*arguments)


def _begin(logdir, *arguments, runs='--seeds=1'):
  """Writes the only run of a sweep as if it had begun with these flags."""
  with flagsaver.flagsaver():
    flags.FLAGS(_arguments(logdir, runs, *arguments))
    (trial,) = sweep.make_trials()
    directory = logdir / trial.name
    config = dataclasses.asdict(
        run_config.resolve(config_flags.given(dict(
            seed=1, logdir=str(directory)))))
  total = config['total_environment_frames']
  trial_runs.write(logdir, trial.name, [1.], trial.variant, trial.sample,
                   total=total, **{
      name: value for name, value in config.items() if name not in (
          'level_name', 'seed', 'total_environment_frames')})
  for suffix in 'index', 'data-00000-of-00001':
    (directory / f'ckpt-1000.{suffix}').touch()
  return directory


def test_a_sweep_goes_on_with_the_same_agents(tmp_path, monkeypatch):
  """Or runs of two would be compared as one."""
  monkeypatch.setattr(sweep.program, 'finish', _do_nothing)
  logdir = _begin(tmp_path, '--total_environment_frames=1000')
  arguments = (tmp_path, '--seeds=1', '--total_environment_frames=1000')
  _main(*arguments)
  _main(*arguments, '--total_environment_frames=2000', '--num_actors=8',
        '--log_interval_secs=3')
  for changed, was in (('--entropy_cost=0.5', 0.01),
                       ('--total_environment_frames=999', 1000)):
    with pytest.raises(SystemExit, match=f'^Error: {changed} cannot work: '
                       f'{logdir} was begun with {was}. All runs have the'):
      _main(*arguments, changed)


def test_a_run_whose_last_evaluation_was_cut_off_is_not_done(
    tmp_path, monkeypatch):
  found = []
  monkeypatch.setattr(sweep.program, 'finish', lambda runs, *unused_args,
                      **unused_hooks: found.append(runs[0].state))
  arguments = ('--total_environment_frames=1000',
               '--evaluate_every_frames=400')
  logdir = _begin(tmp_path, *arguments)
  _main(tmp_path, '--seeds=1', *arguments)
  (logdir / 'evaluations.csv').write_text('1000,gym:CartPole-v1,9,9\n')
  _main(tmp_path, '--seeds=1', *arguments)
  assert found == ['waiting', 'done']


@pytest.mark.parametrize('total', [1000, 2000])
@pytest.mark.parametrize('begins_elsewhere', [True, False])
def test_what_another_sweep_begins_meanwhile_is_not_gone_on_with(
    tmp_path, monkeypatch, total, begins_elsewhere):
  """Nor taken for done: it is another agent."""
  runs = []
  monkeypatch.setattr(sweep.program, 'finish', lambda found, *unused_args,
                      **unused_hooks: runs.extend(found))
  total = f'--total_environment_frames={total}'
  _main(tmp_path, '--seeds=1', total)
  logdir = _begin(tmp_path, '--entropy_cost=0.5', total)
  (run,) = runs
  if begins_elsewhere:
    lock = locks.acquire(str(logdir / 'launcher.lock'))
    run.start()
    assert run.state == 'elsewhere'
    os.close(lock)
    run.poll()
  if run.state == 'waiting':
    run.start()
  assert (run.state, run.failure()) == (
      'failed', 'cannot be started: --entropy_cost=0.01 cannot work: '
      f'{logdir} was begun with 0.5. All runs have the same flags, but for '
      'what varies. Give those of the first start, or choose another '
      '--logdir.')


def test_agents_that_shared_one_seed_do_not_go_on(tmp_path, monkeypatch):
  """The others would be of another sweep than those that have begun."""
  monkeypatch.setattr(sweep.program, 'finish', _do_nothing)
  _begin(tmp_path, *_SHARED, '--replay_host=localhost:1',
         runs='--vary=learning_rate=0.0006')
  with pytest.raises(SystemExit, match='^Error: --seed=1001 cannot work: .* '
                     'was begun with 1. All runs have the same flags'):
    _main(tmp_path, '--vary=learning_rate=0.002,0.0006', *_SHARED,
          '--parallel=2')


def test_what_others_need_is_named_before_them(tmp_path, monkeypatch):
  """They make no difference without it, though they are as they were."""
  monkeypatch.setattr(sweep.program, 'finish', _do_nothing)
  logdir = _begin(tmp_path, '--replay_proportion=0.5', '--noentropy_on_replay')
  with pytest.raises(SystemExit) as caught:
    _main(tmp_path, '--seeds=1', '--noentropy_on_replay')
  assert str(caught.value).startswith(
      f'Error: --replay_proportion=0.0 cannot work: {logdir} was begun with '
      '0.5. ')


def test_that_replay_was_shared_is_said_by_its_flags(tmp_path, monkeypatch):
  monkeypatch.setattr(sweep.program, 'finish', _do_nothing)
  _begin(tmp_path, *_SHARED, '--replay_host=localhost:1', '--seed=1',
         runs='--vary=learning_rate=0.0006')
  with pytest.raises(SystemExit) as caught:
    _main(tmp_path, '--vary=learning_rate=0.0006', '--replay_proportion=0.5')
  assert str(caught.value).startswith('Error: shares_replay=False cannot work')
  assert str(caught.value).endswith(
      ' shares_replay: Whether replay is shared with other agents '
      '(--replay_host, or --share_replay of a sweep or a population).')


def test_another_seed_is_another_sweep(tmp_path, monkeypatch):
  """Also where no directory is named by it."""
  monkeypatch.setattr(sweep.program, 'finish', _do_nothing)
  runs = '--vary=discounting=0.99'
  logdir = _begin(tmp_path, runs=runs)
  _main(tmp_path, runs, '--seed=1')
  with pytest.raises(SystemExit, match='^Error: --seed=2 cannot work: '
                     f'{logdir} was begun with 1. All runs have the'):
    _main(tmp_path, runs, '--seed=2')


@pytest.mark.parametrize('given, default', [
    ('--entropy_cost=0.5', '--entropy_cost=0.01'),
    ('--total_environment_frames=1000',
     '--total_environment_frames=10000000')])
def test_a_flag_that_is_left_out_makes_another_agent(
    tmp_path, monkeypatch, given, default):
  """The runs that have not begun yet would have its default."""
  monkeypatch.setattr(sweep.program, 'finish', _do_nothing)
  logdir = _begin(tmp_path, given)
  value = given.partition('=')[2]
  with pytest.raises(SystemExit, match=f'^Error: {default} cannot work: '
                     f'{logdir} was begun with {value}. All runs have the'):
    _main(tmp_path, '--seeds=2')
  _main(tmp_path, '--seeds=2', given)
  # Tests take what the runs have.
  _main(tmp_path, '--seeds=2', '--mode=test')


def test_tests_share_nothing(tmp_path, monkeypatch):
  """The flags of training are left, and start no replay job."""
  runs = []
  monkeypatch.setattr(sweep.program, 'finish',
                      lambda found, *unused_args, **unused_hooks: runs.extend(
                          found))
  monkeypatch.setattr(sweep.shared_replay, 'SharedReplay', None)
  arguments = (tmp_path, '--vary=learning_rate=0.001,0.002', *_SHARED)
  for trial, rate in (('learning_rate=0.001', .001),
                      ('learning_rate=0.002', .002)):
    trial_runs.write(tmp_path, trial, [1.], [dict(learning_rate=rate)], {},
                     learning_rate=rate)
    (tmp_path / trial / 'ckpt-8.index').touch()
  _main(*arguments, '--mode=test', '--parallel=1', '--video_dir=/x')
  assert len(runs) == 2
  for run in runs:
    assert not any('--replay_host' in each for each in run._prepare())
    # Nor films, which have the names of levels.
    assert f'--video_dir=/x/{run.name}/videos' == run._prepare()[-1]
  os.remove(tmp_path / 'learning_rate=0.001' / 'ckpt-8.index')
  with pytest.raises(config_lib.ConfigError, match='has no checkpoint'):
    runs[0]._prepare()
