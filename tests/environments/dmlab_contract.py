"""What `deepmind_lab` does, as functions that pass with the real one.

    python -m tests.environments.dmlab_contract CHECK

runs one of them on whichever `deepmind_lab` can be imported, in a process that
must not have TensorFlow loaded.
"""

import os
import sys
import tempfile

import deepmind_lab
import numpy as np

from scalable_agent.environments import DEFAULT_ACTION_SET

_LEVEL = 'seekavoid_arena_01'
_LANGUAGE_LEVEL = 'contributed/dmlab30/language_select_described_object'
_COMPILED_LEVEL = 'contributed/dmlab30/explore_object_rewards_few'
_HOLD_OUT_LEVEL = 'contributed/dmlab30/rooms_collect_good_objects_test'
_IMAGES_LEVEL = 'contributed/dmlab30/psychlab_continuous_recognition'
_OBSERVATIONS = ['RGB_INTERLEAVED', 'INSTR']
_CONFIG = {'width': '96', 'height': '72', 'logLevel': 'WARN'}
_ACTIONS = np.array(DEFAULT_ACTION_SET, np.intc)


def _make(level=_LEVEL, observations=_OBSERVATIONS, config=_CONFIG, **kwargs):
  return deepmind_lab.Lab(level, observations, config, **kwargs)


def _raises(kind, function, *args, **kwargs):
  try:
    function(*args, **kwargs)
  except kind:
    return
  except Exception as e:
    raise AssertionError(f'{args} {kwargs} raised {e!r}, not {kind}') from e
  raise AssertionError(f'{args} {kwargs} did not raise {kind}')


def check_constructor_refuses():
  """Levels, observations and settings of wrong types, and unknown ones."""
  _raises(TypeError, _make, level=_LEVEL.encode())
  _raises(RuntimeError, _make, level='no_such_level')
  _raises(TypeError, _make, observations=tuple(_OBSERVATIONS))
  _raises(TypeError, _make, observations=[7])
  _raises(ValueError, _make, observations=['INSTRUCTION'])
  for key, value in (('width', 96), ('width', b'96'), ('allowHoldOutLevels',
                                                       True), (7, '7')):
    _raises(TypeError, _make, config={key: value})
  _raises(TypeError, _make, config=[('width', '96')])
  _raises(RuntimeError, _make, config={'numberOfUnicorns': '1'})
  _raises(RuntimeError, _make, renderer='crayons')


def check_hold_out_levels_need_a_setting():
  _raises(RuntimeError, _make, level=_HOLD_OUT_LEVEL)
  _make(level=_HOLD_OUT_LEVEL, config=dict(_CONFIG, allowHoldOutLevels='true',
                                           mixerSeed='7'))


def check_images_are_needed_at_reset():
  _raises(RuntimeError, _make(level=_IMAGES_LEVEL).reset, seed=1)


def check_observations():
  """Names, types, shapes; arrays are the caller's."""
  lab = _make()
  assert lab.reset(seed=1) is True
  observations = lab.observations()
  assert sorted(observations) == sorted(_OBSERVATIONS)
  frame = observations['RGB_INTERLEAVED']
  assert type(frame) is np.ndarray
  assert frame.dtype == np.uint8 and frame.shape == (72, 96, 3), frame.shape
  assert type(observations['INSTR']) is str
  frame[:] = 0
  assert lab.observations()['RGB_INTERLEAVED'].any()


def check_instructions():
  lab = _make(level=_LANGUAGE_LEVEL)
  lab.reset(seed=1)
  assert lab.observations()['INSTR'].split()


def check_step_refuses():
  """Actions that are not np.intc [7], numbers of steps that are no int."""
  lab = _make()
  lab.reset(seed=1)
  _raises(TypeError, lab.step, _ACTIONS[0].tolist())
  _raises(ValueError, lab.step, _ACTIONS[0].astype(np.int64))
  _raises(ValueError, lab.step, _ACTIONS[0].astype(np.float32))
  _raises(ValueError, lab.step, _ACTIONS[:1])
  _raises(ValueError, lab.step, _ACTIONS[0][:6].copy())
  _raises(TypeError, lab.step, _ACTIONS[0], 4.)
  _raises(TypeError, lab.step, _ACTIONS[0], num_steps='4')
  assert lab.num_steps() == 0
  lab.step(_ACTIONS[0], 4)
  lab.step(_ACTIONS[0], num_steps=4)
  assert lab.num_steps() == 8


def check_seeds_are_python_integers():
  lab = _make()
  for seed in (np.int32(1), np.int64(1), np.array(1), 1., '1'):
    _raises(ValueError, lab.reset, seed=seed)
  assert lab.reset(seed=None) is True
  assert lab.reset(seed=2**31 - 1) is True
  assert lab.reset() is True


def check_an_episode():
  """`is_running` and rewards, from before the first to the second."""
  lab = _make()
  assert lab.is_running() is False
  _raises(RuntimeError, lab.observations)
  _raises(RuntimeError, lab.step, _ACTIONS[0])
  lab.reset(seed=3)
  assert lab.is_running() is True
  steps = 0
  while lab.is_running():
    reward = lab.step(_ACTIONS[steps % 4 + 4], num_steps=4)
    assert type(reward) is float
    steps += 1
  assert steps > 100, steps
  assert lab.is_running() is False
  _raises(RuntimeError, lab.observations)
  _raises(RuntimeError, lab.step, _ACTIONS[0])
  lab.reset(seed=4)
  assert lab.is_running() is True
  lab.observations()


def check_reset_in_the_middle():
  lab = _make()
  lab.reset(seed=1)
  lab.step(_ACTIONS[0], 4)
  lab.reset(seed=2)
  assert lab.num_steps() == 0
  assert lab.is_running() is True


def _trajectory(seed, config=_CONFIG, level=_LEVEL):
  lab = _make(level, config=config)
  lab.reset(seed=seed)
  frames, rewards = [lab.observations()['RGB_INTERLEAVED']], []
  for i in range(30):
    rewards.append(lab.step(_ACTIONS[(0, 4, 6)[i % 3]], num_steps=4))
    frames.append(lab.observations()['RGB_INTERLEAVED'])
  return np.stack(frames), rewards


def check_seeds():
  """Fresh instances with one seed agree; another seed or mixer does not."""
  frames, rewards = _trajectory(5)
  same_frames, same_rewards = _trajectory(5)
  np.testing.assert_array_equal(frames, same_frames)
  assert rewards == same_rewards
  assert (_trajectory(6)[0] != frames).any()
  assert (_trajectory(5, dict(_CONFIG, mixerSeed='7'))[0] != frames).any()


class _Cache:

  def __init__(self, directory):
    self._directory = directory
    self.calls = []

  def fetch(self, key, pk3_path):
    assert type(key) is str and type(pk3_path) is str
    self.calls.append('fetch')
    path = os.path.join(self._directory, key)
    if not os.path.exists(path):
      return False
    with open(path, 'rb') as source, open(pk3_path, 'wb') as target:
      target.write(source.read())
    return True

  def write(self, key, pk3_path):
    self.calls.append('write')
    with open(pk3_path, 'rb') as source:
      with open(os.path.join(self._directory, key), 'wb') as target:
        target.write(source.read())


def check_level_cache():
  """What is compiled is written; it is fetched by the next instance."""
  with tempfile.TemporaryDirectory() as directory:
    first, second = _Cache(directory), _Cache(directory)
    _make(_COMPILED_LEVEL, level_cache=first).reset(seed=1)
    assert first.calls[:2] == ['fetch', 'write'], first.calls
    _make(_COMPILED_LEVEL, level_cache=second).reset(seed=1)
    assert second.calls and set(second.calls) == {'fetch'}, second.calls


def check_errors_of_a_level_cache_come_out():
  class Broken:

    def fetch(self, key, pk3_path):
      raise KeyError('no cache today')

  _raises(KeyError, _make(_COMPILED_LEVEL, level_cache=Broken()).reset, seed=1)


def check_close():
  lab = _make()
  lab.reset(seed=1)
  assert lab.close() is True
  assert lab.close() is False
  assert lab.is_running() is False


CHECKS = sorted(name for name in globals() if name.startswith('check_'))

if __name__ == '__main__':
  assert 'tensorflow' not in sys.modules
  globals()[sys.argv[1]]()
  sys.stdout.flush()
  # The real one may crash in being torn down, which is not at issue.
  os._exit(0)
