"""Takes the weights and the optimizer's slots of another run's checkpoint."""

import os
import re

import tensorflow as tf

from scalable_agent.checkpoints import reading
from scalable_agent.config import settings
from scalable_agent.process import errors

_WEIGHT = re.compile('params/(.+)/.ATTRIBUTES/VARIABLE_VALUE')


def restore(path, trained):
  """Restores what was trained, and nothing else, from a checkpoint.

  Args:
    path: Of the checkpoint, without the endings of its files.
    trained: A dict of what to restore, as in a checkpoint; `params` is a dict
      of name to variable.

  Raises:
    ConfigError: There is no such checkpoint, it cannot be read, or it is of
      another network.
  """
  _check_network(path, trained['params'])
  try:
    # There is more in it: counters and configuration.
    tf.train.Checkpoint(**trained).restore(
        path).expect_partial().assert_existing_objects_matched()
  except reading.ERRORS as e:
    raise _unreadable(path, e) from e


def _check_network(path, params):
  if not os.path.exists(f'{path}.index'):
    raise _refusal(path, 'there is no such checkpoint. Give its path without '
                   'the endings of its files')
  try:
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
  except reading.ERRORS as e:
    raise _unreadable(path, e) from e
  # TensorFlow writes the slashes of a name like this.
  found = {match.group(1).replace('.S', '/'): shape
           for match, shape in ((_WEIGHT.fullmatch(key), shape)
                                for key, shape in shapes.items()) if match}
  for name in sorted(params.keys() | found.keys()):
    there = found.get(name, 'missing')
    here = params[name].shape.as_list() if name in params else 'missing'
    if there != here:
      raise _refusal(path, f'the weight {name} is {there} there and {here} '
                     'here. It has to be of the same network, on observations '
                     'and actions alike')


def _unreadable(path, error):
  return _refusal(path, f'it cannot be read: {errors.first_line(error)}')


def _refusal(path, expected):
  return settings.refusal('warm_start', path, expected)
