"""Which module imports which: one way, and no more than a process needs."""

import ast
import graphlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PACKAGE = 'scalable_agent'

# Folders and modules of the package, the lowest first. One imports what is
# below it, or beside it where that makes no circle.
_LAYERS = (
    # The tables of levels are here since environments know their names.
    {'machine', 'process', 'files', 'remote', 'atari57', 'dmlab30'},
    {'environments'},
    {'trajectories', 'frame_stacks', 'vtrace', 'losses', 'rmsprop', 'adam'},
    {'networks', 'algorithms', 'replay', 'suites',
     'dynamic_batching', 'staging', 'actor', 'policy', 'gradients', 'placing',
     'learner', 'a3c', 'published', 'unroll_messages'},
    {'config'},
    {'assembly'},
    {'checkpoints', 'learner_service', 'shared_replay', 'logs', 'training',
     'jobs', 'evaluation', 'results', 'studies', 'throughput', 'sweeps',
     'populations'},
    {'library'},
    {'experiment', 'benchmark', 'report', 'sweep', 'population',
     'sweeps.atari57_experts', 'studies.small_world'})

# What defines and parses flags for the binaries.
_FLAGS = {'config.flags', 'sweeps.flags', 'process.binary'}

# What takes seconds to load, or is not installed everywhere.
_HEAVY = ('tensorflow', 'tensorflow_probability', 'tree', 'ale_py', 'gymnasium')


def _find_modules():
  """Returns a dict of module, without the package's name, to syntax tree."""
  modules = {}
  for path in (_ROOT / _PACKAGE).rglob('*.py'):
    parts = path.relative_to(_ROOT / _PACKAGE).with_suffix('').parts
    if parts[-1] == '__init__':
      parts = parts[:-1]
    modules['.'.join(parts)] = ast.parse(path.read_text())
  return modules


def _imported(tree, modules):
  """Returns the modules of the package that a syntax tree imports, a set.

  Those that functions import are among them, and the packages that any of them
  is in, whose `__init__` runs first.
  """
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, 'This test cannot follow relative imports.'
      names.update(f'{node.module}.{alias.name}' for alias in node.names)
  found = set()
  for name in names:
    first, *parts = name.split('.')
    if first == _PACKAGE:
      found.update('.'.join(parts[:i]) for i in range(1, len(parts) + 1))
  return found & modules.keys()


@pytest.fixture(scope='module', name='modules')
def _modules():
  """What `_find_modules` returns."""
  return _find_modules()


@pytest.fixture(scope='module', name='graph')
def _graph(modules):
  """A dict of module to the set of modules that it imports."""
  return {name: _imported(tree, modules) - {name}
          for name, tree in modules.items() if name}


def _top(module):
  return module.split('.')[0]


def _folder(module, graph):
  """The folder that a module is in; of a module at the top, itself."""
  is_folder = any(other.startswith(f'{module}.') for other in graph)
  return module if is_folder else module.rpartition('.')[0] or module


def _circle(graph):
  """Returns folders that import each other in a circle, a list; or None."""
  folders = {}
  for module, imported in graph.items():
    mine = _folder(module, graph)
    folders.setdefault(mine, set()).update(
        {_folder(other, graph) for other in imported} - {mine})
  try:
    graphlib.TopologicalSorter(folders).prepare()
  except graphlib.CycleError as e:
    return e.args[1]
  return None


def _layer(module):
  for i, layer in enumerate(_LAYERS):
    if module in layer:
      return i
  (found,) = [i for i, layer in enumerate(_LAYERS) if _top(module) in layer]
  return found


def _upward(graph):
  """Returns the imports of a higher layer, a list of pairs of modules."""
  return [(module, other) for module, imported in graph.items()
          for other in imported if _layer(other) > _layer(module)]


def _closure(graph, module):
  """Returns all that importing a module may load, a set, with the module."""
  seen, left = set(), [module]
  while left:
    name = left.pop()
    if name not in seen:
      seen.add(name)
      left.extend(graph[name])
  return seen


def test_every_module_has_a_layer(graph):
  assert len(graph) > 50
  for module in graph:
    _layer(module)


def test_folders_import_each_other_in_no_circle(graph):
  assert _circle(graph) is None


def test_no_module_imports_upwards(graph):
  assert _upward(graph) == []


def test_flags_end_at_the_binaries(modules):
  readers = {
      name for name, tree in modules.items() for node in ast.walk(tree)
      if isinstance(node, ast.ImportFrom) and node.module == 'absl' and
      any(alias.name == 'flags' for alias in node.names)}
  assert readers - _FLAGS - _LAYERS[-1] == set()
  assert _FLAGS < readers


@pytest.mark.parametrize('module, other, makes_circle', [
    ('suites.atari', 'config', True), ('networks.agent', 'config', False),
    ('environments', 'policy', False), ('trajectories', 'actor', True),
    ('results.runs', 'experiment', True)])
def test_imports_that_must_not_be_are_found(graph, module, other, makes_circle):
  """So that the tests above mean something."""
  changed = dict(graph, **{module: graph[module] | {other}})
  assert (_circle(changed) is not None) == makes_circle
  goes_up = _layer(other) > _layer(module)
  assert _upward(changed) == ([(module, other)] if goes_up else [])
  assert makes_circle or goes_up


def test_a_process_imports_in_functions_too(graph):
  assert 'jobs.policy_at_actor' in graph['jobs.actor_job']
  assert 'networks.agent' in _closure(graph, 'jobs.actor_job')
  assert 'learner' in _closure(graph, 'training.loop')


def test_actor_jobs_import_neither_learner_nor_training(graph):
  # The workers of A3C compute the loss.
  of_worker = set(map(_top, _closure(graph, 'jobs.a3c_worker')))
  assert 'algorithms' in of_worker
  assert not of_worker & {'learner', 'training'}
  graph = dict(graph, **{'jobs.a3c_worker': set()})
  jobs = [module for module in graph if _top(module) == 'jobs']
  assert {'jobs.actor_job', 'jobs.policy_at_actor',
          'jobs.policy_at_learner', 'jobs.actor_server'} <= set(jobs)
  for module in jobs:
    folders = set(map(_top, _closure(graph, module)))
    assert not folders & {'learner', 'training', 'algorithms'}, module


def test_the_transport_knows_nothing_of_the_messages_of_a_service(graph):
  modules = {module for module in graph if _top(module) == 'remote'}
  assert {f'remote.{name}' for name in (
      'server', 'link', 'calls', 'connections', 'sessions', 'stream')
         } <= modules
  for module in modules:
    assert set(map(_top, _closure(graph, module))) <= {
        'remote', 'process', 'machine', 'files'}, module
  assert {'learner_service.protocol', 'config'} <= _closure(
      graph, 'learner_service.client')


def test_neither_service_imports_the_other(graph):
  services = {'learner_service', 'shared_replay'}
  for service in services:
    modules = [module for module in graph if _top(module) == service]
    assert f'{service}.service' in modules
    for module in modules:
      found = set(map(_top, _closure(graph, module)))
      assert found & services == {service}, module


def test_test_mode_imports_nothing_of_several_learners(graph):
  assert 'training.collectives' in _closure(graph, 'training.loop')
  assert 'training.collectives' not in _closure(graph, 'evaluation.test_mode')


def _loaded(*modules):
  """Returns which of `_HEAVY` a fresh process loads with modules, a set."""
  program = f'import sys, {", ".join(modules)}\nprint(*sys.modules)'
  result = subprocess.run(
      [sys.executable, '-c', program], check=True, capture_output=True,
      text=True, timeout=300, cwd=_ROOT,
      env=dict(os.environ, PYTHONPATH=str(_ROOT)))
  (line,) = result.stdout.splitlines()
  return set(_HEAVY) & set(line.split())


def test_environments_load_nothing_that_is_heavy():
  for module in ('environments', 'environments.pools.worker', 'suites'):
    assert not _loaded(f'scalable_agent.{module}'), module


def test_the_library_loads_nothing_that_is_heavy_before_it_is_called():
  assert not _loaded('scalable_agent.library')


def test_the_benchmark_loads_no_tensorflow_before_it_measures():
  """Nor do the processes that measure the transport."""
  assert not _loaded('scalable_agent.benchmark') & {
      'tensorflow', 'tensorflow_probability'}


def test_actor_jobs_load_no_tensorflow_for_a_policy_at_the_learner():
  loaded = _loaded('scalable_agent.jobs.actor_job',
                   'scalable_agent.jobs.policy_at_learner')
  assert not loaded & {'tensorflow', 'tensorflow_probability'}


def test_actor_jobs_load_no_probabilities_for_a_policy_of_their_own():
  loaded = _loaded('scalable_agent.jobs.actor_job',
                   'scalable_agent.jobs.policy_at_actor')
  assert 'tensorflow' in loaded and 'tensorflow_probability' not in loaded


@pytest.mark.parametrize('name', _HEAVY)
def test_what_is_heavy_has_its_name(name):
  """What processes load is seen, so that the tests above mean something."""
  assert importlib.util.find_spec(name)
