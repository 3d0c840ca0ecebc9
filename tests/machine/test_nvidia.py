"""Finding a GPU's libraries, with fakes of them."""

import os
import subprocess
import sys

import pytest

from scalable_agent.machine import nvidia
from tests.machine import fake_library

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
# Neither is on any machine. The second needs the first.
_BLAS, _SOLVER = 'libfakeblas.so.12', 'libfakesolver.so.11'
_TENSORFLOW = f"""
import ctypes, logging
try:
  ctypes.CDLL({_SOLVER!r})
  print('found')
except OSError as e:
  print(e)
get_logger = logging.getLogger
"""


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """A folder of Python packages: the libraries', and a TensorFlow's."""
  site = tmp_path_factory.mktemp('site')
  for package, name, needed in (
      ('blas', _BLAS, None), ('solver', _SOLVER, _BLAS)):
    folder = site / 'nvidia' / package / 'lib'
    folder.mkdir(parents=True)
    fake_library.write(folder / name, name, needed)
  (site / 'tensorflow.py').write_text(_TENSORFLOW)
  return site


@pytest.fixture
def run(site, tmp_path):
  """Loads TensorFlow in a process: (has a GPU, names) -> what it printed."""

  def run_(has_gpu=True, names=(_BLAS, _SOLVER), first='', **environ):
    tool = tmp_path / 'nvidia-smi'
    tool.touch()
    tool.chmod(0o755 if has_gpu else 0o644)
    program = (
        'from scalable_agent.machine import nvidia\n'
        'from scalable_agent.process import tensorflow_environment\n'
        f'nvidia._PACKAGED = {names!r}\n'
        f'nvidia._DEVICES = {str(tmp_path / "none")!r}\n'
        'tensorflow_environment.load()\n')
    environ = dict(os.environ,
                   PYTHONPATH=os.pathsep.join([first, _ROOT, str(site)]),
                   PATH=f'{tmp_path}{os.pathsep}/usr/bin:/bin',
                   **{'CUDA_VISIBLE_DEVICES': '0', **environ})
    return subprocess.run(
        [sys.executable, '-c', program], env=environ, check=True,
        capture_output=True, text=True, timeout=60).stdout.strip()

  return run_


def test_what_packages_bring_is_there_when_tensorflow_looks_for_it(run):
  assert run() == 'found'


def test_what_packages_bring_comes_before_what_the_system_has(
    run, site, tmp_path):
  for name in (_BLAS, _SOLVER):
    fake_library.write(tmp_path / name, name)
  (tmp_path / 'tensorflow.py').write_text(
      _TENSORFLOW + "print(open('/proc/self/maps').read())")
  output = run(LD_LIBRARY_PATH=str(tmp_path), first=str(tmp_path))
  assert output.startswith('found')
  for package, name in (('blas', _BLAS), ('solver', _SOLVER)):
    assert str(site / 'nvidia' / package / 'lib' / name) in output
    assert str(tmp_path / name) not in output


@pytest.mark.parametrize('kwargs, missing', [
    (dict(names=()), _SOLVER),  # As TensorFlow is by itself.
    (dict(names=(_SOLVER,)), _SOLVER),  # Without what it needs.
    (dict(has_gpu=False), _SOLVER),
    (dict(CUDA_VISIBLE_DEVICES='-1'), _SOLVER)])  # As in actor jobs.
def test_nothing_is_loaded_in_vain(run, kwargs, missing):
  assert run(**kwargs).startswith(f'{missing}: cannot open shared object file')


@pytest.fixture
def libraries(site, tmp_path, monkeypatch):
  """Makes the names that are given those that can be loaded."""

  def make(driver, packaged):
    paths = {'driver': [], 'packaged': []}
    for kind, names in (('driver', driver), ('packaged', packaged)):
      for i, there in enumerate(names):
        path = tmp_path / f'lib{kind}{i}.so'
        if there:
          fake_library.write(path, path.name)
        paths[kind].append(str(path))
    monkeypatch.setattr(nvidia, '_OF_THE_DRIVER', paths['driver'])
    monkeypatch.setattr(nvidia, '_PACKAGED', paths['packaged'])

  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  return make


@pytest.mark.parametrize('driver, packaged, expected', [
    ([True, False], [False], ('libdriver1.so cannot', 'driver brings it')),
    ([True, True], [True, False], ('libpackaged1.so cannot', 'pip install')),
    ([True], [True], ('all libraries can be loaded', 'nvidia-smi'))])
def test_the_first_library_that_is_missing_is_named(
    libraries, driver, packaged, expected):
  libraries(driver, packaged)
  text = nvidia.explain()
  assert all(part in text for part in expected) and '\n' not in text


def test_gpus_that_are_hidden_are_not_looked_for(monkeypatch):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '-1')
  assert nvidia.explain() == 'CUDA_VISIBLE_DEVICES=-1 hides all'


@pytest.mark.parametrize('visible, device, expected', [
    (None, True, True), ('0', True, True), ('', True, False),
    ('-1', True, False), (None, False, False)])
def test_a_gpu_is_expected_where_there_is_one_to_use(
    monkeypatch, tmp_path, visible, device, expected):
  monkeypatch.setattr(nvidia, '_DEVICES', str(tmp_path / 'nvidia[0-9]*'))
  if device:
    (tmp_path / 'nvidia3').touch()
  monkeypatch.setenv('PATH', str(tmp_path))
  if visible is None:
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  else:
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
  assert nvidia.is_expected() == expected
