"""What a learner says of itself to the replay job."""

import pytest

from scalable_agent import config as config_lib
from scalable_agent.jobs import replay_link
from scalable_agent.shared_replay import drawn_episodes
from scalable_agent.shared_replay import drawn_unrolls
from tests import failing_files
from tests.config import command_line
from tests.shared_replay import replay_parts


@pytest.fixture(name='start')
def _start(monkeypatch):
  """Starts a learner on a host; returns agent and name that it says it is."""
  monkeypatch.setattr(
      replay_link.agent_link, 'AgentLink',
      lambda address, agreement, agent, name, *rest: (agent, name))
  monkeypatch.setattr(drawn_unrolls, 'DrawnUnrolls', lambda link: link)

  def start(logdir, host):
    logdir.mkdir(exist_ok=True)
    monkeypatch.setattr(replay_link.socket, 'gethostname', lambda: host)
    return replay_link.start(_config(logdir))(replay_parts.FACTS)

  return start


def _config(logdir, **values):
  return command_line.resolve(
      logdir=str(logdir), level_name='pong', replay_proportion=.5,
      replay_host='localhost:1', **values)


@pytest.mark.parametrize('values, expected', [
    (dict(replay_state='stored'), drawn_unrolls.DrawnUnrolls),
    (dict(replay_state='recomputed', use_lstm=True),
     drawn_episodes.DrawnEpisodes)])
def test_what_is_drawn_is_what_is_replayed(tmp_path, values, expected):
  config = _config(tmp_path, **values)
  found = replay_link.start(config)(replay_parts.FACTS)
  found.close()
  assert isinstance(found, expected)


def test_an_agent_is_the_same_on_another_machine_and_no_other(tmp_path, start):
  agent, name = start(tmp_path / 'a', 'first')
  assert name == f'first:{tmp_path}/a'
  again, name = start(tmp_path / 'a', 'second')
  assert name == f'second:{tmp_path}/a' and again == agent
  # Under another path too, as where it is mounted elsewhere.
  (tmp_path / 'a').rename(tmp_path / 'moved')
  assert start(tmp_path / 'moved', 'first')[0] == agent
  assert start(tmp_path / 'a', 'first')[0] != agent


@pytest.mark.parametrize('damage', [b'', b'half', b'\xff' * 40])
def test_what_is_no_agent_is_replaced(tmp_path, start, damage):
  first, _ = start(tmp_path, 'host')
  (tmp_path / 'replay_agent').write_bytes(damage)
  agent, _ = start(tmp_path, 'host')
  assert len(agent) == len(first) and agent != first
  assert start(tmp_path, 'host')[0] == agent


def test_an_agent_stays_who_it_is_where_its_file_cannot_be_looked_at(
    tmp_path, start, monkeypatch):
  agent, _ = start(tmp_path, 'host')
  with monkeypatch.context() as patched:
    failing_files.fail(patched, 'replay_agent', times=1)
    with pytest.raises(config_lib.ConfigError, match='Input/output'):
      start(tmp_path, 'host')
  assert start(tmp_path, 'host')[0] == agent


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path, start):
  (tmp_path / 'replay_agent').mkdir()
  with pytest.raises(config_lib.ConfigError, match='replay_agent') as error:
    start(tmp_path, 'host')
  assert '\n' not in str(error.value)
