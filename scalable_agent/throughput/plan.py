"""Says what a cluster would reach, from what its parts cost on this machine.

Actor jobs of one core each act for a learner, or for several that share the
weights. A learner without a GPU has a machine like this one. Every frame costs
CPU time in each part, unrolls travel to a learner, and weights travel back.
Each resource allows a rate, in frames/s, and the lowest of them is what the
cluster reaches: the queues keep it busy.

Parts that run together cost another CPU time than alone, and leave cores idle
at times. Both are taken from the training loop on this machine.
"""

import collections
import math

# The last row of the paper's Table 1.
PAPER_RATE, PAPER_CORES = 250_000., 500
# Cores that are the limit are busy for at least this share of the time.
_LEAST_BUSY = .8

Costs = collections.namedtuple(
    'Costs',
    'environments inference unrolls update transport together busy cores')
Costs.__doc__ = """What is measured here.

  environments, inference: Core-seconds of a frame where it is acted: the
    environment's step and the policy.
  unrolls: Core-seconds of a frame on its way: the writing of unrolls, the queue,
    and batches, which a learner's cores make for its GPU too.
  update: Core-seconds of a frame in an update on CPUs.
  transport: A `transport.Costs`.
  together: CPU time of a frame in the training loop, divided by that of its
    parts alone.
  busy: Share of the cores' time that the training loop uses.
  cores: Of this machine, an int.
"""

Cluster = collections.namedtuple(
    'Cluster', 'cores gpus gpu_rate network_gbps frames_per_unroll '
    'frames_per_update unrolls_at_once')
Cluster.__doc__ = """Machines whose cores are like those of this one.

  cores: In all, an int.
  gpus: One for each learner; with 0 there is one learner, which updates on
    cores.
  gpu_rate: Frames/s of one GPU's updates; 0 if that is unknown.
  network_gbps: Of each learner's machine, 10^9 bits/s each way.
  frames_per_unroll: Environment frames.
  frames_per_update: New ones, of all learners together.
  unrolls_at_once: How many unrolls of an actor job begin at the same step.
"""

Limit = collections.namedtuple('Limit', 'name rate remedy')
Limit.__doc__ = """What a resource allows.

  name: Of the resource.
  rate: Frames/s; NaN if it is unknown.
  remedy: What to buy if it is the lowest, a clause.
"""


def fetches_per_frame(cluster, num_jobs):
  """How often weights are fetched for each frame, by all actor jobs together.

  A job fetches them where unrolls begin, if there are newer ones. So it fetches
  no more often than it begins unrolls, nor than there are updates.
  """
  return min(1. / (cluster.frames_per_unroll * cluster.unrolls_at_once),
             num_jobs / cluster.frames_per_update)


def core_seconds(costs, cluster):
  """Core-seconds that a frame takes by part, a dict; see `limits`."""
  sent = costs.transport
  fetches = fetches_per_frame(cluster, cluster.cores)
  alone = dict(environments=costs.environments, inference=costs.inference,
               unrolls=costs.unrolls)
  if not cluster.gpus:
    alone['update'] = costs.update
  transport = (
      (sent.send_unroll + sent.receive_unroll) / cluster.frames_per_unroll +
      fetches * (sent.send_weights + sent.receive_weights))
  return dict({part: costs.together * seconds
               for part, seconds in alone.items()}, transport=transport)


def limits(costs, cluster):
  """What each resource allows.

  Args:
    costs: A `Costs`.
    cluster: A `Cluster`.

  Returns:
    A list of `Limit`s, the lowest first.
  """
  parts = core_seconds(costs, cluster)
  largest = max(parts, key=parts.get)
  num_learners = max(cluster.gpus, 1)
  sent = costs.transport
  fetches = fetches_per_frame(cluster, cluster.cores)
  bytes_per_second = num_learners * cluster.network_gbps * 1e9 / 8
  found = [
      Limit('cores', cluster.cores * costs.busy / sum(parts.values()),
            f'more cores: most of their time goes into {largest}'),
      # One thread of each sends and receives.
      Limit('learner, transport', num_learners / (
          sent.receive_unroll / cluster.frames_per_unroll +
          fetches * sent.send_weights), 'one more learner'),
      Limit('network, unrolls',
            bytes_per_second * cluster.frames_per_unroll / sent.unroll_bytes,
            'a faster network, or one more learner'),
      Limit('network, weights',
            bytes_per_second / (fetches * sent.weights_bytes),
            'a faster network, longer unrolls, or one more learner')]
  if cluster.gpus:
    found.append(Limit(
        'GPUs', cluster.gpus * cluster.gpu_rate or math.nan, 'one more GPU'))
  else:
    found.append(Limit('learner, update', costs.cores * costs.busy / (
        costs.together * costs.update), 'a GPU'))
  if num_learners > 1:
    # In a ring, each sends and receives every gradient almost twice.
    rounds = 2 * (num_learners - 1) / num_learners
    found.append(Limit('network, gradients', (
        cluster.network_gbps * 1e9 / 8 * cluster.frames_per_update /
        (rounds * sent.weights_bytes)), 'a faster network, or larger batches'))
  return sorted(found, key=lambda limit: (math.isnan(limit.rate), limit.rate))


def lines(costs, cluster):
  """Says in words what a cluster reaches; returns a list of lines."""
  text = ['Core time of a frame, in microseconds:']
  text += [f'  {part:24s} {1e6 * seconds:10.2f}'
           for part, seconds in core_seconds(costs, cluster).items()]
  text.append(f'Of the cores\' time {100 * costs.busy:.0f} % is used.')
  if costs.busy < _LEAST_BUSY:
    text.append(
        'Other programs take the rest, or something else than the cores limits '
        'the training loop here. The plan then says too little of the cores.')
  text.append(f'Frames/s that {_name(cluster)} allow:')
  found = limits(costs, cluster)
  text += [f'  {limit.name:24s} ' + (
      f'{"unknown":>10s}, see --gpu_rate' if math.isnan(limit.rate) else
      f'{limit.rate:10,.0f}') for limit in found]
  lowest = found[0]
  text.append(f'It would reach {lowest.rate:,.0f} frames/s. The limit is: '
              f'{lowest.name}. What would help: {lowest.remedy}.')
  if cluster.gpus and not cluster.gpu_rate:
    text.append(f'Each GPU would have to make updates at '
                f'{lowest.rate / cluster.gpus:,.0f} frames/s.')
  seconds = sum(core_seconds(costs, cluster).values()) / costs.busy
  text.append(
      f'The paper reaches {PAPER_RATE:,.0f} frames/s on DeepMind Lab with '
      f'{PAPER_CORES} cores and a GPU (Table 1). By these figures that takes '
      f'{PAPER_RATE * seconds:,.0f} cores and {_learners(costs, cluster)}.')
  return text


def _learners(costs, cluster):
  """How many learners the paper's rate takes."""
  needed = max(
      math.ceil(PAPER_RATE * max(cluster.gpus, 1) / limit.rate)
      for limit in limits(costs, cluster)
      if limit.name not in ('cores', 'network, gradients') and
      not math.isnan(limit.rate))
  return '1 learner' if needed == 1 else f'{needed} learners'


def _name(cluster):
  gpus = {0: '', 1: ' and a GPU'}.get(
      cluster.gpus, f' and {cluster.gpus} GPUs')
  return f'{cluster.cores} cores{gpus}'
