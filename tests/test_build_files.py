"""The BUILD files: the package, its programs, and a test for each file."""

import glob
import os
import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def _targets(folder):
  """What a BUILD file makes, a dict of name to keyword arguments."""
  targets = {}

  def add(**kwargs):
    assert kwargs['name'] not in targets
    targets[kwargs['name']] = kwargs

  def find(patterns, exclude=()):
    found = lambda some: {
        path for pattern in some for path in glob.glob(
            pattern, root_dir=_ROOT / folder, recursive=True)}
    return sorted(found(patterns) - found(exclude))

  exec((_ROOT / folder / 'BUILD').read_text(), dict(  # pylint: disable=exec-used
      py_library=add, py_binary=add, pytest_test=add, filegroup=add, glob=find,
      load=lambda *unused: None, package=lambda **unused: None))
  return targets


def test_the_package_is_a_library_and_its_programs_are_binaries():
  folder = _ROOT / 'scalable_agent'
  targets = _targets('scalable_agent')
  library = targets.pop('scalable_agent')
  assert set(library['srcs']) == {
      str(path.relative_to(folder)) for path in folder.rglob('*.py')}
  assert set(targets) == {
      path.stem for path in folder.glob('*.py')
      if "__name__ == '__main__'" in path.read_text()}
  for name, target in targets.items():
    assert target['srcs'] == [f'{name}.py']
    assert target['deps'] == [':scalable_agent']


def test_every_test_file_is_a_test_with_all_of_the_project():
  folder = _ROOT / 'tests'
  targets = _targets('tests')
  support = targets.pop('support')
  files = {path.relative_to(folder).as_posix() for path in folder.rglob('*.py')}
  tests = {path for path in files
           if os.path.basename(path).startswith('test_')}
  assert {f'{name}.py' for name in targets} == tests
  assert set(support['srcs']) == files - tests
  for target in targets.values():
    assert target['deps'] == [':support', '//scalable_agent']
    assert target['data'] == ['//launch', '//testdata']
