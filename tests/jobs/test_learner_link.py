"""What actor jobs that have the policy have in common."""

import threading
import time

import pytest

from scalable_agent.jobs import learner_link
from scalable_agent.jobs import policy_at_actor
from scalable_agent.jobs import worker
from scalable_agent.process import allocator
from tests import learners
from tests.jobs import test_worker

pytestmark = pytest.mark.usefixtures('bounded')


class _StartingPool(test_worker._Pool):
  """An environment whose first output takes until `start`."""

  def __init__(self):
    super().__init__()
    self._has_started = threading.Event()

  def start(self):
    self._has_started.set()

  def recv(self):
    self._has_started.wait()
    return super().recv()

  def close(self):
    super().close()
    self.start()


@pytest.mark.parametrize('acting, architecture', [
    (policy_at_actor, 'impala'), (worker, 'a3c')])
def test_a_learner_expects_nothing_of_environments_that_start(
    acting, architecture, monkeypatch):
  """Which may take longer than it waits for a batch."""
  monkeypatch.setattr(allocator, 'keep_freed_memory', lambda: None)
  monkeypatch.setattr(learner_link, '_REPORT_SECONDS', .01)
  agent, pool = learners.make_agent(), _StartingPool()
  with test_worker._serving(
      agent, agent.initial_params(0), 0, architecture=architecture) as (
          server, queue):
    actors = acting.Actors(
        test_worker._config(architecture, job_name='actor'), [pool],
        f'127.0.0.1:{server._service.port}', test_worker._SECURITY)
    try:
      while not server._service.num_jobs:  # It would hear of the end.
        actors.check()
        time.sleep(.01)
      time.sleep(.5)
      actors.check()
      assert not server.are_expected()
      pool.start()
      test_worker._take(queue, actors.check)
      assert server.are_expected()
    finally:
      pool.close()
      actors.close()
