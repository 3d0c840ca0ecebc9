"""Actor threads, as the training loop sees them."""

import types

import pytest

from scalable_agent.training import actor_threads


@pytest.fixture(name='make')
def _make(monkeypatch):
  """Makes `ActorThreads` whose threads do nothing."""
  monkeypatch.setattr(
      actor_threads.threads, 'CheckedThreads', lambda pools, act: None)
  monkeypatch.setattr(actor_threads.film, 'Camera', lambda pool: pool)
  return lambda *pools: actor_threads.ActorThreads(
      None, list(pools), None, None, None, None, None)


def _replacing(num_replaced=0):
  return types.SimpleNamespace(has_started=False, num_replaced=num_replaced)


def test_unrolls_are_expected_once_all_environments_have_started(make):
  first, second = _replacing(), _replacing()
  threads = make(first, second, object())
  assert not threads.are_expected()
  first.has_started = True
  assert not threads.are_expected()
  second.has_started = True
  assert threads.are_expected()


def test_pools_that_replace_nothing_are_not_asked(make):
  threads = make(object())
  assert threads.are_expected()
  assert threads.gauges() == {}


def test_what_was_replaced_is_summed(make):
  assert make(_replacing(2), _replacing(3)).gauges() == dict(num_replaced=5)
