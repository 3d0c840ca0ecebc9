"""Population based training (paper, Appendix F): its decisions, and their file.

A member is ready for an evolution after a number of new episodes. It then draws
another member. If that one's score is higher by more than 5 points, the member
takes over its weights and parameters. Whether it does or not, each parameter is
then changed with probability 0.33.

    rng = generator(seed, member, len(history.of(member)))
    drawn = draw_other(member, size, rng)
    if is_better(scores[member], scores[drawn]):
      ...
    history.add(Record(...))
"""

import collections
import json

import numpy as np

from scalable_agent import config as config_lib
from scalable_agent.files import log_lines
from scalable_agent.files import whole_file
from scalable_agent.process import errors

# Percent, of the human-normalised score.
COPY_MARGIN = 5.
PERTURB_PROBABILITY = .33
# The factor and its inverse are equally likely: parameters do not drift.
PERTURB_FACTOR = 1.2

Record = collections.namedtuple(
    'Record', 'member frames score drawn drawn_score donor donor_frames '
    'parameters')
Record.__doc__ = """An evolution of a member, or its start. A line of the file.

  member: Its index.
  frames: Environment frames of the member, 0 at its start.
  score: Its score in percent, None at its start.
  drawn: The index of the member it was compared with, None at its start.
  drawn_score: That one's score, None if it had none.
  donor: `drawn` if the member took over its weights, else None.
  donor_frames: Environment frames of those weights, None if there are none.
  parameters: A dict of name to value that the member has from here on.
"""


def start(member, parameters):
  """Returns the `Record` of a member's start; see there for both."""
  return Record(member, 0, None, None, None, None, None, parameters)


def is_ready(frames, num_episodes, burn_in_frames, episodes):
  """Whether it is time for a member's evolution.

  Args:
    frames: Environment frames of the member.
    num_episodes: Its episodes since its last evolution.
    burn_in_frames: Environment frames before which there is no evolution.
    episodes: Episodes from one evolution to the next.
  """
  return frames >= burn_in_frames and num_episodes >= episodes


def draw_other(member, size, rng):
  """Returns another member of a population, each equally likely.

  Args:
    member: The index of the one that it must not be.
    size: Of the population, 2 or more.
    rng: A `np.random.Generator`.
  """
  other = int(rng.integers(size - 1))
  return other + (other >= member)


def is_better(score, other_score):
  """Whether another member's score is so much higher that it is copied.

  Args:
    score: Percent.
    other_score: Percent, or None if the other has no score yet.
  """
  return other_score is not None and other_score > score + COPY_MARGIN


def perturb(parameters, rng):
  """Multiplies each parameter, with probability 0.33, by 1.2 or 1/1.2.

  Args:
    parameters: A dict of name to float.
    rng: A `np.random.Generator`.

  Returns:
    Such a dict.
  """
  changed = {}
  for name, value in parameters.items():
    if rng.random() < PERTURB_PROBABILITY:
      grows = rng.random() < .5
      value = value * PERTURB_FACTOR if grows else value / PERTURB_FACTOR
    changed[name] = value
  return changed


class History:
  """All evolutions of a population, and the file that keeps them.

  An evolution has happened once it is in the file, and not before.

  Attributes:
    records: A list of `Record`s, the oldest first.
  """

  def __init__(self, path):
    """Reads the file, if there is one.

    Raises:
      ConfigError: It cannot be read.
    """
    self._path = path
    self.records = []
    try:
      with open(path, 'rb') as f:
        lines = f.read().decode().splitlines()
      self.records = [_parse(line) for line in lines]
    except FileNotFoundError:
      pass
    except (OSError, ValueError, TypeError, RecursionError) as e:
      raise config_lib.ConfigError(
          f'{path} cannot be read ({errors.one_line(e)}). Repair it, or choose '
          'another --logdir.') from e

  def add(self, *records):
    """Adds records, in memory and in the file: all of them, or none.

    Raises:
      OSError: The file cannot be written.
    """
    new = [*self.records, *records]
    whole_file.write(self._path, ''.join(
        json.dumps(record._asdict()) + '\n' for record in new).encode())
    self.records = new

  def of(self, member):
    """Returns the records of one member, a list; the first is its start."""
    return [record for record in self.records if record.member == member]

  def last(self, member):
    """Returns the newest `Record` of a member."""
    return self.of(member)[-1]

  def last_copy_frames(self, member):
    """Returns the member's frames when it last got weights; 0 if never."""
    return max((record.frames for record in self.of(member)
                if record.donor is not None), default=0)


def _parse(line):
  fields = dict(json.loads(line))
  # Files of earlier versions have no donor.
  was_copied = fields.get('donor_frames') is not None
  fields.setdefault('donor', fields.get('drawn') if was_copied else None)
  record = Record(**fields)
  if not (isinstance(record.member, int) and record.member >= 0 and
          log_lines.is_frames(record.frames) and
          isinstance(record.parameters, dict)):
    raise ValueError(f'{line!r} is no evolution')
  return record


def generator(seed, member, num_records):
  """Returns the random generator of one evolution, always the same.

  Args:
    seed: Whole number from 0.
    member: Index of the member.
    num_records: How many records it has.
  """
  return np.random.default_rng([seed, member, num_records])
