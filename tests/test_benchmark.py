"""The benchmark as its users start it, on tiny numbers, and its judgement."""

import json
import os
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest
import tensorflow as tf

from scalable_agent import benchmark
from scalable_agent import config as config_lib
from scalable_agent import learner as learner_lib
from scalable_agent import policy as policy_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.files import whole_file
from scalable_agent.machine import cores as machine_cores
from scalable_agent.throughput import batch_sizes
from scalable_agent.throughput import bottleneck
from scalable_agent.throughput import comparison as comparison_lib
from scalable_agent.throughput import plan_costs

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_RATES = ('environments', 'inference', 'learner', 'data_path', 'ideal', 'whole')
_RATIOS = ('efficiency', 'environment_utilisation')
_DISTRIBUTIONS = ('queue_size', 'inference_batch', 'policy_lag')
_STAGES = {'actor_environments', 'actor_unrolls', 'actor_queue',
           'actor_inference', 'learner_wait', 'learner_step', 'learner_publish'}


def _run(*arguments):
  return subprocess.run(
      [sys.executable, '-m', 'scalable_agent.benchmark', *arguments],
      cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
      timeout=300)


def _main(*arguments):
  """Runs the true `main` in this process."""
  with flagsaver.flagsaver():
    benchmark.main(flags.FLAGS(['benchmark', *arguments]))


def _check_whole(figures):
  """The schema of what the loop's measurement says."""
  assert figures['whole'] > 0
  assert 0 < figures['cores'] <= os.cpu_count() + .5
  assert figures['memory_mib'] > 50
  assert set(figures['times']) >= _STAGES
  assert all(0 <= share < 20 for share in figures['times'].values())
  for name in _DISTRIBUTIONS:
    values = figures[name]
    assert set(values) == {'min', 'mean', 'max', 'counts'}
    assert values['min'] <= values['mean'] <= values['max']
    assert sum(values['counts'].values()) > 0
    assert {values['min'], values['max']} <= {int(x) for x in values['counts']}


def _check_machine(machine):
  assert set(machine) == {'cores', 'gpus', 'tensorflow'}
  assert machine['cores'] >= 1 and isinstance(machine['gpus'], list)


def test_measures_all_parts_and_the_whole(tmp_path):
  path = tmp_path / 'figures.json'
  result = _run(
      '--level_name=gym:CartPole-v1', '--num_actors=8', '--batch_size=4',
      '--measure_secs=0.5', f'--json={path}')
  assert result.returncode == 0, result.stderr[-2000:]
  figures = json.loads(path.read_text())
  assert set(figures) == {
      *_RATES, *_RATIOS, *_DISTRIBUTIONS, 'cores', 'memory_mib', 'times',
      'bottleneck', 'core_seconds', 'inference_by_batch',
      'inference_core_seconds', 'machine', 'config'}
  assert set(figures['core_seconds']) == {
      'environments', 'inference', 'learner', 'data_path'}
  assert all(0 < cost < .1 for cost in figures['core_seconds'].values())
  assert all(figures[name] > 0 for name in _RATES + _RATIOS)
  parts = [figures[name] for name in ('environments', 'inference', 'learner')]
  assert figures['ideal'] == pytest.approx(1 / sum(1 / x for x in parts))
  assert figures['efficiency'] == pytest.approx(
      figures['whole'] / figures['ideal'])
  assert figures['environment_utilisation'] == pytest.approx(
      figures['whole'] / figures['environments'])
  assert list(figures['inference_by_batch']) == ['1', '2', '4', '8']
  assert figures['inference_core_seconds'].keys() == figures[
      'inference_by_batch'].keys()
  assert figures['config']['level_name'] == 'gym:CartPole-v1'
  _check_whole(figures)
  _check_machine(figures['machine'])
  assert figures['inference_batch']['max'] <= 8
  assert figures['queue_size']['max'] <= figures['config']['queue_capacity']
  for name in (*_RATES, *_RATIOS, 'cores', 'memory', *_DISTRIBUTIONS):
    assert f'\n{name} ' in '\n' + result.stdout
  assert figures['bottleneck'] in result.stdout


def test_measures_reactor(tmp_path, caplog):
  """With priorities, in the parts alone and in the whole."""
  path = tmp_path / 'figures.json'
  _main(
      '--agent=reactor', '--level_name=gym:CartPole-v1', '--v_min=0',
      '--v_max=100', '--num_actors=2', '--batch_size=2', '--unroll_length=4',
      '--replay_steps=2000', '--replay_min_steps=50', '--measure_secs=0.3',
      f'--json={path}')
  figures = json.loads(path.read_text())
  assert all(figures[name] > 0 for name in _RATES + _RATIOS)
  _check_whole(figures)
  assert {'replay_draw', 'replay_add', 'replay_update'} <= set(figures['times'])
  assert 'of reactor on gym:CartPole-v1' in caplog.text


def test_compares_the_architectures_of_table_1(tmp_path, capsys, caplog):
  path = tmp_path / 'figures.json'
  _main(
      '--compare', '--compare_levels=synthetic:step_ms=2;std=0.5;size=4,'
      'gym:CartPole-v1', '--num_actors=4', '--batch_size=4',
      '--unroll_length=5', '--measure_secs=0.3', f'--json={path}')
  # How long training would take is no concern of a benchmark.
  assert ' left, ' not in caplog.text
  printed = capsys.readouterr().out
  comparison = json.loads(path.read_text())
  assert set(comparison) == {'levels', 'machine'}
  _check_machine(comparison['machine'])
  assert list(comparison['levels']) == [
      'synthetic:step_ms=2,std=0.5,size=4', 'gym:CartPole-v1']
  for rows in comparison['levels'].values():
    assert [(row['name'], row['architecture']) for row in rows] == [
        row[:2] for row in comparison_lib.ARCHITECTURES]
    for row in rows:
      assert row['environment_utilisation'] > 0
      assert row['name'] in printed
      assert f'Measuring {row["name"]} on ' in caplog.text
      _check_whole(row)
      if row['architecture'] != 'impala':
        assert row['policy_lag']['max'] == 0
    batches = [row['inference_batch'] for row in rows]
    assert batches[0]['min'] == batches[0]['max'] == 4  # Step by step.
    assert batches[2]['max'] == 1  # Without dynamic batching.


_CORE_SECONDS = dict(
    environments=1e-4, inference=2e-4, data_path=3e-5, learner=4e-4)


# Of the loop, on two cores: 3/2 of what the parts take alone.
_WHOLE = dict(cores=1.46, whole=1.46 / (1.5 * 7.3e-4))


def _plan(monkeypatch, *arguments):
  """A plan by costs that are known, but for the transport."""
  monkeypatch.setattr(
      plan_costs.parts, 'measure_parts',
      lambda unused_config, unused_seconds, sizes: dict(
          core_seconds=_CORE_SECONDS, inference_core_seconds={
              str(size): 2e-3 / size for size in sizes}))
  monkeypatch.setattr(
      plan_costs.loop, 'measure_loop', lambda *unused: _WHOLE)
  monkeypatch.setattr(machine_cores, 'count', lambda: 2)
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '0')
  with flagsaver.flagsaver():
    flags.FLAGS(['benchmark', '--plan', '--measure_secs=0.2', *arguments])
    return benchmark._plan(config_lib.resolve(config_flags.given()))


def test_plans_a_cluster(monkeypatch, capsys):
  plan = _plan(
      monkeypatch, '--cores=50', '--gpus=1', '--level_name=synthetic:step_ms=1',
      '--batch_size=2', '--unroll_length=5', '--network=shallow')
  assert json.loads(json.dumps(plan)) == plan
  assert plan['cluster']['frames_per_update'] == 2 * 5
  assert plan['cluster']['unrolls_at_once'] == 1
  assert {name: plan['costs'][name] for name in (
      'environments', 'inference', 'unrolls', 'update')} == dict(
          environments=1e-4, inference=2e-3, unrolls=3e-5, update=4e-4)
  assert all(cost > 0 for cost in plan['costs']['transport'].values())
  assert plan['costs']['together'] == pytest.approx(1.5)
  assert plan['costs']['busy'] == pytest.approx(.73)
  assert plan['limits'].pop('GPUs') is None
  # Less than without what passes between the jobs.
  assert 0 < plan['limits']['cores'] < .73 * 50 / (1.5 * 2.13e-3)
  lowest = min(plan['limits'].values())
  assert f'It would reach {lowest:,.0f} frames/s.' in capsys.readouterr().out


def test_a_plan_sends_stacks_as_single_frames(monkeypatch):
  """And all environments of an actor job on Atari begin unrolls at once."""
  plan = _plan(monkeypatch, '--level_name=pong', '--envs_per_actor=16',
               '--num_pools=2', '--batch_size=2', '--unroll_length=20',
               '--gpus=3', '--network=shallow')
  frames = (20 + 4) * 84 * 84
  assert frames < plan['costs']['transport']['unroll_bytes'] < 1.05 * frames
  assert plan['cluster']['unrolls_at_once'] == 8
  # A pool of a job acts for that many at once, and not those of one machine.
  assert plan['costs']['inference'] == pytest.approx(2e-3 / 8)
  # The batch is that of all learners.
  assert plan['cluster']['frames_per_update'] == 2 * 20 * 4


def test_a_plan_sends_the_weights_of_the_network(monkeypatch):
  # Without the calls, whose costs are others.
  figures = plan_costs.transport._Figures(*[1e-5] * 6)
  monkeypatch.setattr(plan_costs.transport, '_measure',
                      lambda *unused: (dict(ours=figures), 0))
  found = [
      _plan(monkeypatch, '--level_name=synthetic:step_ms=1', '--batch_size=2',
            '--unroll_length=5', '--network=shallow',
            f'--channel_multiplier={times}')['costs']['transport']
      for times in (1, 4)]
  assert found[1]['weights_bytes'] > 3 * found[0]['weights_bytes']


@pytest.mark.parametrize('arguments', [
    ('--inference=learner',), ('--architecture=a2c_sync_step',),
    ('--agent=reactor',)])
def test_plans_are_of_impala_with_the_policy_at_the_actors(
    monkeypatch, arguments):
  with pytest.raises(config_lib.ConfigError, match='cannot be planned: --plan'):
    _plan(monkeypatch, '--level_name=pong', *arguments)


def test_plans_only_actor_jobs_that_could_be(monkeypatch):
  with pytest.raises(config_lib.ConfigError, match=(
      '^--envs_per_actor=1 cannot work: it has to be a multiple of '
      '--num_pools=2.$')):
    _plan(monkeypatch, '--level_name=pong', '--num_pools=2')
  with pytest.raises(config_lib.ConfigError, match='^--pool_batch_size=8 '):
    _plan(monkeypatch, '--level_name=pong', '--envs_per_actor=4',
          '--pool_batch_size=8')


@pytest.mark.parametrize('values, count', [
    (dict(level_name='pong'), 8), (dict(level_name='pong', num_pools=2), 4),
    (dict(level_name='pong', pool_batch_size=2), 2),
    (dict(level_name='gym:CartPole-v1'), 1)])
def test_unrolls_begin_where_environments_step_together(values, count):
  config = config_lib.resolve(dict(values, envs_per_actor=8))
  assert plan_costs.unrolls_begun_at_once(config) == count


def test_a_plan_measures_without_a_gpu(monkeypatch):
  """Actor jobs act on cores."""
  seen = []
  monkeypatch.setattr(
      plan_costs.transport, 'measure_costs',
      lambda *unused: seen.append(os.environ['CUDA_VISIBLE_DEVICES']) or
      plan_costs.transport.Costs(*[1e-5] * 4, 1000, 1000))
  _plan(monkeypatch, '--level_name=pong')
  assert seen == ['-1']


def test_plans_only_what_has_images(monkeypatch):
  with pytest.raises(config_lib.ConfigError, match='--plan measures unrolls'):
    _plan(monkeypatch, '--level_name=gym:CartPole-v1')


@pytest.mark.parametrize('arguments, answer', [
    (['--level_name=pogn'], 'Did you mean pong'),
    (['level_name=pong'], 'Unexpected arguments: level_name=pong'),
    (['--json=/nonexistent/x.json'],
     '--json=/nonexistent/x.json cannot be written'),
    (['--level_name=pong', '--task=0'], 'leave --mode, --task and --job_name'),
    (['--plan', '--level_name=pong', '--mode=test'], 'leave --mode, --task'),
    (['--part=learner', '--level_name=pong', '--batch_sizes=0'],
     "--batch_sizes: '0'"),
    (['--part=transport', '--connections=4,x'], "--connections: 'x'"),
    (['--part=transport', '--connections='], '--connections is empty'),
    (['--part=learner', '--level_name=pong', '--policy_batch_sizes='],
     '--policy_batch_sizes is empty'),
    (['--compare', '--compare_levels='], '--compare_levels is empty'),
    (['--plan', '--level_name=pong', '--gpu_rate=1000'],
     '--gpu_rate=1000 cannot work: with --gpus=0 no GPU trains'),
    (['--part=transport', '--unrolls_per_call=0'], "--unrolls_per_call: '0'")])
def test_bad_flags_are_answered_in_one_line(arguments, answer):
  result = _run(*arguments)
  assert result.returncode == 1
  errors = [line for line in result.stderr.splitlines() if 'Error' in line]
  assert len(errors) == 1 and answer in errors[0]
  assert 'Traceback' not in result.stderr


def test_figures_that_cannot_be_written_leave_the_old_ones(
    tmp_path, monkeypatch):
  """The disk may have filled while they were measured."""
  path = tmp_path / 'figures.json'
  path.write_text('old')
  in_the_way = tmp_path / 'temporary'
  monkeypatch.setattr(whole_file, 'temporary_name', lambda _: str(in_the_way))

  def measure(*unused):
    os.mkdir(in_the_way)
    return dict(rate=1.)

  monkeypatch.setattr(benchmark.shared_replay, 'measure_shared_replay', measure)
  with pytest.raises(SystemExit, match=(
      f'^Error: --json={path} cannot be written: Is a directory.$')):
    _main('--part=replay', f'--json={path}')
  assert path.read_text() == 'old'
  os.rmdir(in_the_way)
  monkeypatch.setattr(
      benchmark.shared_replay, 'measure_shared_replay', lambda *_: dict(rate=1))
  _main('--part=replay', f'--json={path}')
  assert json.loads(path.read_text()) == dict(rate=1)


def test_measures_updates_and_the_policy_by_batch_size(tmp_path, capsys):
  path = tmp_path / 'figures.json'
  _main('--part=learner', '--level_name=gym:CartPole-v1', '--num_actors=4',
        '--batch_size=4', '--batch_sizes=2,6', '--policy_batch_sizes=1,8',
        '--measure_secs=.1', f'--json={path}')
  figures = json.loads(path.read_text())
  assert list(figures) == [
      'inference_by_batch', 'learner', 'machine', 'config']
  assert list(figures['learner']) == ['2', '6']
  for row in figures['learner'].values():
    assert row['memory_mib'] is None
    assert all(row[name] > 0 for name in ('alone', 'staged', 'first_update'))
  assert list(figures['inference_by_batch']) == ['1', '8']
  assert all(rate > 0 for rate in figures['inference_by_batch'].values())
  _check_machine(figures['machine'])
  printed = capsys.readouterr().out
  assert 'MiB' not in printed
  for name in ('learner, batch 2 ', 'learner, batch 6 ', 'inference, batch 8 '):
    assert f'\n{name}' in '\n' + printed


def test_what_does_not_fit_on_the_device_leaves_the_other_figures(
    tmp_path, monkeypatch, capsys):
  path = tmp_path / 'figures.json'
  step, act = learner_lib.Learner.step, policy_lib.Policy.__call__
  refusal = tf.errors.ResourceExhaustedError(None, None, 'OOM when allocating')

  def step_if_small(learner, placed):
    if sum(len(part.is_replayed) for part in placed) > 1:
      raise refusal
    return step(learner, placed)

  def act_if_small(policy, last_actions, *args):
    if len(last_actions) > 2:
      raise refusal
    return act(policy, last_actions, *args)

  monkeypatch.setattr(learner_lib.Learner, 'step', step_if_small)
  monkeypatch.setattr(policy_lib.Policy, '__call__', act_if_small)
  _main('--part=learner', '--level_name=gym:CartPole-v1', '--num_actors=2',
        '--batch_sizes=4,1', '--policy_batch_sizes=3,2', '--measure_secs=.05',
        f'--json={path}')
  figures = json.loads(path.read_text())
  assert figures['learner']['4'] is None
  assert figures['learner']['1']['alone'] > 0
  assert figures['inference_by_batch']['3'] is None
  assert figures['inference_by_batch']['2'] > 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(' needs ')[-1] for line in lines[::2]] == [
      'more memory than /cpu:0 has'] * 2


def test_updates_are_measured_at_the_runs_batch_size_by_itself(monkeypatch):
  measured = []
  monkeypatch.setattr(
      batch_sizes, 'measure', lambda configs, *_: measured.extend(configs))
  arguments = ('--part=learner', '--level_name=gym:CartPole-v1')
  _main(*arguments, '--batch_size=6')
  _main(*arguments, '--batch_size=6', '--batch_sizes=3')
  assert [config.batch_size for config in measured] == [6, 3]
  # What it is measured with does not depend on the other sizes.
  measured.clear()
  _main(*arguments, '--batch_size=8', '--batch_sizes=1,64')
  assert len({config.num_actors for config in measured}) == 1


@pytest.mark.parametrize('flag', ['measure_secs', 'gpu_rate', 'network_gbps'])
@pytest.mark.parametrize('value', ['nan', 'inf'])
def test_numbers_that_are_not_finite_are_refused(monkeypatch, flag, value):
  monkeypatch.setattr(benchmark, '_plan', lambda *unused: {})
  with pytest.raises(SystemExit, match=(
      f'^Error: --{flag}={value} cannot work: it has to be finite.$')):
    _main('--plan', '--level_name=pong', f'--{flag}={value}')


@pytest.mark.parametrize('arguments, expected', [
    (('--plan', '--compare'), '--plan and --compare are different'),
    (('--compare', '--part=replay'), '--compare and --part=replay are diff'),
    (('--plan', '--part=transport'), '--plan and --part=transport are diff'),
    (('--level_name=pong', '--gpus=1'), '--gpus is for --plan alone'),
    (('--plan', '--batch_sizes=8'), '--batch_sizes is for --part=learner alone'),
    (('--part=learner', '--compare_levels=pong'), '--compare_levels is for --c'),
    (('--part=learner', '--connections=2'), '--connections is for --part=tran'),
    (('--part=transport', '--drawn=2'), '--drawn is for --part=replay alone'),
    (('--replay_host=a:1', '--replay_proportion=0.5', '--level_name=pong'),
     '--replay_host=a:1 cannot be measured')])
def test_what_would_not_be_measured_is_refused(
    monkeypatch, arguments, expected):
  for name in '_measure', '_plan', '_compare':
    monkeypatch.setattr(benchmark, name, lambda *unused: {})
  monkeypatch.setattr(
      benchmark.shared_replay, 'measure_shared_replay', lambda *_: {})
  monkeypatch.setattr(
      benchmark.transport, 'measure_transport', lambda *_: {})
  with pytest.raises(SystemExit) as error:
    _main(*arguments)
  assert str(error.value).startswith(f'Error: {expected}')
  assert '\n' not in str(error.value)


def test_compares_only_runs_that_train(monkeypatch):
  for name in 'compare', 'show':
    monkeypatch.setattr(comparison_lib, name, lambda *unused: {})
  _main('--compare')
  with pytest.raises(SystemExit, match='leave --mode, --task and --job_name'):
    _main('--compare', '--mode=test')


def test_parts_take_turns_on_a_resource_and_others_run_beside():
  rates = dict(environments=30., inference=60., learner=20.)
  ideal = lambda *resources: bottleneck.ideal_rate(
      rates, dict(zip(rates, resources)))
  assert ideal('cpu', 'cpu', 'cpu') == pytest.approx(10.)
  assert ideal('cpu', '/gpu:0', '/gpu:0') == pytest.approx(15.)
  assert ideal('cpu', 'cpu', '/gpu:0') == pytest.approx(20.)
  assert ideal('cpu', '/gpu:1', '/gpu:0') == pytest.approx(20.)
  assert ideal('sleep', 'cpu', 'cpu') == pytest.approx(15.)


def _figures(cores=1., wait=.5, environments=.3, inference=.3):
  return dict(environments=100., inference=50., learner=200., cores=cores,
              times=dict(learner_wait=wait, actor_environments=environments,
                         actor_inference=inference))


@pytest.mark.parametrize('figures, agent, stated', [
    (_figures(cores=3.9), 'impala', ('CPU', '3.9 of 4', 'inference')),
    (_figures(wait=.01), 'impala', ('The learner', 'Try --batch_size, ')),
    (_figures(wait=.01), 'reactor', (
        'The learner', 'larger --steps_per_update', 'smaller --batch_size')),
    (_figures(environments=.8), 'impala', (
        '0.8 s', 'environments', '--num_actors')),
    (_figures(inference=.7), 'reactor', (
        '0.7 s', 'inference', '--num_pools', '--pool_batch_size'))])
def test_advice_names_what_limits_and_a_flag(figures, agent, stated):
  resources = dict(environments='cpu', inference='cpu', learner='cpu')
  text = bottleneck.advice(figures, resources, agent, 4)
  for part in stated:
    assert part in text
