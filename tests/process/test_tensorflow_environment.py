"""What TensorFlow is told before it is loaded, and what it is not to say."""

import importlib.util
import mmap
import os
import pathlib
import platform
import subprocess
import sys

import pytest

from scalable_agent.process import tensorflow_environment

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PREFIX = 'from scalable_agent.process import tensorflow_environment as t\n'
_NAMES = ['TF_USE_LEGACY_KERAS', 'TF_ENABLE_ONEDNN_OPTS']


@pytest.fixture
def environ(monkeypatch):
  """Variables that are not set."""
  environ = {}
  monkeypatch.setattr('os.environ', environ)
  return environ


def test_legacy_keras_and_onednn_are_chosen(environ, monkeypatch):
  monkeypatch.setattr(platform, 'machine', lambda: 'x86_64')
  tensorflow_environment.prepare()
  assert {name: environ.get(name) for name in _NAMES} == dict.fromkeys(
      _NAMES, '1')


def test_gpus_memory_grows(environ):
  """Also where nobody chooses devices, as in `scalable_agent.load`."""
  tensorflow_environment.prepare()
  assert environ['TF_FORCE_GPU_ALLOW_GROWTH'] == 'true'


def test_onednn_is_left_as_it_is_on_other_processors(environ, monkeypatch):
  monkeypatch.setattr(platform, 'machine', lambda: 'aarch64')
  tensorflow_environment.prepare()
  assert 'TF_ENABLE_ONEDNN_OPTS' not in environ


def test_xla_leaves_biases_to_itself(environ):
  """Also where it has flags already, unless they name passes or a file."""
  added = '--xla_disable_hlo_passes=cudnn-fused-convolution-rewriter'
  tensorflow_environment.prepare()
  assert environ['XLA_FLAGS'] == added
  environ['XLA_FLAGS'] = '--xla_dump_to=/nowhere'
  for _ in range(2):
    tensorflow_environment.prepare()
    assert environ['XLA_FLAGS'] == f'--xla_dump_to=/nowhere {added}'
  for of_user in ('--xla_disable_hlo_passes=dce', '/home/me/xla_flags'):
    environ['XLA_FLAGS'] = of_user
    tensorflow_environment.prepare()
    assert environ['XLA_FLAGS'] == of_user


def test_tensorflow_has_the_pass_of_xla_that_is_disabled():
  """XLA ignores names that it does not know."""
  folder = pathlib.Path(importlib.util.find_spec('tensorflow').origin).parent
  library = next(folder.glob('libtensorflow_cc.so*'), None)
  if library is None:
    pytest.skip('TensorFlow has no library of that name here')
  with open(library, 'rb') as f, mmap.mmap(
      f.fileno(), 0, access=mmap.ACCESS_READ) as content:
    assert content.find(b'cudnn-fused-convolution-rewriter') >= 0


def test_a_program_that_is_started_meanwhile_holds_nobody_up():
  """It has inherited stderr, and so keeps what filters stderr alive."""
  result = subprocess.run([sys.executable, '-c', _PREFIX + (
      'import subprocess, time\n'
      'start = time.monotonic()\n'
      'with t._without_chatter():\n'
      '  child = subprocess.Popen(["sleep", "60"])\n'
      'assert child.poll() is None and time.monotonic() - start < 30.\n'
      'child.kill()\n')], cwd=_ROOT, check=False, capture_output=True,
                          text=True, timeout=60.)
  assert result.returncode == 0, result.stderr


@pytest.mark.parametrize('name', [
    *_NAMES, 'TF_CPP_MIN_LOG_LEVEL', 'TF_FORCE_GPU_ALLOW_GROWTH'])
def test_what_the_user_has_set_stays(environ, name):
  environ[name] = '0'
  tensorflow_environment.prepare()
  assert environ[name] == '0'


# -- In fresh processes -------------------------------------------------------


def _run(program, **environ):
  inherited = {name: value for name, value in os.environ.items()
               if not name.startswith('TF_')}
  return subprocess.run(
      [sys.executable, '-c', _PREFIX + program], capture_output=True, text=True,
      timeout=300, check=False, cwd=_ROOT, env=dict(inherited, **environ))


def test_tensorflow_is_loaded_without_chatter():
  """Not even what it says before it looks at its log level."""
  result = _run(
      't.load()\nt.load()\nimport sys, tensorflow as tf\n'
      'tf.config.list_physical_devices("GPU")\n'
      'print("mine", file=sys.stderr)')
  assert (result.returncode, result.stdout, result.stderr) == (0, '', 'mine\n')


_WRITE = 'import os\nwith t._without_chatter():\n  os.write(2, {!r})\n'
_CHATTER = (b'WARNING: All log messages before absl::InitializeLog() is\n'
            b'I0000 00:00:1.2 3 port.cc:1] oneDNN\n')


def test_what_is_no_chatter_is_seen():
  result = _run(_WRITE.format(_CHATTER + b'E0000 00:00:1.2 3 cuda.cc] bad\n'))
  assert result.stderr == 'E0000 00:00:1.2 3 cuda.cc] bad\n'


@pytest.mark.parametrize('without', ['os.environ["PATH"] = ""', 'os.close(2)'])
def test_where_lines_cannot_be_filtered_none_is(without):
  """As without `sed`, or without stderr."""
  result = _run(f'import os\n{without}\nwith t._without_chatter():\n'
                '  print("loaded")')
  assert (result.returncode, result.stdout) == (0, 'loaded\n'), result.stderr


def test_what_a_library_says_last_is_seen():
  """Though it ends the process, as on a processor that it is not made for."""
  result = _run(_WRITE.format(_CHATTER + b'needs AVX\n') +
                '  os.kill(os.getpid(), 9)')
  assert result.returncode == -9
  assert result.stderr == 'needs AVX\n'


def test_lines_of_tensorflow_at_every_save_are_left_out():
  result = _run(
      't.prepare()\nfrom absl import logging\nlogging.set_verbosity(0)\n'
      'logging.use_absl_handler()\n'
      'exec(compile("logging.info(\'sharding\')\\nlogging.warning(\'seen\')", '
      '"/lib/tensorflow/x.py", "exec"))\nlogging.info("mine")')
  said = [line.partition('] ')[2] for line in result.stderr.splitlines()]
  assert [text for text in said if text] == ['seen', 'mine']
