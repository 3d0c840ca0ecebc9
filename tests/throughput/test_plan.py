"""Plans of clusters, by costs that are easily multiplied."""

import math

import hypothesis
from hypothesis import strategies as st
import pytest

from scalable_agent.throughput import plan
from scalable_agent.throughput import transport

# Of a frame, in core-seconds. Unrolls are of 100 frames.
_TRANSPORT = transport.Costs(
    send_unroll=1e-3, receive_unroll=2e-3, send_weights=4e-3,
    receive_weights=8e-3, unroll_bytes=1e6, weights_bytes=1e7)
_COSTS = plan.Costs(1e-4, 2e-4, 3e-4, 4e-4, _TRANSPORT, together=1., busy=1.,
                    cores=2)


def _cluster(**values):
  return plan.Cluster(**dict(dict(
      cores=20, gpus=1, gpu_rate=0., network_gbps=8., frames_per_unroll=100,
      frames_per_update=2000, unrolls_at_once=1), **values))


def _rates(**values):
  return {limit.name: limit.rate
          for limit in plan.limits(_COSTS, _cluster(**values))}


def test_what_each_resource_allows():
  # 20 jobs, which fetch weights with every unroll: 1e-4 and 1.2e-4 s a frame.
  rates = _rates(gpu_rate=1234.)
  assert rates['cores'] == pytest.approx(20 / (6e-4 + 3e-5 + 1.2e-4))
  assert rates['learner, transport'] == pytest.approx(1 / (2e-5 + 4e-5))
  assert rates['network, unrolls'] == pytest.approx(1e9 / 1e4)
  assert rates['network, weights'] == pytest.approx(1e9 / 1e5)
  assert rates['GPUs'] == 1234.


def test_without_a_gpu_updates_are_on_the_cores():
  """Those of one machine, however many there are."""
  rates = _rates(gpus=0)
  assert 'GPUs' not in rates
  assert rates['cores'] == pytest.approx(20 / (6e-4 + 3e-5 + 1.2e-4 + 4e-4))
  for cores in (20, 500):
    assert _rates(gpus=0, cores=cores)['learner, update'] == pytest.approx(
        2 / 4e-4)
  costs = _COSTS._replace(together=1.25, busy=.9)
  (rate,) = [limit.rate for limit in plan.limits(costs, _cluster(gpus=0))
             if limit.name == 'learner, update']
  assert rate == pytest.approx(.9 * 2 / (1.25 * 4e-4))
  assert 'learner, update' not in _rates()


def test_a_machine_whose_cores_idle_is_named():
  for busy, is_named in ((.79, True), (.81, False)):
    text = '\n'.join(plan.lines(_COSTS._replace(busy=busy), _cluster()))
    assert is_named == ('Other programs take the rest, or something' in text)


def test_parts_cost_more_together_and_leave_cores_idle():
  costs = _COSTS._replace(together=1.25, busy=.9)
  rates = {limit.name: limit.rate for limit in plan.limits(costs, _cluster())}
  assert rates['cores'] == pytest.approx(
      20 * .9 / (1.25 * 6e-4 + 3e-5 + 1.2e-4))
  assert {name: rate for name, rate in rates.items()
          if name not in ('cores', 'GPUs')} == {
              name: rate for name, rate in _rates().items()
              if name not in ('cores', 'GPUs')}
  text = '\n'.join(plan.lines(costs, _cluster()))
  assert 'Of the cores\' time 90 % is used.' in text
  assert '250 cores and 25 learners' in text  # 250,000 * 0.9 ms / 0.9


def test_few_jobs_fetch_weights_once_an_update():
  assert plan.fetches_per_frame(_cluster(), 5) == pytest.approx(5 / 20 / 100)
  assert plan.fetches_per_frame(_cluster(), 500) == pytest.approx(1 / 100)


def test_unrolls_that_begin_at_once_take_weights_once():
  cluster = _cluster(unrolls_at_once=16)
  assert plan.fetches_per_frame(cluster, 1) == pytest.approx(1 / 2000)
  assert plan.fetches_per_frame(cluster, 500) == pytest.approx(1 / 1600)


def test_learners_share_what_is_theirs():
  one, two = _rates(gpu_rate=9.), _rates(gpu_rate=9., gpus=2)
  for name, rate in one.items():
    assert two[name] == pytest.approx(rate * (1 if name == 'cores' else 2))
  # Two send and receive all of the gradients once, four one and a half times.
  assert two['network, gradients'] == pytest.approx(1e9 * 2000 / 1e7)
  assert _rates(gpus=4)['network, gradients'] == pytest.approx(
      1e9 * 2000 / 1.5e7)


@pytest.mark.parametrize('gpus, gpu_rate, needed', [
    # The network brings weights for 10,000 frames/s of each learner.
    (1, 1e5, '25 learners'), (4, 1e5, '25 learners'), (4, 0., '25 learners'),
    (1, 5e3, '50 learners'), (4, 5e3, '50 learners')])
def test_learners_that_the_rate_of_the_paper_takes(gpus, gpu_rate, needed):
  """However many there are, since each adds as much."""
  *_, last = plan.lines(_COSTS, _cluster(gpus=gpus, gpu_rate=gpu_rate))
  assert last.endswith(f' cores and {needed}.')


def test_lines_name_the_lowest_and_what_would_help():
  text = '\n'.join(plan.lines(_COSTS, _cluster()))
  assert 'It would reach 10,000 frames/s.' in text
  assert 'The limit is: network, weights.' in text
  assert 'unknown, see --gpu_rate' in text
  assert 'updates at 10,000 frames/s' in text
  # 250,000 frames/s at 0.75 ms, and 25 times what one network carries.
  assert '188 cores and 25 learners' in text
  text = '\n'.join(plan.lines(_COSTS, _cluster(gpu_rate=9.)))
  assert 'It would reach 9 frames/s. The limit is: GPUs.' in text
  assert 'unknown' not in text


@hypothesis.given(
    cores=st.integers(1, 5000), gpus=st.integers(0, 16),
    gpu_rate=st.floats(0., 1e6), gbps=st.floats(.001, 1000.))
def test_more_of_anything_is_never_slower(cores, gpus, gpu_rate, gbps):
  values = dict(cores=cores, gpus=gpus, gpu_rate=gpu_rate, network_gbps=gbps)
  lowest = plan.limits(_COSTS, _cluster(**values))[0]
  assert not math.isnan(lowest.rate)
  for name, more in (('network_gbps', 2 * gbps), ('cores', cores + 1)):
    faster = plan.limits(_COSTS, _cluster(**dict(values, **{name: more})))[0]
    # A job more fetches weights more often, until all do with every unroll.
    if name == 'network_gbps' or cores >= 20:
      assert faster.rate >= lowest.rate * (1 - 1e-9)
