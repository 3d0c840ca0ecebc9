"""The BUILD files: a library for each folder, with the folders it imports."""

import ast
import glob
import os
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PACKAGE = _ROOT / 'scalable_agent'
_FOLDERS = sorted(
    path.parent.name for path in _PACKAGE.glob('*/__init__.py'))


def _targets(folder):
  """What a BUILD file makes, a dict of name to keyword arguments."""
  targets = {}

  def add(**kwargs):
    assert kwargs['name'] not in targets
    targets[kwargs['name']] = kwargs

  def find(patterns, exclude=()):
    found = lambda some: {
        path for pattern in some for path in glob.glob(
            pattern, root_dir=folder, recursive=True)}
    return sorted(found(patterns) - found(exclude))

  exec((folder / 'BUILD').read_text(), dict(  # pylint: disable=exec-used
      py_library=add, py_binary=add, pytest_test=add, filegroup=add, glob=find,
      load=lambda *unused: None, package=lambda **unused: None))
  return targets


_BINARIES = set(_targets(_PACKAGE)) - {'scalable_agent'}


def _label(name):
  """The target of a dotted name of the project's, None of another's."""
  if name.split('.')[0] != 'scalable_agent':
    return None
  first = name.split('.')[1] if '.' in name else ''
  if first in _FOLDERS:
    return f'//scalable_agent/{first}'
  return ('//scalable_agent:' + first if first in _BINARIES
          else '//scalable_agent')


def _imported(paths):
  """The targets that some modules import."""
  names = set()
  for path in paths:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.ImportFrom):
        names |= {f'{node.module}.{alias.name}' for alias in node.names}
      elif isinstance(node, ast.Import):
        names |= {alias.name for alias in node.names}
  return {_label(name) for name in names} - {None}


def _full(label):
  return f'//scalable_agent{label}' if label.startswith(':') else label


def _check(target, folder, own_label):
  deps = {_full(label) for label in target.get('deps', [])}
  imported = _imported(folder / source for source in target['srcs'])
  assert deps == imported - {own_label}


@pytest.mark.parametrize('name', _FOLDERS)
def test_a_folder_is_a_library_with_its_imports(name):
  folder = _PACKAGE / name
  (target,) = _targets(folder).values()
  assert target['name'] == name
  assert set(target['srcs']) == {
      str(path.relative_to(folder)) for path in folder.rglob('*.py')}
  _check(target, folder, f'//scalable_agent/{name}')


@pytest.mark.parametrize('name', ['scalable_agent', *sorted(_BINARIES)])
def test_the_top_level_is_a_library_below_the_binaries(name):
  target = _targets(_PACKAGE)[name]
  own = '//scalable_agent' + (':' + name if name in _BINARIES else '')
  _check(target, _PACKAGE, own)


def test_every_module_is_in_a_target():
  sources = {f'{source}' for target in _targets(_PACKAGE).values()
             for source in target['srcs']}
  assert sources == {path.name for path in _PACKAGE.glob('*.py')}
  assert len(_FOLDERS) > 10 and len(_BINARIES) > 2


def test_libraries_depend_on_no_circle():
  deps = {f'//scalable_agent/{name}': _targets(_PACKAGE / name)[name].get(
      'deps', []) for name in _FOLDERS}
  for name, target in _targets(_PACKAGE).items():
    own = '//scalable_agent' + (':' + name if name in _BINARIES else '')
    deps[own] = [_full(label) for label in target.get('deps', [])]
  while deps:
    free = [label for label, its in deps.items() if not set(its) & set(deps)]
    assert free, sorted(deps)
    for label in free:
      del deps[label]


def test_every_test_file_is_a_test_with_all_of_the_project():
  tests = {path.relative_to(_ROOT / 'tests').with_suffix('').as_posix()
           for path in (_ROOT / 'tests').rglob('test_*.py')}
  targets = _targets(_ROOT / 'tests')
  assert set(targets) == tests | {'support'}
  others = {path.relative_to(_ROOT / 'tests').as_posix()
            for path in (_ROOT / 'tests').rglob('*.py')}
  assert set(targets['support']['srcs']) == {
      path for path in others if not os.path.basename(path).startswith('test_')}
  for name in tests:
    assert ':support' in targets[name]['deps']
    assert {f'//scalable_agent:{binary}' for binary in _BINARIES} <= set(
        targets[name]['deps'])
