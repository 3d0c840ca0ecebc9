"""Defines flags that programs of many runs share, once in a process."""

from absl import flags

from scalable_agent import config as config_lib
from scalable_agent.sweeps import samples

# So that the flags are those of the module that calls.
flags.disclaim_key_flags()


def _once(define, name, *args, **kwargs):
  if name not in flags.FLAGS:
    define(name, *args, **kwargs)


def define_parallel():
  """Defines --parallel."""
  _once(flags.DEFINE_integer, 'parallel', 1, 'Processes at a time.',
        lower_bound=1)


def define_share_replay():
  """Defines --share_replay."""
  _once(flags.DEFINE_bool, 'share_replay', False,
        'Have all runs share one replay job, which is started here, and ends '
        'with the program. It listens on --replay_host, or on a free port of '
        'this machine.')


def define_slurm():
  """Defines --slurm and --slurm_options."""
  _once(
      flags.DEFINE_enum, 'slurm', '', ['', 'print', 'submit'],
      'Instead of running here, print, or submit, a SLURM job array with a '
      'task for each run that is not done.')
  _once(flags.DEFINE_string, 'slurm_options', '',
        'Options of sbatch with commas between them, such as '
        '--gres=gpu:1,--mail-type=END,FAIL.')


def check_slurm():
  """Refuses --slurm_options where nothing is submitted.

  Raises:
    config.ConfigError: They are given without --slurm.
  """
  if flags.FLAGS['slurm_options'].present and not flags.FLAGS.slurm:
    raise config_lib.ConfigError(
        '--slurm_options needs --slurm: else the runs start here.')


def define_ranges():
  """Defines --range and --sample_seed."""
  _once(
      flags.DEFINE_multi_string, 'range', list(samples.TABLE_D1),
      'What a hyperparameter is drawn from: name=low:high, log-uniform, or '
      'name=value,value. Give it once for each. The default is the paper\'s '
      'Table D.1.')
  _once(flags.DEFINE_integer, 'sample_seed', 1,
        'Random seed of what is drawn.', lower_bound=0)


def serialize(names):
  """Returns flags that were given as arguments for another process, a list.

  Args:
    names: Of flags.
  """
  return [argument for name in names if flags.FLAGS[name].present
          for argument in flags.FLAGS[name].serialize().splitlines()]
