import platform

import pytest

from scalable_agent.process import tensorflow_environment

_NAMES = ['TF_USE_LEGACY_KERAS', 'TF_ENABLE_ONEDNN_OPTS']


@pytest.fixture
def environ(monkeypatch):
  """Variables that are not set."""
  environ = {}
  monkeypatch.setattr('os.environ', environ)
  return environ


def test_legacy_keras_and_onednn_are_chosen(environ, monkeypatch):
  monkeypatch.setattr(platform, 'machine', lambda: 'x86_64')
  tensorflow_environment.prepare()
  assert {name: environ.get(name) for name in _NAMES} == dict.fromkeys(
      _NAMES, '1')


def test_onednn_is_left_as_it_is_on_other_processors(environ, monkeypatch):
  monkeypatch.setattr(platform, 'machine', lambda: 'aarch64')
  tensorflow_environment.prepare()
  assert 'TF_ENABLE_ONEDNN_OPTS' not in environ


@pytest.mark.parametrize('name', _NAMES)
def test_what_the_user_has_set_stays(environ, name):
  environ[name] = '0'
  tensorflow_environment.prepare()
  assert environ[name] == '0'
