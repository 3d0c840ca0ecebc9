"""What environments may return, and how else is described."""

import math

import numpy as np
import pytest

from scalable_agent.environments import contract

_FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize('value, expected', [
    (None, 'None'),
    (3.5, 'float 3.5'),
    ('a\nb', r"str 'a\nb'"),
    (np.zeros([1], np.float32), 'float32 (1,)'),
    (np.array('x'), '<U1 ()'),
    (['1', '2'], "list ['1', '2'] of length 2"),
    ((np.zeros(2),), 'tuple (array([0., 0.]),) of length 1'),
    (np.float64(2.), 'float64 2.0'),
])
def test_descriptions(value, expected):
  assert contract.describe(value) == expected


def test_descriptions_are_one_short_line():
  for value in ('x' * 10**6, list(range(10**5)), 10**1000,
                [np.zeros([50, 50])] * 9):
    text = contract.describe(value)
    assert '\n' not in text and len(text) < 300


@pytest.mark.parametrize('reward, expected', [
    (2, 2.), (True, 1.), (1.5, 1.5), (np.float32(1.5), 1.5), (np.int64(3), 3.),
    (np.array(1.5), 1.5), (np.array([1.5]), 1.5), (np.bool_(True), 1.),
    (math.inf, math.inf), (1e300, 1e300)])
def test_rewards(reward, expected):
  result = contract.to_reward(reward)
  assert (type(result), result) == (float, expected)


def test_a_reward_that_is_not_a_number_is_the_learners_business():
  assert math.isnan(contract.to_reward(math.nan))
  assert math.isnan(contract.to_reward(np.float32(math.nan)))


@pytest.mark.parametrize('reward', [
    None, '3.5', b'3.5', np.str_('3.5'), np.array('3.5'), np.array(['3.5']),
    np.array('3.5', object), np.zeros(2), np.zeros(0), [1.], {}, 1j,
    np.array(1j), 10**400])
def test_what_is_no_reward(reward):
  with pytest.raises(contract.ContractError,
                     match='^the reward is .*, expected a number$'):
    contract.to_reward(reward)


def test_truth_values():
  for value in (True, np.bool_(True), np.array(True), np.array([True])):
    assert contract.to_bool(value) is True
  for value in (False, np.bool_(False), np.array(False)):
    assert contract.to_bool(value) is False


@pytest.mark.parametrize('value', [
    None, 0, 1, 1., 'False', [], np.int64(1), np.array(1), np.zeros(2, bool),
    np.zeros(0, bool), np.array('True')])
def test_what_is_no_truth_value(value):
  with pytest.raises(contract.ContractError,
                     match='^truncated is .*, expected True or False$'):
    contract.to_bool(value, 'truncated')


def test_arrays():
  for value in (np.ones(2, np.float32), np.ones(2, np.float32)[::1],
                np.ma.ones(2, np.float32)):
    np.testing.assert_array_equal(
        contract.to_array(value, (2,), _FLOAT), [1., 1.])
  assert contract.to_array(np.float32(2.), (), _FLOAT) == 2.


@pytest.mark.parametrize('value, seen', [
    (np.ones(1, np.float32), r'float32 \(1,\)'),
    (np.ones([2, 1], np.float32), r'float32 \(2, 1\)'),
    (np.float32(1.), 'float32 1.0'), (1., 'float 1.0'), (None, 'None'),
    (np.ones(2), r'float64 \(2,\)'), (np.ones(2, np.int32), r'int32 \(2,\)'),
    (np.ones(2, '>f4'), r'>f4 \(2,\)'), ('ab', "str 'ab'"),
    (['1', '2'], 'list .* of length 2'), ([1., 2.], 'list .* of length 2'),
    ([[1.], [1., 2.]], 'list .* of length 2'), ({}, 'dict {}')])
def test_what_is_no_such_array(value, seen):
  with pytest.raises(
      contract.ContractError,
      match=rf'^the observation is {seen}, expected float32 \(2,\)$'):
    contract.to_array(value, (2,), _FLOAT)
