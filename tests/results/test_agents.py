"""Which runs are one agent, what it is called, and its settings."""

import dataclasses

from scalable_agent import config as config_lib
from scalable_agent.results import agents as agents_lib
from scalable_agent.results import published
from scalable_agent.results import runs
from scalable_agent.results import tables
from tests import test_report

_make = test_report.make_run


def _named(tmp_path, **settings_by_name):
  """The names of the runs of each agent, by the agent's name."""
  made = {_make(tmp_path / name, [], **dict(dict(level_name='pong'), **settings)
               ): name
          for name, settings in settings_by_name.items()}
  groups = agents_lib.group(list(map(runs.read, made)))
  return {agent: [made[run.logdir] for run in seeds]
          for agent, seeds in agents_lib.name(groups).items()}


def test_runs_of_an_agent_are_put_together(tmp_path):
  """Runs that differ in level, seed or machine, and in nothing else."""
  assert _named(
      tmp_path, a=dict(seed=1, num_actors=32), b=dict(seed=2, num_actors=64),
      c=dict(level_name='qbert'), d=dict(network='deep', batch_size=8),
      e=dict(level_name='atari57', network='deep', use_lstm=True,
             full_action_set=True)) == {
                 'shallow': ['a', 'b', 'c'], 'deep': ['d'],
                 'deep, LSTM, multi-task': ['e']}


def test_runs_of_a3c_are_of_one_agent_if_they_have_as_many_workers(tmp_path):
  a3c = dict(architecture='a3c', batch_size=1)
  assert _named(
      tmp_path, few=dict(a3c, num_actors=4), again=dict(a3c, num_actors=4),
      many=dict(a3c, num_actors=16), impala=dict(num_actors=16)) == {
          'shallow, architecture=a3c': ['few', 'again'],
          'shallow, architecture=a3c, num_actors=16': ['many'],
          'shallow': ['impala']}
  # Of workers that are jobs nobody knows how many there were.
  assert _named(
      tmp_path / 'jobs', few=dict(a3c, num_actors=4, task=0),
      many=dict(a3c, num_actors=16, task=0)) == {'shallow': ['few', 'many']}


def test_reactor_has_its_name_and_impala_gets_one_beside_it(tmp_path):
  reactor = dict(agent='reactor', network='auto', use_lstm=True)
  assert _named(
      tmp_path, a=dict(network='deep'), b=reactor, c=dict(reactor, seed=2),
      d=dict(reactor, use_lstm=False, network='shallow')) == {
          'IMPALA, deep': ['a'], 'Reactor, LSTM': ['b', 'c'],
          'Reactor, shallow, no LSTM': ['d']}


def test_it_stands_beside_impala_and_what_is_published(tmp_path):
  made = [
      runs.read(_make(tmp_path / 'a', [(10, 'pong', 3.)], level_name='pong')),
      runs.read(_make(tmp_path / 'b', [(10, 'pong', 5.)], level_name='pong',
                      agent='reactor', network='auto', use_lstm=True))]
  header, (row,) = tables.level_table(
      published.ATARI57, agents_lib.name(agents_lib.group(made)), ['pong'])
  cells = dict(zip(header, row))
  assert [cells[name] for name in (
      'IMPALA, shallow', 'Reactor, LSTM', 'Reactor', 'IMPALA, shallow, experts')
         ] == ['3.0', '5.0', '20.7', '20.4']


def test_defaults_of_reactor_say_nothing_of_it(tmp_path):
  reactor = dict(agent='reactor', network='auto', use_lstm=True,
                 **{name: value for name, value in config_lib.defaults(
                     'pong', 'reactor').items()
                    if name not in ('network', 'use_lstm')})
  assert reactor['learning_rate'] == .00005
  assert list(_named(
      tmp_path, a=reactor, b=dict(reactor, retrace_lambda=0.),
      c=dict(reactor, learning_rate=.0006))) == [
          'Reactor, LSTM', 'Reactor, LSTM, retrace_lambda=0',
          'Reactor, LSTM, learning_rate=0.0006']


def test_a_run_without_settings_is_an_agent_of_its_own(tmp_path):
  both = [runs.read(_make(tmp_path / path / 'pong', [])) for path in 'ab']
  other = runs.read(_make(tmp_path / 'c', []))
  assert list(agents_lib.name(agents_lib.group([*both, other]))) == [
      f'pong ({tmp_path}/a/pong)', f'pong ({tmp_path}/b/pong)', 'c']


def test_names_have_as_few_settings_as_it_takes(tmp_path):
  """The one that tells most agents apart; what has the default says nothing."""
  assert list(_named(
      tmp_path, a=dict(batch_size=32, unroll_length=20, decay=.99),
      b=dict(batch_size=16, unroll_length=40, decay=.9),
      c=dict(batch_size=16, unroll_length=80, decay=.9))) == [
          'shallow', 'shallow, unroll_length=40', 'shallow, unroll_length=80']


def test_settings_stand_where_names_would_clash(tmp_path):
  assert list(_named(
      tmp_path, a=dict(learning_rate=.001, entropy_cost=.1),
      b=dict(learning_rate=.001, entropy_cost=.01),
      c=dict(learning_rate=.0006, entropy_cost=.01),
      d=dict(learning_rate=.0006, entropy_cost=.1),
      other=dict(network='deep', learning_rate=.1))) == [
          'shallow, entropy_cost=0.1, learning_rate=0.001',
          'shallow, learning_rate=0.001', 'shallow',
          'shallow, entropy_cost=0.1', 'deep']


def test_names_of_frames_switches_and_own_networks(tmp_path):
  assert list(_named(
      tmp_path, a=dict(total_environment_frames=200_000_000),
      b=dict(total_environment_frames=500_000))) == [
          'shallow', 'shallow, 500k frames']
  assert list(_named(
      tmp_path, c=dict(network='my.torso:Wide'),
      d=dict(network='your.torso:Wide'))) == [
          'Wide, network=my.torso:Wide', 'Wide, network=your.torso:Wide']
  assert list(_named(tmp_path, e=dict(
      level_name='gym:X', network='auto'))) == ['auto network']
  for shapes, text in (([[4]], 'vector'), ([[10, 10, 4]], 'auto network')):
    assert list(_named(tmp_path, **{f'x{text[0]}': dict(
        level_name='gym:X', network='auto',
        observation_shapes=shapes)})) == [text]


def test_runs_with_and_without_replay_are_two_agents(tmp_path):
  assert _named(
      tmp_path, none=dict(replay_proportion=0., replay_capacity=10_000),
      half=dict(replay_proportion=.5, replay_capacity=10_000),
      small=dict(replay_proportion=.5, replay_capacity=1000),
      again=dict(replay_proportion=.5, replay_capacity=1000, seed=2)) == {
          'shallow': ['none'], 'shallow, replay_proportion=0.5': ['half'],
          'shallow, replay_proportion=0.5, replay_capacity=1000':
              ['small', 'again']}


def test_a_capacity_without_replay_makes_no_agent(tmp_path):
  assert _named(
      tmp_path, a=dict(replay_proportion=0., replay_capacity=10_000),
      b=dict(replay_proportion=0., replay_capacity=5)) == {
          'shallow': ['a', 'b']}


def test_runs_from_before_a_setting_have_its_default(tmp_path):
  """Here from before there was replay, lambda and precision."""
  assert _named(
      tmp_path, old=dict(),
      new=dict(replay_proportion=0., replay_capacity=10_000, vtrace_lambda=1.,
               precision='float32'),
      other=dict(vtrace_lambda=.9)) == {
          'shallow': ['old', 'new'], 'shallow, vtrace_lambda=0.9': ['other']}


def test_settings_are_fields_of_the_configuration():
  assert set(agents_lib.SETTINGS) <= {
      field.name for field in dataclasses.fields(config_lib.Config)}


def _read(tmp_path, name, **settings):
  return [runs.read(_make(tmp_path / name, [], level_name='pong', **settings))]


def test_settings_that_differ_stand_before_those_that_all_share(tmp_path):
  differing, shared = agents_lib.settings_tables({
      'a': _read(tmp_path, 'a', learning_rate=.001, replay_proportion=.5),
      'b': _read(tmp_path, 'b', learning_rate=.0006)})
  assert differing.header == ['differs', 'a', 'b']
  rows = {row[0]: row[1:] for row in differing.rows}
  assert rows['learning_rate'] == ['0.001', '0.0006']
  assert rows['replay_capacity'] == ['10000', '–']
  assert {'learning_rate', 'replay_proportion', 'replay_capacity'} <= set(rows)
  rows.update(shared.rows)
  # Those of Reactor are of no agent here.
  assert set(agents_lib.SETTINGS) - set(rows) == {
      name for name, value in agents_lib.settings_of(
          _read(tmp_path, 'c', replay_proportion=.5)[0]).items()
      if value is None}
  assert 'num_atoms' not in rows
  assert dict(shared.rows)['batch_size'] == '32'


def test_settings_of_one_agent_or_of_none(tmp_path):
  (only,) = agents_lib.settings_tables({'a': _read(tmp_path, 'a')})
  assert only.header == ['setting', 'value']
  unknown = [runs.read(_make(tmp_path / 'b', []))]
  assert agents_lib.settings_tables({'b': unknown}) == []
