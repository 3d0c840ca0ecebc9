"""Which processes see which GPUs."""

import pytest

from scalable_agent import config as config_lib
from scalable_agent.machine import nvidia
from scalable_agent.sweeps import gpus


@pytest.mark.parametrize('names, parallel, expected', [
    ('0,1,2,3', 1, ['0,1,2,3']), ('0,1,2,3', 2, ['0,1', '2,3']),
    ('0,1,2,3', 3, ['0', '1', '2,3']), ('0,1,2,3', 4, ['0', '1', '2', '3']),
    ('0,1,2,3', 6, ['0', '1', '2', '3', '0', '1']),
    ('GPU-a,GPU-b', 2, ['GPU-a', 'GPU-b'])])
def test_gpus_are_shared_by_processes(monkeypatch, names, parallel, expected):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', names)
  assert gpus.environs(parallel, [config_lib.resolve({})]) == [
      dict(CUDA_VISIBLE_DEVICES=share) for share in expected]


_ALL = ['0', '1', '2', '3']


@pytest.mark.parametrize('parallel, devices, inference, expected', [
    (4, [0], '', _ALL), (4, [1], '', _ALL), (4, [0], 'cpu:0', _ALL),
    (4, [2], '', None), (2, [2], '', ['0,1', '2,3']), (3, [2], '', None),
    (5, [1], '', [*_ALL[:1], *_ALL]), (5, [2], '', None),
    (4, [0], 'gpu:3', None),
    # Any run may get any share.
    (4, [1, 2], '', None), (2, [2, 1], '', ['0,1', '2,3'])])
def test_runs_may_leave_nothing_to_share(
    monkeypatch, parallel, devices, inference, expected):
  """Where one uses GPUs of all, or more than would be its own."""
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', ','.join(_ALL))
  configs = [config_lib.resolve(dict(num_learner_devices=count))
             for count in devices]
  configs.append(config_lib.resolve(dict(
      num_learner_devices=devices[0], inference_device=inference)))
  found = gpus.environs(parallel, configs)
  if expected is None:
    assert found == [{}] * parallel
  else:
    assert sorted(each['CUDA_VISIBLE_DEVICES'] for each in found) == expected


@pytest.mark.parametrize('names', ['', '-1', '3'])
def test_one_gpu_or_none_is_left_alone(monkeypatch, names):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', names)
  assert gpus.environs(2, [config_lib.resolve({})]) == [{}, {}]


def test_without_a_variable_the_devices_are_counted(monkeypatch, tmp_path):
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  monkeypatch.setattr(nvidia, '_DEVICES', str(tmp_path / 'nvidia[0-9]*'))
  for name in ('nvidia0', 'nvidia1', 'nvidiactl'):
    (tmp_path / name).touch()
  assert nvidia.visible() == ['0', '1']
