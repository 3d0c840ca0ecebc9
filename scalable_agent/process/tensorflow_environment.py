"""Sets up TensorFlow before it is loaded, and drops lines that it prints."""

import contextlib
import os
import platform
import subprocess
import sys

from absl import logging

from scalable_agent.machine import nvidia

_NVIDIA_DRIVER = '/proc/driver/nvidia'
_WARNINGS, _NOTHING = '1', '3'
_DISABLE_PASSES = '--xla_disable_hlo_passes'
_FUSES_BIASES = 'cudnn-fused-convolution-rewriter'
# How long to wait for what filters stderr.
_FILTER_SECONDS = 1.


def prepare():
  """Sets environment variables, except those that the user has set.

  Flags of XLA are added to the user's XLA_FLAGS, unless these name passes or a
  file.

  Call before TensorFlow loads. The processes that this one starts inherit them.
  """
  # TensorFlow Probability is built on it; TensorFlow would load another Keras.
  os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  # Else TensorFlow takes all of a GPU's memory, and another process has none.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  # By itself TensorFlow takes oneDNN's convolutions on CPUs with AVX-512 alone;
  # they are the faster ones with AVX2 too.
  if platform.machine() == 'x86_64':
    os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
  # XLA would have cuDNN add the bias to each convolution. For each, cuDNN then
  # compiles kernels for 20 seconds, and has none without TensorFloat-32.
  xla_flags = os.environ.get('XLA_FLAGS', '').strip()
  if xla_flags[:1] in ('', '-') and _DISABLE_PASSES not in xla_flags:
    os.environ['XLA_FLAGS'] = (
        f'{xla_flags} {_DISABLE_PASSES}={_FUSES_BIASES}'.strip())
  # Without a driver TensorFlow reports as errors that there is no GPU. What
  # does go wrong is raised in Python.
  os.environ.setdefault(
      'TF_CPP_MIN_LOG_LEVEL',
      _WARNINGS if os.path.exists(_NVIDIA_DRIVER) else _NOTHING)
  logging.get_absl_logger().addFilter(_is_for_users)


def load():
  """Prepares and loads TensorFlow, if that has not been done."""
  if 'tensorflow' in sys.modules:
    return
  prepare()
  nvidia.load_libraries()
  with _without_chatter():
    import tensorflow as tf
  tf.get_logger().setLevel('WARNING')


@contextlib.contextmanager
def _without_chatter():
  """Drops lines that libraries write to stderr whatever the log level is.

  Another process filters stderr, so that all other lines are seen even if a
  library ends this process. Without `sed`, or without stderr, none is dropped.
  """
  error, sed = _start_filter()
  if sed is None:
    yield
    return
  os.dup2(sed.stdin.fileno(), 2)
  try:
    yield
  finally:
    os.dup2(error, 2)
    os.close(error)
    sed.stdin.close()
    # Programs that other threads have started write to it too, until they end.
    with contextlib.suppress(subprocess.TimeoutExpired):
      sed.wait(_FILTER_SECONDS)


def _start_filter():
  """Returns a copy of stderr, and a process that writes there what is kept.

  Both are None where there is no stderr, or no `sed`.
  """
  with contextlib.ExitStack() as undo, contextlib.suppress(OSError):
    error = os.dup(2)
    undo.callback(os.close, error)
    sed = subprocess.Popen(
        ['sed', '-u', r'/^I0000 \|^WARNING: All log messages before absl/d'],
        stdin=subprocess.PIPE, stdout=error, start_new_session=True)
    undo.pop_all()
    return error, sed
  return None, None


def _is_for_users(record):
  """Whether a line is none of those that TensorFlow writes at every save."""
  return (record.levelno > logging.converter.STANDARD_INFO or
          f'{os.sep}tensorflow{os.sep}' not in record.pathname)
