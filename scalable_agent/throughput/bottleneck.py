"""What the training loop would reach at best, and what limits it.

The ideal is what the loop would reach if parts that share a resource took turns
on it without a moment lost:

    1 / (1 / environments + 1 / inference + 1 / learner)

where all run on the CPU. Parts on another device have a sum of their own, and
the slowest device decides.
"""

from scalable_agent import suites

# The frames of an update grow with the batch, but for Reactor.
_FLAGS_OF_LEARNER = dict(
    impala='--batch_size, --num_learner_devices or a smaller --network',
    reactor='a larger --steps_per_update, a smaller --batch_size, '
            '--num_learner_devices or a smaller --network')


def find_resources(config, devices):
  """Returns what each part occupies, a dict; parts of one resource take turns.

  Args:
    config: A `config.Config`.
    devices: A `devices.Devices`.
  """
  kind = lambda device: 'cpu' if 'cpu' in device else device
  return dict(
      environments='sleep' if suites.of(config).only_waits else 'cpu',
      inference=kind(devices.inference),
      learner=kind(devices.learner[0]))


def ideal_rate(rates, resources):
  """The rate without a moment lost.

  Args:
    rates: A dict of part to rate alone.
    resources: A dict of part to what it occupies.

  Returns:
    The rate of the slowest resource, whose parts take turns on it.
  """
  return min(1 / sum(1 / rates[part] for part in rates
                     if resources[part] == resource)
             for resource in set(resources.values()))


def advice(figures, resources, agent, num_cores):
  """Says in one line what limits the loop and which flag to turn.

  Args:
    figures: A dict of part to its rate alone; `cores` in use, and `times`, see
      `loop.measure_loop`.
    resources: A dict of part to what it occupies.
    agent: `--agent`.
    num_cores: Of the machine, an int.
  """
  rates = {part: figures[part] for part in resources}
  slowest = min(rates, key=rates.get)
  flag = dict(
      environments='--num_actors or --environment_threads, or more cores',
      inference='--num_pools (more threads that act), or --pool_batch_size or '
                '--num_actors (larger batches)',
      learner=_FLAGS_OF_LEARNER[agent])
  if figures['cores'] > .85 * num_cores:
    return (f'The CPU is: {figures["cores"]:.1f} of {num_cores} cores are '
            f'busy, most of all with the {slowest}. Only more cores or less '
            'work per frame help.')
  if figures['times'].get('learner_wait', 0.) < .1:
    return f'The learner is, it hardly waits. Try {flag["learner"]}.'
  times = {part: figures['times'].get(f'actor_{part}', 0.)
           for part in ('environments', 'inference')}
  limit = max(times, key=times.get)
  return (f'The actors are: of each second, their threads together spend '
          f'{times[limit]:.1f} s on {limit}. Try {flag[limit]}.')
