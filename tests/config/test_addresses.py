"""Addresses that settings name."""

import pytest

from scalable_agent import config as config_lib
from scalable_agent.config import addresses


@pytest.mark.parametrize('address, expected', [
    ('localhost:8000', ('localhost', 8000)),
    ('learner-0.example.org:1', ('learner-0.example.org', 1)),
    ('10.0.0.1:65535', ('10.0.0.1', 65535)),
    ('[::1]:80', ('::1', 80)),
    ('[fe80::1:2]:8000', ('fe80::1:2', 8000)),
])
def test_split(address, expected):
  assert addresses.split('replay_host', address) == expected
  assert addresses.join(*expected) == address


@pytest.mark.parametrize('address', [
    '', 'localhost', ':8000', 'localhost:', 'localhost:http', 'localhost:0',
    'localhost:-1', 'localhost:65536', 'localhost:٣', '::1:8000', '[::1]',
    '[]:80', '[localhost]:80', '[::1:80', 'http://host:80', 'a b:80', 'a/b:80',
    'unix:/tmp/s:80', 'host\n:80', 'localhost:²', 'a..b:80', '.a:80', '-a:80',
    'a.b..:80', f'{"a" * 64}:80'])
def test_split_refuses(address):
  with pytest.raises(
      config_lib.ConfigError, match='--replay_host: .*host:port'):
    addresses.split('replay_host', address)
