r"""Measures where a machine's time goes, and compares architectures.

    python -m scalable_agent.benchmark --level_name=pong
    python -m scalable_agent.benchmark --compare
    python -m scalable_agent.benchmark --level_name=pong --part=learner
    python -m scalable_agent.benchmark --part=transport
    python -m scalable_agent.benchmark --part=replay
    python -m scalable_agent.benchmark --plan --cores=500 --gpus=1

takes the experiment's flags. The first measures environments, inference,
learner and data path alone, each with the whole machine to itself, then the
training loop, and says what limits it (`bottleneck`).

The second runs batched A2C and IMPALA, as in the paper's Table 1, on one
machine with the same work: on a level whose steps take the same time, and on
one where they vary and resets are slow.

The third measures updates and the policy with batches of several sizes
(`batch_sizes`), the fourth what passes between actor jobs and a learner
(`transport`), the fifth what a replay job serves to learners
(`shared_replay`). The last measures the parts, the training loop and the
transport, and says what a cluster of such cores would reach, and what limits it
(`plan`).
"""

import math
import sys

from absl import flags

from scalable_agent import config as config_lib
from scalable_agent.config import flags as config_flags
from scalable_agent.environments import PoolError
from scalable_agent.files import open_files
from scalable_agent.files import whole_file
from scalable_agent.machine import nvidia
from scalable_agent.process import binary
from scalable_agent.process import tensorflow_environment
from scalable_agent.process.errors import Failure
from scalable_agent.throughput import shared_replay
from scalable_agent.throughput import transport

# Functions import what loads TensorFlow: bad flags are answered before that,
# and processes of the transport do without it.

FLAGS = flags.FLAGS

flags.DEFINE_float(
    'measure_secs', 10., 'Seconds to measure each part for, after a warm-up of '
    'a fifth of it, or of one call of every connection; the whole loop takes '
    'twice that, except with --compare, and each batch of inference a '
    'quarter.', lower_bound=1e-3)
flags.DEFINE_enum(
    'part', 'all', ['all', 'learner', 'transport', 'replay'], 'What to '
    'measure: the training loop and all of its parts, updates and the policy '
    'by batch size, the transport between actor jobs and a learner, or what a '
    'replay job serves.')
flags.DEFINE_list(
    'batch_sizes', [], 'Unrolls per update to measure --part=learner with; '
    'if it is not set, those of --batch_size.')
flags.DEFINE_list(
    'policy_batch_sizes', [str(2**i) for i in range(0, 11, 2)], 'Environments '
    'at a time to measure the policy of --part=learner with.')
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
    'drawn', 0, 'Unrolls that each learner of --part=replay draws at a time; '
    '0 takes those of LASER, 123 for Atari and 28 for DeepMind Lab.',
    lower_bound=0, upper_bound=shared_replay.MAX_DRAWN)
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
    'gpus', 0, 'GPUs of the cluster to plan, one for each learner. With 0, one '
    'learner makes its updates on cores.', lower_bound=0)
flags.DEFINE_float(
    'gpu_rate', 0., 'Frames/s that updates reach on one GPU of the cluster to '
    'plan, as --part=learner says there of those with staging. 0: unknown.',
    lower_bound=0.)
flags.DEFINE_float(
    'network_gbps', 10., 'Network of each learner\'s machine of the cluster to '
    'plan, in 10^9 bits per second each way.', lower_bound=1e-3)

# Flags that say something of one measurement only.
_OWN_FLAGS = {
    '--plan': ('cores', 'gpus', 'gpu_rate', 'network_gbps'),
    '--compare': ('compare_levels',),
    '--part=learner': ('batch_sizes', 'policy_batch_sizes'),
    '--part=transport': ('connections', 'unrolls_per_call'),
    '--part=replay': ('learners', 'drawn')}


def _config(changes=()):
  """Returns the `config.Config` of the flags.

  Args:
    changes: As for `config_flags.given`.

  Raises:
    ConfigError: It is of no run that trains by itself.
  """
  config = config_lib.resolve(config_flags.given(changes))
  if config.mode != 'train' or config.task >= 0 or config.is_replay_job:
    raise config_lib.ConfigError(
        'The benchmark measures a run that trains and is one process: leave '
        '--mode, --task and --job_name.')
  if config.replay_host:
    raise config_lib.ConfigError(
        f'--replay_host={config.replay_host} cannot be measured: leave it out, '
        'or see what a replay job serves with --part=replay.')
  return config


def _plan(config):
  """Measures what a frame costs here, and says what the cluster would reach.

  Args:
    config: A `config.Config`.

  Returns:
    A dict of `costs` and `cluster`, see `plan`, and `limits`, a dict of
    resource to the frames/s that it allows, None if that is unknown.
  """
  if FLAGS.gpu_rate and not FLAGS.gpus:
    raise config_lib.refusal(
        'gpu_rate', f'{FLAGS.gpu_rate:g}',
        'with --gpus=0 no GPU trains: give --gpus as well')
  nvidia.hide()  # Actor jobs have none; --gpu_rate is that of the learners'.
  tensorflow_environment.load()
  from scalable_agent.throughput import plan
  from scalable_agent.throughput import plan_costs

  costs = plan_costs.measure(config, FLAGS.measure_secs)
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


def _compare():
  """Compares the architectures on the flags' levels; returns the figures."""
  _refuse_empty('compare_levels')
  configs = [
      _config(dict(
          level_name=level.replace(';', ','), architecture='a2c_sync_step'))
      for level in FLAGS.compare_levels]
  tensorflow_environment.load()
  from scalable_agent.throughput import comparison

  figures = comparison.compare(configs, FLAGS.measure_secs)
  comparison.show(figures)
  return figures


def _measure(config):
  """Measures the parts and the whole; returns the figures."""
  tensorflow_environment.load()
  from scalable_agent.throughput import one_machine

  figures = one_machine.measure(config, FLAGS.measure_secs)
  one_machine.show(figures)
  return figures


def _measure_batch_sizes():
  """Measures updates and the policy by batch size; returns the figures."""
  sizes = _counts('batch_sizes') if FLAGS.batch_sizes else []
  policy_sizes = _counts('policy_batch_sizes')
  config = _config()
  configs = [
      # As many environments with each size.
      _config(dict(batch_size=size, num_actors=config.num_actors))
      for size in sizes] or [config]
  tensorflow_environment.load()
  from scalable_agent.throughput import batch_sizes

  return batch_sizes.measure(configs, policy_sizes, FLAGS.measure_secs)


def _counts(flag):
  """The value of a flag that lists numbers, at least one."""
  _refuse_empty(flag)
  for text in FLAGS[flag].value:
    if not text.isdecimal() or int(text) < 1:
      raise config_lib.ConfigError(
          f'--{flag}: {text!r} is no number of 1 or more.')
  return [int(text) for text in FLAGS[flag].value]


def _refuse_empty(flag):
  """Refuses a flag that is an empty list."""
  if not FLAGS[flag].value:
    raise config_lib.ConfigError(f'--{flag} is empty: give one or more.')


def _refuse_others():
  """Refuses flags of several measurements, since one is made."""
  asked = [f'--{name}' for name in ('plan', 'compare') if FLAGS[name].value]
  if FLAGS.part != 'all':
    asked.append(f'--part={FLAGS.part}')
  if len(asked) > 1:
    raise config_lib.ConfigError(
        f'{" and ".join(asked)} are different measurements: give one of them.')
  for measurement, names in _OWN_FLAGS.items():
    for name in names:
      if FLAGS[name].present and measurement not in asked:
        raise config_lib.ConfigError(
            f'--{name} is for {measurement} alone: give {measurement} as well, '
            f'or leave out --{name}.')


def _refuse_not_finite():
  """Refuses numbers that are infinite, or nan, which no bound keeps out."""
  for name in ('measure_secs', 'gpu_rate', 'network_gbps'):
    if not math.isfinite(FLAGS[name].value):
      raise config_lib.refusal(name, FLAGS[name].value, 'it has to be finite')


def main(argv):
  """Measures what the flags say; ends with one line where it cannot."""
  try:
    config_flags.refuse_arguments(argv)
    _refuse_others()
    _refuse_not_finite()
    open_files.raise_limit()
    if FLAGS.json:  # Before everything is measured.
      with config_lib.writing('json', FLAGS.json):
        whole_file.check(FLAGS.json)
    if FLAGS.part == 'transport':
      counts = _counts('connections'), _counts('unrolls_per_call')
      tensorflow_environment.load()
      figures = transport.measure_transport(FLAGS.measure_secs, *counts)
    elif FLAGS.part == 'learner':
      figures = _measure_batch_sizes()
    elif FLAGS.part == 'replay':
      figures = shared_replay.measure_shared_replay(
          FLAGS.measure_secs, FLAGS.learners, FLAGS.drawn)
    elif FLAGS.plan:
      figures = _plan(_config())
    elif FLAGS.compare:
      figures = _compare()
    else:
      figures = _measure(_config())
    if FLAGS.json:
      with config_lib.writing('json', FLAGS.json):
        whole_file.write_json(FLAGS.json, figures)
  except (config_lib.ConfigError, PoolError, Failure) as e:
    sys.exit(f'Error: {e}')


if __name__ == '__main__':
  binary.run(main)
