"""The BUILD files have a target for every file, with what it imports."""

import ast
import glob
import os

import pytest

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGES = sorted(
    os.path.relpath(os.path.dirname(path), _ROOT)
    for path in glob.glob(f'{_ROOT}/scalable_agent/**/BUILD', recursive=True))


def _targets(package):
  """What a BUILD file calls, a dict of target name to keyword arguments."""
  targets = {}

  def add(**kwargs):
    targets[kwargs['name']] = kwargs

  with open(os.path.join(_ROOT, package, 'BUILD')) as f:
    exec(f.read(), dict(  # pylint: disable=exec-used
        py_library=add, pytest_test=add, filegroup=add, glob=lambda p: p,
        load=lambda *unused: None, package=lambda **unused: None))
  return targets


def _label(name):
  """The target of a dotted name of the project's, None of another's."""
  parts = name.split('.')
  while parts:
    path = os.path.join(_ROOT, *parts)
    if os.path.exists(path + '.py'):
      return f'//{"/".join(parts[:-1])}:{parts[-1]}'
    if os.path.exists(os.path.join(path, '__init__.py')):
      return f'//{"/".join(parts)}:{parts[-1]}'
    parts.pop()
  return None


def _imported(path):
  names = set()
  with open(path) as f:
    for node in ast.walk(ast.parse(f.read())):
      if isinstance(node, ast.ImportFrom):
        names |= {f'{node.module}.{alias.name}' for alias in node.names}
      elif isinstance(node, ast.Import):
        names |= {alias.name for alias in node.names}
  return {_label(name) for name in names
          if name.split('.')[0] in ('scalable_agent', 'tests')}


def _full(label, package):
  if label.startswith(':'):
    return f'//{package}{label}'
  return label if ':' in label else f'{label}:{label.rpartition("/")[2]}'


@pytest.mark.parametrize('package', _PACKAGES)
def test_every_module_is_a_library_with_its_imports(package):
  targets = _targets(package)
  name = os.path.basename(package)
  modules = {
      os.path.basename(path)[:-3]: path
      for path in glob.glob(os.path.join(_ROOT, package, '*.py'))}
  modules[name] = modules.pop('__init__')
  assert set(targets) == set(modules)
  for module, path in modules.items():
    assert targets[module]['srcs'] == [os.path.basename(path)]
    # Importing a module runs its package's __init__ first.
    expected = _imported(path) | {f'//{package}:{name}'}
    expected.discard(f'//{package}:{module}')
    deps = {_full(dep, package) for dep in targets[module].get('deps', [])}
    assert deps == expected, module


def test_there_are_packages():
  assert 'scalable_agent' in _PACKAGES and len(_PACKAGES) == 4


def test_every_test_file_is_a_test_with_at_least_its_imports():
  targets = _targets('tests')
  for path in glob.glob(os.path.join(_ROOT, 'tests', 'test_*.py')):
    deps = {_full(dep, 'tests')
            for dep in targets[os.path.basename(path)[:-3]].get('deps', [])}
    assert _imported(path) - {'//tests:tests'} <= deps, path
