"""Two real learners against each other, and against one."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from scalable_agent.training import collectives
from scalable_agent import config as config_lib
from tests.training import learner_pair
from tests import learners

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  """What two learners found, a list of two dicts, and what they printed."""
  directory = tmp_path_factory.mktemp('pair')
  process = subprocess.run(
      [sys.executable, '-m', 'tests.training.learner_pair', str(directory)],
      cwd=_ROOT,
      env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'), timeout=400,
      stdin=subprocess.DEVNULL, capture_output=True, text=True)
  assert process.returncode == 0, process.stderr[-4000:]
  found = [dict(np.load(directory / f'{task}.npz')) for task in range(2)]
  return found, process.stderr


def test_the_first_learners_state_arrives_bit_for_bit(pair):
  """Weights, slots and int64 counters of any bit pattern."""
  (first, second), _ = pair
  assert (first['before'] != second['before']).any()
  for each in (first, second):
    np.testing.assert_array_equal(each['after'], first['before'])


def test_two_learners_equal_one(pair):
  """Weights, slots and logs after 20 steps on halves of the same batches."""
  found, _ = pair
  np.testing.assert_array_equal(found[0]['state'], found[1]['state'])
  one = learners.make_learner(
      learners.make_language_agent(), optimizer=learner_pair.OPTIMIZER)
  before = {name: value.numpy() for name, value in one.weights().items()}
  logs = [one.step(one.place(learner_pair.make_batch(i)))[0]
          for i in range(learner_pair.NUM_STEPS)]
  for name, value in one.weights().items():
    least = 1e-4 if name.startswith('instruction/') else 1e-3
    assert np.abs(value - before[name]).max() > least, name
    for each in found:
      np.testing.assert_allclose(
          each[f'weights/{name}'], value, rtol=1e-4, atol=1e-6, err_msg=name)
  for name in logs[0]:
    for each in found:
      np.testing.assert_allclose(
          each[f'logs/{name}'], [entry[name] for entry in logs], rtol=1e-3,
          err_msg=name)
  norms = [entry['grad_norm'] for entry in logs]
  assert min(norms) < learner_pair.OPTIMIZER.gradient_norm_clip < max(norms)


def test_hashes_tell_weights_apart_and_differences_are_mended(pair):
  (first, second), output = pair
  assert first['hashes'][0] == second['hashes'][0]
  assert first['hashes'][1] != second['hashes'][1]
  assert len(set(first['hashes'])) == 1
  assert second['hashes'][2] == first['hashes'][0]
  assert (f'The weights of the learners differ: {first["hashes"][1]}, '
          f'{second["hashes"][1]}.') in output


def test_gather_takes_payloads_of_any_length(pair):
  found, _ = pair
  for each in found:
    assert each['gathered'].tolist() == [b'', b'abcdefghi']


def test_settings_that_differ_are_named_at_every_learner(pair):
  found, _ = pair
  for each in found:
    assert str(each['settings_error']) == (
        '--learning_rate is 0.001 at learner 0 and 0.002 at learner 1; all '
        'learners need the same.')


@pytest.mark.parametrize('devices, flag', [
    (['/cpu:0', '/cpu:1'], '--num_learner_devices=2'),
    (['/gpu:1', '/gpu:2'], '--inference_device')])
def test_devices_that_tensorflow_would_not_take(devices, flag):
  with pytest.raises(config_lib.ConfigError, match=flag):
    collectives.Collectives(['localhost:1', 'localhost:2'], 0, devices)
