"""Set-up of the whole test run."""

import faulthandler
import os

import hypothesis
import pytest

from scalable_agent.process import tensorflow_environment
from tests import watchdog

_USES_GPUS = os.environ.get('GPU_TESTS') == '1'
if _USES_GPUS:
  tensorflow_environment.load()  # With the libraries that a GPU needs.
else:
  tensorflow_environment.prepare()

from absl import logging  # pylint: disable=g-import-not-at-top
import tensorflow as tf  # pylint: disable=g-import-not-at-top

logging.set_verbosity(logging.INFO)  # As the binaries do.

# Only possible before TensorFlow has used a device, hence not in a fixture. Two
# CPUs are for the tests with replicas. What is compared needs full float32
# precision, so GPUs are hidden, or do without TensorFloat-32.
if _USES_GPUS:
  tf.config.experimental.enable_tensor_float_32_execution(False)
else:
  tf.config.set_visible_devices([], 'GPU')
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 2)


# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile('any machine', deadline=None)
hypothesis.settings.load_profile('any machine')

# Files that take longest. They start first, since one that starts last runs on
# alone. By itself pytest-xdist starts those with the most tests first, which
# are not these.
LONGEST = (
    'test_learning.py', 'test_experiment.py', 'test_learner.py',
    'test_launch.py', 'test_benchmark.py', 'jobs/test_jobs.py',
    'jobs/test_replay_jobs.py', 'training/test_several_learners.py',
    'test_reactor.py', 'sweeps/test_atari57_experts.py',
    'environments/test_atari_games.py', 'training/test_run.py',
    'environments/test_replaced_workers.py',
    'test_population.py', 'environments/test_process_pool.py', 'test_sweep.py',
    'environments/test_atari.py', 'training/test_collectives.py',
    'environments/test_dmlab.py', 'test_chaos.py', 'test_own_network.py')


def pytest_collection_modifyitems(items):
  folder = os.path.dirname(__file__)
  places = {os.path.join(folder, name): i for i, name in enumerate(LONGEST)}
  items.sort(key=lambda item: places.get(str(item.path), len(LONGEST)))


def pytest_configure(config):
  # What pytest captures is lost with the process; this is the terminal's.
  config.terminal_stderr = os.fdopen(os.dup(2), 'w')


@pytest.fixture
def bounded(pytestconfig):
  """Ends a test that hangs, and with it the run, and says where it was."""
  faulthandler.dump_traceback_later(
      watchdog.SECONDS, exit=True, file=pytestconfig.terminal_stderr)
  yield
  faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope='session')
def mirrored():
  """The strategy of two replicas, one for all tests."""
  from scalable_agent import learner
  return learner.create_strategy(['/cpu:0', '/cpu:1'])
