r"""Compares corrections for policy lag where all else is exact (Appendix E.1).

    python -m scalable_agent.studies.small_world --study_dir=/tmp/small_world

It trains tables on the world of `environments.small_worlds`, once for each
correction, policy lag, learning rate and seed, and writes study.md, with its
pictures, and study.csv.
"""

import itertools
import os
import sys

from absl import flags

from scalable_agent.process import binary
from scalable_agent.process import tensorflow_environment

# Before TensorFlow is loaded by the modules below.
tensorflow_environment.load()

# pylint: disable=wrong-import-position
from scalable_agent.algorithms import corrections
from scalable_agent.studies import document
from scalable_agent.studies import outcomes
from scalable_agent.studies import tabular

FLAGS = flags.FLAGS

flags.DEFINE_string('study_dir', 'study', 'Directory for what is written.')
flags.DEFINE_integer('num_seeds', 40, 'Runs of each kind.', lower_bound=2)

POLICY_LAGS = 0, 30, 100, 300
LEARNING_RATES = .03, .1, .3, 1.

_LEVEL = 'grid'
_HOW_FINAL = (
    'A final return is what the last policy is worth: its expected discounted '
    'return from the start, computed exactly.')


def _train(settings, num_seeds):
  """Returns an `outcomes.Outcome` for each seed."""
  frames = (
      settings.num_updates * settings.batch_size * settings.unroll_length)
  variant, sample = outcomes.split(
      [dict(off_policy_correction=settings.off_policy_correction),
       dict(policy_lag=settings.policy_lag)],
      dict(learning_rate=settings.learning_rate))
  # Corrections get the same random numbers, so that they can be paired.
  finals = tabular.train(settings, num_seeds, seed=1)
  return [
      outcomes.Outcome(
          _LEVEL, _LEVEL, variant, sample, frozenset(), seed,
          dict(batch_size=settings.batch_size,
               unroll_length=settings.unroll_length), float(final),
          frames, frames, {}) for seed, final in enumerate(finals, 1)]


def run(study_dir, num_seeds, kinds):
  """Trains all kinds of runs, and writes what they have come to.

  Args:
    study_dir: Directory for study.md, its pictures, and study.csv.
    num_seeds: Runs of each kind.
    kinds: A list of `tabular.Settings`.

  Returns:
    The path of study.md.

  Raises:
    OSError: The study cannot be written.
  """
  os.makedirs(study_dir, exist_ok=True)
  found = []
  for i, settings in enumerate(kinds, 1):
    print(f'{i} of {len(kinds)}: {settings.off_policy_correction}, lag '
          f'{settings.policy_lag}, learning rate {settings.learning_rate}',
          flush=True)
    found += _train(settings, num_seeds)
  return document.write(found, ['lag'], study_dir, _HOW_FINAL)


def main(argv):
  """Runs the study; ends with one line where it cannot."""
  if len(argv) > 1:
    sys.exit(f'Error: Unexpected arguments: {" ".join(argv[1:])}.')
  kinds = [tabular.Settings(*kind) for kind in itertools.product(
      corrections.CORRECTIONS, POLICY_LAGS, LEARNING_RATES)]
  try:
    print(run(FLAGS.study_dir, FLAGS.num_seeds, kinds))
  except OSError as e:
    sys.exit(f'Error: --study_dir={FLAGS.study_dir} cannot be written: {e}')


if __name__ == '__main__':
  binary.run(main)
