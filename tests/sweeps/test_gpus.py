"""Which processes see which GPUs."""

from absl import flags
from absl.testing import flagsaver
import pytest

from scalable_agent import experiment  # pylint: disable=unused-import
from scalable_agent.process import nvidia
from scalable_agent.sweeps import flags as sweep_flags
from scalable_agent.sweeps import gpus

sweep_flags.define_parallel()


@pytest.mark.parametrize('names, parallel, expected', [
    ('0,1,2,3', 1, ['0,1,2,3']), ('0,1,2,3', 2, ['0,1', '2,3']),
    ('0,1,2,3', 3, ['0', '1', '2,3']), ('0,1,2,3', 4, ['0', '1', '2', '3']),
    ('0,1,2,3', 6, ['0', '1', '2', '3', '0', '1']),
    ('GPU-a,GPU-b', 2, ['GPU-a', 'GPU-b'])])
def test_gpus_are_shared_by_processes(monkeypatch, names, parallel, expected):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', names)
  assert gpus.shares(parallel) == [
      dict(CUDA_VISIBLE_DEVICES=share) for share in expected]


_ALL = ['0', '1', '2', '3']


@pytest.mark.parametrize('arguments, expected', [
    ((), _ALL), (('--num_learner_devices=1',), _ALL),
    (('--inference_device=cpu:0',), _ALL),
    (('--num_learner_devices=2',), None),
    (('--num_learner_devices=2', '--parallel=2'), ['0,1', '2,3']),
    (('--num_learner_devices=2', '--parallel=3'), None),
    (('--num_learner_devices=1', '--parallel=5'), [*_ALL[:1], *_ALL]),
    (('--num_learner_devices=2', '--parallel=5'), None),
    (('--inference_device=gpu:3',), None)])
def test_flags_may_leave_nothing_to_share(monkeypatch, arguments, expected):
  """Where each process uses GPUs of all, or more than would be its own."""
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', ','.join(_ALL))
  with flagsaver.flagsaver():
    flags.FLAGS(['sweep', '--parallel=4', *arguments])
    found = sweep_flags.environs()
  if expected is None:
    assert not any(found or [])
  else:
    assert sorted(each['CUDA_VISIBLE_DEVICES'] for each in found) == expected


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
