"""A stand-in for the module `deepmind_lab`, as strict as the real one.

`dmlab_contract.py` holds what both do. Put this directory on the path of a
process to have it import this one.
"""

import hashlib
import os
import random
import signal
import sys
import tempfile

import numpy as np

_DMLAB30 = 'contributed/dmlab30/'
_FPS = 60
# Frames of an episode, by the beginning of the level's name; the real ones
# have at least as many.
_EPISODE_FRAMES = {
    'seekavoid_arena_01': 1200,
    'demos/extra_entities': 600,
    _DMLAB30 + 'rooms_': 720,
    _DMLAB30 + 'language_': 480,
    _DMLAB30 + 'lasertag_': 600,
    _DMLAB30 + 'natlab_': 600,
    _DMLAB30 + 'skymaze_': 600,
    _DMLAB30 + 'psychlab_': 600,
    _DMLAB30 + 'explore_': 600,
}
_HOLD_OUT = (_DMLAB30 + 'rooms_collect_good_objects_test',
             _DMLAB30 + 'rooms_exploit_deferred_effects_test')
_WITH_IMAGES = (_DMLAB30 + 'psychlab_arbitrary_visuomotor_mapping',
                _DMLAB30 + 'psychlab_continuous_recognition')
_WITH_COMPILED_MAPS = (_DMLAB30 + 'explore_', _DMLAB30 + 'lasertag_')
_SETTINGS = ('width', 'height', 'fps', 'levelDirectory', 'appendCommand',
             'mixerSeed', 'allowHoldOutLevels', 'datasetPath', 'logLevel',
             'randomSeed', 'episodeLengthSeconds')
_OBSERVATIONS = ('RGB_INTERLEAVED', 'RGB', 'INSTR')
_NUM_ACTIONS = 7
_NUM_FRAMES = 16


_runfiles_path = os.path.dirname(os.path.abspath(__file__))


def runfiles_path():
  return _runfiles_path


def set_runfiles_path(path):
  global _runfiles_path
  if not isinstance(path, str):
    raise TypeError(f'must be str, not {type(path).__name__}')
  _runfiles_path = path


def _die():
  os.kill(os.getpid(), signal.SIGSEGV)


class Lab:
  """An environment; see the documentation of the real one."""

  def __init__(self, level, observations, config=None, renderer='software',
               level_cache=None, temp_folder=''):
    for value, kind in ((level, str), (observations, list),
                        ({} if config is None else config, dict),
                        (renderer, str), (temp_folder, str)):
      if not isinstance(value, kind):
        raise TypeError(f'must be {kind.__name__}, not {type(value).__name__}')
    if renderer not in ('', 'software', 'hardware'):
      raise RuntimeError(f'Failed to set renderer "{renderer}"')
    if not os.path.isdir(_runfiles_path):
      raise RuntimeError('Failed to find the files of the engine')
    frames = [count for start, count in _EPISODE_FRAMES.items()
              if level.startswith(start)]
    if not frames:
      raise RuntimeError(f'Invalid levelName flag \'{level}\'')
    settings = dict(width='320', height='240', mixerSeed='0')
    for key, value in (config or {}).items():
      if not isinstance(key, str) or not isinstance(value, str):
        raise TypeError('bad argument type for built-in operation')
      if key not in _SETTINGS:
        raise RuntimeError(f'Invalid setting: "{key}" = "{value}"')
      settings[key] = value
    if level in _HOLD_OUT and settings.get('allowHoldOutLevels') != 'true':
      raise RuntimeError('hold-out levels are not allowed')
    for name in observations:
      if not isinstance(name, str):
        raise TypeError('bad argument type for built-in operation')
      if name not in _OBSERVATIONS:
        raise ValueError(f'Unknown observation \'{name}\'.')
    self._level = level
    self._settings = settings
    self._observations = observations
    self._level_cache = level_cache
    self._shape = int(settings['height']), int(settings['width']), 3
    self._episode_frames = frames[0]
    self._num_resets = 0
    self._closed = False
    self._running = False
    self._num_steps = 0

  def reset(self, episode=-1, seed=None):
    if not isinstance(episode, int):
      raise TypeError('an integer is required')
    if seed is None:
      seed = random.randrange(2**31)
    if not isinstance(seed, int):
      raise ValueError('\'seed\' must be int or None, was '
                       f'\'{type(seed).__name__}\'.')
    # Two ways to bring the real one down.
    if self._closed or 'tensorflow' in sys.modules:
      _die()
    if self._level in _WITH_IMAGES and not self._settings.get('datasetPath'):
      raise RuntimeError('Failed to start environment - "Follow instructions '
                         'to download datasets"')
    # The real one, too, remembers more of earlier episodes than it should.
    entropy = (f'{self._level} {seed} {self._settings["mixerSeed"]} '
               f'{self._num_resets}')
    self._rng = np.random.RandomState(
        int(hashlib.md5(entropy.encode()).hexdigest()[:8], 16))
    if self._level.startswith(_WITH_COMPILED_MAPS):
      self._make_map()
    self._frames = self._rng.randint(
        256, size=(_NUM_FRAMES,) + self._shape).astype(np.uint8)
    words = ['pick', 'up', 'the', 'large', 'red', 'hat', 'now']
    self._instruction = (
        ' '.join(words[:self._rng.randint(2, 8)])
        if 'language_' in self._level else '')
    self._num_resets += 1
    self._num_steps = 0
    self._running = True
    return True

  def _make_map(self):
    key = hashlib.md5(self._level.encode() + self._rng.bytes(1)).hexdigest()
    with tempfile.TemporaryDirectory() as directory:
      path = os.path.join(directory, 'map.pk3')
      if self._level_cache is None:
        return
      if self._level_cache.fetch(key, path):
        if not os.path.exists(path):
          print('Didn\'t find map')
          os._exit(1)
      else:
        with open(path, 'w') as f:
          f.write(f'map {key}')
        self._level_cache.write(key, path)

  def is_running(self):
    return self._running

  def step(self, action, num_steps=1):
    if not isinstance(action, np.ndarray):
      raise TypeError('argument 1 must be numpy.ndarray')
    if not isinstance(num_steps, (int, np.integer)):
      raise TypeError('an integer is required')
    if not self._running:
      raise RuntimeError('Environment in wrong status to advance.')
    if action.shape != (_NUM_ACTIONS,):
      raise ValueError(f'action must have shape ({_NUM_ACTIONS})')
    if action.dtype != np.intc:
      raise ValueError('action must have dtype np.intc')
    if not action.flags.c_contiguous:
      raise ValueError('the real one would read what is in between')
    self._num_steps += num_steps
    self._running = self._num_steps < self._episode_frames
    # Looking around pays here, and so does the end.
    return float(self._rng.randint(2) * abs(action[0]) / 20
                 + 10 * (not self._running))

  def observations(self):
    if not self._running:
      raise RuntimeError(
          'Environment in wrong status for call to observations()')
    frame = self._frames[self._num_steps % _NUM_FRAMES]
    values = {'RGB_INTERLEAVED': frame, 'RGB': np.moveaxis(frame, 2, 0),
              'INSTR': self._instruction}
    return {name: values[name].copy() if name != 'INSTR' else values[name]
            for name in self._observations}

  def num_steps(self):
    return self._num_steps

  def close(self):
    was_open = not self._closed
    self._closed = True
    self._running = False
    return was_open
