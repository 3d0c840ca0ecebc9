"""Takes the weights and the optimizer's slots of another run's checkpoint."""

import os
import re

import tensorflow as tf

from scalable_agent import config as config_lib
from scalable_agent.checkpoints import reading
from scalable_agent.process import errors

_WEIGHT = re.compile('params/(.+)/.ATTRIBUTES/VARIABLE_VALUE')
# TensorFlow writes the slashes and dots of a name like this.
_ESCAPE = re.compile(r'\.[S.]')


def restore(path, trained, config):
  """Restores what was trained, and nothing else, from a checkpoint.

  Args:
    path: Of the checkpoint, without the endings of its files.
    trained: A dict of what to restore, as in a checkpoint; `params` is a dict
      of name to variable.
    config: A dict of name to value, the settings of the run that takes it.

  Raises:
    ConfigError: There is no such checkpoint, it cannot be read, or it is of
      another network, or of one whose outputs mean something else.
  """
  if not os.path.exists(f'{path}.index'):
    raise _refusal(path, 'there is no such checkpoint. Give its path without '
                   'the endings of its files')
  try:
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    written = reading.settings(reader)
  except reading.ERRORS as e:
    raise _unreadable(path, e) from e
  _check_meaning(path, written, config)
  _check_network(path, shapes, trained['params'])
  try:
    # There is more in it: counters and configuration.
    tf.train.Checkpoint(**trained).restore(
        path).expect_partial().assert_existing_objects_matched()
  except reading.ERRORS as e:
    raise _unreadable(path, e) from e


def _check_meaning(path, written, config):
  """Refuses an agent with whose settings the same weights mean something else.

  Args:
    path: Of the checkpoint.
    written: The settings of the run that it is of, a dict.
    config: Those of this run.
  """
  if written.get('agent') != config['agent']:
    return  # Then the weights have other names.
  there, here = (config_lib.effective_values(values, config_lib.IDENTITY)
                 for values in (written, config))
  # Those that all agents have show in the shapes of the weights, or may differ,
  # as the level.
  for name, value in here.items():
    if (config_lib.SETTINGS[name].agent == config['agent'] and
        there[name] != value):
      raise _refusal(
          path, f'it was trained with --{name}={there[name]}, and with '
          f'--{name}={value} its weights would mean something else. Give '
          f'--{name}={there[name]}, or another checkpoint')


def _check_network(path, shapes, params):
  found = {_ESCAPE.sub(_unescape, match.group(1)): shape
           for match, shape in ((_WEIGHT.fullmatch(key), shape)
                                for key, shape in shapes.items()) if match}
  for name in sorted(params.keys() | found.keys()):
    there = found.get(name, 'missing')
    here = params[name].shape.as_list() if name in params else 'missing'
    if there != here:
      raise _refusal(path, f'the weight {name} is {there} there and {here} '
                     'here. It has to be of the same network, on observations '
                     'and actions alike')


def _unescape(match):
  return '/' if match.group() == '.S' else '.'


def _unreadable(path, error):
  return _refusal(path, f'it cannot be read: {errors.first_line(error)}')


def _refusal(path, expected):
  return config_lib.refusal('warm_start', path, expected)
