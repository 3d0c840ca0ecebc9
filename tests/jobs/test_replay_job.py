"""What a replay job makes of its settings, and what it says of itself."""

import inspect
import logging as python_logging

import pytest

from scalable_agent import config as config_lib
from scalable_agent import suites
from scalable_agent.jobs import replay_job
from scalable_agent.process import signals
from scalable_agent.remote import security as security_lib
from scalable_agent.shared_replay import protocol

_LEVEL = 'synthetic:size=4'
_GAUGES = dict(
    replay_unrolls=31, replay_mb=2.5, learners=2, inserted_mb_per_second=.5,
    replay_mb_per_second=1.5, replay_age_mean=12.)


class _Stop(signals.Stop):
  """Says stop after a line of the log."""

  def wait(self, timeout=None):
    was_set = self.is_set()
    self.set()
    return was_set


class _Service:
  """Takes the place of the service, and is asked how it was made.

  Attributes:
    arguments: A dict of name to value, of the service and of its contents.
    is_closed: Whether it is.
  """

  def __init__(self, gauges, contents, **arguments):
    self.arguments = dict(arguments, **contents)
    self.is_closed = False
    self._gauges = gauges

  def take_gauges(self):
    return self._gauges

  def close(self):
    self.is_closed = True


def _run(monkeypatch, lacks_memory=False, **values):
  """Runs a replay job; returns its `Config` and its `_Service`."""
  config = config_lib.resolve(dict(
      values, level_name=_LEVEL, job_name='replay',
      replay_host='localhost:4321', unroll_length=5, replay_capacity=40,
      replay_agents=3, seed=7))
  services = []

  def create(address, offer, contents, security):
    services.append(_Service(
        dict(_GAUGES, lacks_memory=lacks_memory), contents, address=address,
        offer=offer, security=security))
    return services[0]

  monkeypatch.setattr(replay_job.service_lib, 'Service', create)
  signature = inspect.signature(replay_job.contents_lib.Contents)
  monkeypatch.setattr(replay_job.contents_lib, 'Contents',
                      lambda *args: signature.bind(*args).arguments)
  # It is for the whole process.
  monkeypatch.setattr(replay_job.allocator, 'keep_freed_memory', lambda: None)
  replay_job.run(config, _Stop())
  (service,) = services
  assert service.is_closed
  return config, service


@pytest.mark.parametrize('replay_state, unroll_length', [
    ('stored', 0), ('recomputed', 5)])
def test_every_value_comes_where_it_belongs(
    monkeypatch, replay_state, unroll_length):
  asked = []
  monkeypatch.setattr(replay_job.memory_assembly, 'room',
                      lambda config: asked.append(config) or 123_456_789)
  config, service = _run(monkeypatch, replay_state=replay_state)
  facts = suites.find_facts(config)
  layout = service.arguments.pop('layout')
  offer = service.arguments.pop('offer')
  assert offer.layout is layout
  expected = protocol.unroll_layout(config, facts, num_levels=1)
  assert (layout.header, layout._bounds) == (expected.header, expected._bounds)
  assert asked == [config]
  assert offer._replace(layout=None) == (
      protocol.agreement(config, facts), [_LEVEL], None, 3)
  assert service.arguments == dict(
      address='localhost:4321', capacity=40, max_bytes=123_456_789, seed=7,
      security=security_lib.Security(), unroll_length=unroll_length)


@pytest.mark.parametrize('lacks_memory', [False, True])
def test_a_line_says_what_is_kept_and_whether_more_would_fit(
    monkeypatch, caplog, lacks_memory):
  caplog.set_level(python_logging.INFO)
  _run(monkeypatch, lacks_memory)
  text = ('31 of 40 unrolls, 2.5 MB; 2 learners; 0.5 MB/s in, 1.5 MB/s out, '
          '12 inserts old')
  assert caplog.messages[-1] == text + (
      '; more would not fit into memory' if lacks_memory else '')
