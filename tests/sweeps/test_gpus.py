"""Which processes see which GPUs."""

import pytest

from scalable_agent.process import nvidia
from scalable_agent.sweeps import gpus


@pytest.mark.parametrize('names, parallel, expected', [
    ('0,1,2,3', 1, ['0,1,2,3']), ('0,1,2,3', 2, ['0,1', '2,3']),
    ('0,1,2,3', 3, ['0', '1', '2,3']), ('0,1,2,3', 4, ['0', '1', '2', '3']),
    ('0,1,2,3', 6, ['0', '1', '2', '3', '0', '1']),
    ('GPU-a,GPU-b', 2, ['GPU-a', 'GPU-b'])])
def test_gpus_are_shared_by_processes(monkeypatch, names, parallel, expected):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', names)
  assert gpus.shares(parallel) == [
      dict(CUDA_VISIBLE_DEVICES=share) for share in expected]


@pytest.mark.parametrize('names', ['', '-1', '3'])
def test_one_gpu_or_none_is_left_alone(monkeypatch, names):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', names)
  assert gpus.shares(2) == [{}, {}]


def test_without_a_variable_the_devices_are_counted(monkeypatch, tmp_path):
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  monkeypatch.setattr(nvidia, '_DEVICES', str(tmp_path / 'nvidia[0-9]*'))
  for name in ('nvidia0', 'nvidia1', 'nvidiactl'):
    (tmp_path / name).touch()
  assert nvidia.visible() == ['0', '1']
