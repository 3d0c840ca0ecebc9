"""What environments have to return, checked in the processes that step them.

NumPy accepts much else: to fill an array it repeats a number, reads text as a
number, and takes None for NaN. The agent would learn from that, and nobody
would notice.
"""

import reprlib

import numpy as np

from scalable_agent.environments import PoolError


class ContractError(PoolError):
  """An environment returned what it must not; the message says what.

  A new one in its place would do the same, so it is not replaced.
  """


def describe(value):
  """Returns a few words about a value of any type."""
  if value is None:
    return 'None'
  if isinstance(value, np.ndarray):
    return f'{value.dtype} {value.shape}'
  name = type(value).__name__
  if isinstance(value, np.generic):
    value = value.item()
  text = f'{name} {" ".join(reprlib.repr(value).split())}'
  if isinstance(value, (tuple, list)):
    return f'{text} of length {len(value)}'
  return text


def refusal(what, seen, expected):
  """Returns the error that refuses what an environment returned.

  Args:
    what: Its name, such as 'reward'.
    seen: What was returned.
    expected: A string that says what should have been.
  """
  return ContractError(f'{what} is {describe(seen)}, expected {expected}')


def check_length(observation, count):
  """Checks that an observation consists of `count` arrays.

  Raises:
    ContractError: It does not.
  """
  if not isinstance(observation, (tuple, list)) or len(observation) != count:
    raise refusal('the observation', observation, f'a tuple of length {count}')


def to_array(value, shape, dtype):
  """Returns what an environment observed as an array.

  Args:
    value: Of any type, such as an `np.ndarray`, or a scalar of NumPy's.
    shape: The array's, a tuple.
    dtype: The array's, an `np.dtype`.

  Raises:
    ContractError: It has another shape or dtype.
  """
  array = as_array(value, shape, dtype)
  if array.shape != shape or array.dtype != dtype:
    raise observation_refusal(value, shape, dtype)
  return array


def as_array(value, shape, dtype):
  """Returns `np.asarray(value)`.

  Args:
    value: Of any type.
    shape: What is expected, for the error.
    dtype: Likewise.

  Raises:
    ContractError: There is no such array, for instance of rows that differ in
      length.
  """
  try:
    return np.asarray(value)
  except (TypeError, ValueError) as e:
    raise observation_refusal(value, shape, dtype) from e


def observation_refusal(value, shape, dtype):
  """Returns the error that refuses an array of an observation."""
  return refusal('the observation', value, f'{np.dtype(dtype)} {shape}')


def to_reward(value):
  """Returns a reward as a float, NaN and infinity included.

  Args:
    value: A number, or an array of one.

  Raises:
    ContractError: It is something else, such as None or text.
  """
  number = value
  if isinstance(value, np.ndarray):
    number = value.item() if value.size == 1 else None
  # Text is what `float` would read.
  if not isinstance(number, (str, bytes, bytearray)):
    try:
      return float(number)
    except (TypeError, ValueError, OverflowError):
      pass
  raise refusal('the reward', value, 'a number')


def to_bool(value, name='done'):
  """Returns a truth value as a bool.

  Args:
    value: A bool of Python's or NumPy's, or an array of one.
    name: What it is called.

  Raises:
    ContractError: It is something else, such as None or 0.
  """
  if isinstance(value, np.ndarray) and value.size == 1:
    truth = value.item()
  else:
    truth = value
  if not isinstance(truth, (bool, np.bool_)):
    raise refusal(name, value, 'True or False')
  return bool(truth)
