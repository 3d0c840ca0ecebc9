r"""Measures where a machine's time goes, and compares architectures.

    python -m scalable_agent.benchmark --level_name=pong
    python -m scalable_agent.benchmark --compare
    python -m scalable_agent.benchmark --part=transport
    python -m scalable_agent.benchmark --part=replay
    python -m scalable_agent.benchmark --plan --cores=500 --gpus=1

takes the experiment's flags. The first measures environments, inference,
learner and data path alone, each with the whole machine to itself, and then the
training loop. The ideal is what the loop would reach if parts that share a
resource took turns on it without a moment lost:

    1 / (1 / environments + 1 / inference + 1 / learner)

where all run on the CPU; what runs on another device counts by itself, and the
slowest decides.

The second runs batched A2C and IMPALA, as in the paper's Table 1, on one
machine with the same work: on a level whose steps take the same time, and on
one where they vary and resets are slow.

The third measures what passes between actor jobs and a learner (`transport`),
the fourth what a replay job serves to learners (`shared_replay`). The last
measures the parts, the training loop and the transport, and says what a cluster
of such cores would reach, and what limits it (`plan`).
"""

import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import os
import sys
import tempfile

from absl import flags
from absl import logging

from scalable_agent import config as config_lib
from scalable_agent import experiment
from scalable_agent.environments import PoolError
from scalable_agent.files import whole_file
from scalable_agent.process import binary
from scalable_agent.process import tensorflow_environment
from scalable_agent.throughput import shared_replay
from scalable_agent.throughput import transport

# Functions import what loads TensorFlow: bad flags are answered before that,
# and processes of the transport do without it.

FLAGS = flags.FLAGS

flags.DEFINE_float(
    'measure_secs', 10., 'Seconds to measure each part for, after a warm-up of '
    'a fifth of it, or of one call of every connection; the whole loop takes '
    'twice that, and each batch of inference a quarter.')
flags.DEFINE_enum(
    'part', 'all', ['all', 'transport', 'replay'], 'What to measure: the '
    'training loop and all of its parts, the transport between actor jobs and '
    'a learner, or what a replay job serves.')
flags.DEFINE_list(
    'connections', [str(count) for count in transport.CONNECTIONS],
    'Numbers of connections to measure the transport with.')
flags.DEFINE_list(
    'unrolls_per_call', [str(count) for count in transport.UNROLLS_PER_CALL],
    'Numbers of unrolls to send at once over each of --connections.')
flags.DEFINE_integer(
    'learners', shared_replay.NUM_LEARNERS, 'Learners that --part=replay '
    'serves.', lower_bound=1)
flags.DEFINE_integer(
    'drawn', 0, 'Unrolls that each of them draws at a time; 0 takes those of '
    'LASER, 123 for Atari and 28 for DeepMind Lab.', lower_bound=0,
    upper_bound=shared_replay.MAX_DRAWN)
flags.DEFINE_string('json', '', 'File to write the figures to as JSON.')
flags.DEFINE_bool(
    'compare', False, 'Compare batched A2C and IMPALA on --compare_levels '
    'instead of measuring the parts on --level_name.')
flags.DEFINE_list(
    'compare_levels',
    ['synthetic:step_ms=20;std=0.1;size=16',
     'synthetic:step_ms=20;std=1;reset_ms=1000;episode_steps=250;size=16'],
    'Levels to compare on. Options of synthetic levels have ; between them '
    'here.')

flags.DEFINE_bool(
    'plan', False, 'Say what a cluster would reach with actor jobs of one core '
    'each, from what the parts cost on this machine.')
flags.DEFINE_integer(
    'cores', 500, 'Cores of the cluster to plan, like those of this machine.',
    lower_bound=1)
flags.DEFINE_integer(
    'gpus', 0, 'Its GPUs, one for each learner. With 0, one learner makes its '
    'updates on cores.', lower_bound=0)
flags.DEFINE_float(
    'gpu_rate', 0., 'Frames/s that updates reach on one of its GPUs, as a '
    'benchmark there says. 0: unknown.', lower_bound=0.)
flags.DEFINE_float(
    'network_gbps', 10., 'Of each learner\'s machine, in 10^9 bits per second '
    'each way.', lower_bound=1e-3)

# Rows of the paper's Table 1 but A3C: name, architecture, dynamic batching.
ARCHITECTURES = (
    ('batched A2C (sync step)', 'a2c_sync_step', True),
    ('batched A2C (sync trajectory)', 'a2c_sync_trajectory', True),
    ('IMPALA', 'impala', False),
    ('IMPALA (dynamic batching)', 'impala', True))


def _whole(config, devices, seconds):
  from scalable_agent.throughput import parts

  with tempfile.TemporaryDirectory() as logdir:
    return parts.measure_whole(
        dataclasses.replace(config, logdir=logdir),
        parts.make_pools(config), devices, seconds)


def _resources(config, devices):
  """What each part occupies; parts with the same resource take turns."""
  kind = lambda device: 'cpu' if 'cpu' in device else device
  return dict(
      environments='sleep' if config.suite == 'synthetic' else 'cpu',
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


def advice(figures, resources, num_cores):
  """Says in one line what limits the loop and which flag to turn."""
  rates = {part: figures[part] for part in resources}
  slowest = min(rates, key=rates.get)
  flag = dict(
      environments='--num_actors or --environment_threads, or more cores',
      inference='--pool_batch_size (larger batches) or --num_actors',
      learner='--batch_size, --num_learner_devices or a smaller --network')
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


def _name(config):
  return config.agent if config.agent == 'reactor' else config.architecture


def _measure_parts(config, seconds):
  from scalable_agent.throughput import parts

  logging.info('Measuring each part of %s on %s alone for %g s',
               _name(config), config.level_name, seconds)
  # TensorFlow's threads cannot be changed once it runs, and alone a part may
  # use all cores.
  with concurrent.futures.ProcessPoolExecutor(
      1, multiprocessing.get_context('spawn'),
      tensorflow_environment.load) as executor:
    return executor.submit(parts.measure_parts, config, seconds).result()


def measure(config, seconds):
  """Measures all parts and the whole.

  Args:
    config: A `config.Config`.
    seconds: For each part.

  Returns:
    A dict of `environments`, `inference`, `learner`, `data_path` and `ideal` in
    frames per second; what `parts.measure_whole` returns; `efficiency`,
    whole / ideal; `environment_utilisation`, whole / environments;
    `inference_by_batch`; `bottleneck`, a sentence; and `machine` and `config`.
  """
  tensorflow_environment.load()
  from scalable_agent.assembly import devices as devices_assembly

  figures = _measure_parts(config, seconds)
  num_cores = len(os.sched_getaffinity(0))
  devices = devices_assembly.choose(config)
  resources = _resources(config, devices)
  figures['ideal'] = ideal_rate(
      {part: figures[part] for part in resources}, resources)
  logging.info('Measuring %s on %s as a whole for %g s', _name(config),
               config.level_name, 2 * seconds)
  figures.update(_whole(config, devices, 2 * seconds))
  figures['efficiency'] = figures['whole'] / figures['ideal']
  figures['environment_utilisation'] = (
      figures['whole'] / figures['environments'])
  figures['bottleneck'] = advice(figures, resources, num_cores)
  figures['machine'] = _machine(num_cores)
  figures['config'] = dataclasses.asdict(config)
  return figures


def make_plan(config, seconds):
  """Measures what a frame costs here, and says what the flags' cluster reaches.

  Args:
    config: A `config.Config`.
    seconds: For each part.

  Returns:
    A dict of `costs` and `cluster`, see `plan`, and `limits`, a dict of
    resource to the frames/s that it allows, None if that is unknown.
  """
  tensorflow_environment.load()
  from scalable_agent.assembly import devices as devices_assembly
  from scalable_agent.throughput import plan
  from scalable_agent.throughput import plan_costs

  shape = plan_costs.shape_of(config)
  core_seconds = _measure_parts(config, seconds)['core_seconds']
  logging.info('Measuring the training loop for %g s', 2 * seconds)
  whole = _whole(config, devices_assembly.choose(config), 2 * seconds)
  logging.info('Measuring the transport for %g s', seconds)
  costs = plan_costs.measure(config, shape, core_seconds, whole, seconds)
  cluster = plan.Cluster(
      FLAGS.cores, FLAGS.gpus, FLAGS.gpu_rate, FLAGS.network_gbps,
      config.frames_per_unroll, config.frames_per_step,
      plan_costs.unrolls_begun_at_once(config))
  print(*plan.lines(costs, cluster), sep='\n')
  return dict(
      costs=dict(costs._asdict(), transport=costs.transport._asdict()),
      cluster=cluster._asdict(),
      limits={limit.name: None if math.isnan(limit.rate) else limit.rate
              for limit in plan.limits(costs, cluster)})


def _machine(num_cores):
  import tensorflow as tf

  return dict(
      cores=num_cores,
      gpus=[tf.config.experimental.get_device_details(gpu).get('device_name')
            for gpu in tf.config.list_physical_devices('GPU')],
      tensorflow=tf.__version__)


def compare(make_config, levels, seconds):
  """Runs every architecture on every level.

  Args:
    make_config: A function of a dict of flag values that returns a
      `config.Config`.
    levels: A list of level names.
    seconds: For each.

  Returns:
    A dict of `levels`: level to a list, in the order of `ARCHITECTURES`, of
    dicts `name`, `architecture`, what `parts.measure_whole` returns, and
    `environment_utilisation` by the environments alone; and `machine`.
  """
  configs = [
      make_config(dict(level_name=level, architecture='a2c_sync_step'))
      for level in levels]
  tensorflow_environment.load()
  from scalable_agent.assembly import devices as devices_assembly
  from scalable_agent.throughput import parts

  results = {}
  for level, config in zip(levels, configs, strict=True):
    devices = devices_assembly.choose(config)
    impala = dataclasses.replace(config, architecture='impala')
    logging.info('Measuring the environments of %s alone for %g s', level,
                 seconds)
    pools = parts.make_pools(impala)
    environments = parts.measure_environments(impala, pools, seconds).rate
    for pool in pools:
      pool.close()
    results[level] = []
    for name, architecture, dynamic in ARCHITECTURES:
      logging.info('Measuring %s on %s for %g s', name, level, seconds)
      figures = _whole(
          dataclasses.replace(
              config, architecture=architecture,
              pool_batch_size=config.pool_batch_size if dynamic else 1),
          devices, seconds)
      results[level].append(dict(
          figures, name=name, architecture=architecture,
          environment_utilisation=figures['whole'] / environments))
  return dict(levels=results, machine=_machine(len(os.sched_getaffinity(0))))


def _print_figures(figures):
  for name in ('environments', 'inference', 'learner', 'data_path', 'ideal',
               'whole'):
    print(f'{name:24s} {figures[name]:10.0f} frames/s')
  for name in ('efficiency', 'environment_utilisation'):
    print(f'{name:24s} {100 * figures[name]:10.1f} %')
  print(f'{"cores":24s} {figures["cores"]:10.2f} of '
        f'{figures["machine"]["cores"]}')
  print(f'{"memory":24s} {figures["memory_mib"]:10.0f} MiB')
  for name, unit in (('queue_size', 'unrolls'),
                     ('inference_batch', 'environments'),
                     ('policy_lag', 'updates')):
    values = figures[name]
    print(f'{name:24s} {values["mean"]:10.1f} {unit} '
          f'({values["min"]} to {values["max"]})')
  for size, value in figures['inference_by_batch'].items():
    print(f'{"inference, batch " + size:24s} {value:10.0f} frames/s')
  for name, share in figures['times'].items():
    print(f'{name:24s} {100 * share:10.1f} % of the time')
  print(f'What limits it: {figures["bottleneck"]}')


def _print_comparison(comparison):
  for level, rows in comparison['levels'].items():
    print(level)
    for row in rows:
      print(f'  {row["name"]:32s} {row["whole"]:10.0f} frames/s '
            f'{100 * row["environment_utilisation"]:6.1f} % of the '
            f'environments alone, {row["cores"]:.2f} cores')


def _counts(flag):
  """The value of a flag that lists numbers."""
  for text in FLAGS[flag].value:
    if not text.isdecimal() or int(text) < 1:
      raise config_lib.ConfigError(
          f'--{flag}: {text!r} is no number of 1 or more.')
  return [int(text) for text in FLAGS[flag].value]


def main(argv):
  """Measures what the flags say; ends with one line where it cannot."""
  try:
    experiment.refuse_arguments(argv)
    if FLAGS.json:  # Before everything is measured.
      with config_lib.writing('json', FLAGS.json):
        whole_file.check(FLAGS.json)
    if FLAGS.part == 'transport':
      counts = _counts('connections'), _counts('unrolls_per_call')
      tensorflow_environment.load()
      figures = transport.measure_transport(FLAGS.measure_secs, *counts)
    elif FLAGS.part == 'replay':
      figures = shared_replay.measure_shared_replay(
          FLAGS.measure_secs, FLAGS.learners, FLAGS.drawn)
    elif FLAGS.plan:
      figures = make_plan(experiment.config_from_flags(), FLAGS.measure_secs)
    elif FLAGS.compare:
      levels = [level.replace(';', ',') for level in FLAGS.compare_levels]
      figures = compare(experiment.config_with, levels, FLAGS.measure_secs)
      _print_comparison(figures)
    else:
      figures = measure(experiment.config_from_flags(), FLAGS.measure_secs)
      _print_figures(figures)
  except (config_lib.ConfigError, PoolError) as e:
    sys.exit(f'Error: {e}')
  if FLAGS.json:
    with open(FLAGS.json, 'w') as f:
      f.write(json.dumps(figures, indent=2) + '\n')


if __name__ == '__main__':
  binary.run(main)
