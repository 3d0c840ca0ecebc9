"""The configuration of a run: all of its settings, and what follows from them.
"""

import dataclasses
import json

from scalable_agent.config import environments
from scalable_agent.config import jobs
from scalable_agent.config import learning
from scalable_agent.config import machine
from scalable_agent.config import run
from scalable_agent.config import settings


# The fields of the last class come first.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(machine.MachineSettings, jobs.JobSettings,
             learning.LearningSettings, environments.EnvironmentSettings,
             run.RunSettings):
  """Everything a run depends on; each setting's help explains its value."""

  @property
  def frames_per_unroll(self):
    """Environment frames in an unroll."""
    return self.unroll_length * self.num_action_repeats

  @property
  def frames_per_step(self):
    """Environment frames in one batch that were not in one before."""
    return self.num_new_unrolls * self.num_learners * self.frames_per_unroll

  @property
  def num_environments(self):
    """Environments of this job: those of all actors if it is on its own."""
    return self.envs_per_actor if self.is_actor_job else self.num_actors

  @property
  def is_actor_job(self):
    """Whether this is one of several jobs, and acts."""
    return self.task >= 0 and self.job_name == 'actor'

  @property
  def makes_environments(self):
    """Whether this job plays; a learner job leaves that to actor jobs."""
    return self.mode == 'test' or self.task < 0 or self.is_actor_job

  @property
  def leaves_acting_to_others(self):
    """Whether this is a learner job whose actors have the policy."""
    return (self.mode == 'train' and self.task >= 0 and
            self.job_name == 'learner' and self.inference == 'actor')

  @property
  def num_learners(self):
    """Learners that update the same weights together with this job."""
    trains = self.mode == 'train' and not self.is_actor_job
    return len(self.learner_hosts) if trains and self.task >= 0 else 1

  @property
  def learner_batch_size(self):
    """Unrolls per batch at this learner."""
    return self.batch_size // self.num_learners

  @property
  def num_replayed_unrolls(self):
    """Unrolls of a batch at this learner that come from replay."""
    return round(self.learner_batch_size * self.replay_proportion)

  @property
  def num_new_unrolls(self):
    """Unrolls of a batch at this learner that come from actors."""
    return self.learner_batch_size - self.num_replayed_unrolls

  @property
  def writes_logdir(self):
    """Whether this job trains, and writes to the log directory."""
    return self.mode == 'train' and not self.is_actor_job and self.task <= 0

  def to_json(self):
    """The configuration as an indented JSON object."""
    return json.dumps(dataclasses.asdict(self), indent=2) + '\n'


# A dict of name to `settings.Setting`.
SETTINGS = settings.describe(Config)


def names(scope):
  """Returns the names of the settings that have a scope, a tuple.

  Args:
    scope: One of `IDENTITY`, `ACTORS`, `LEARNERS` and `AGENT`.
  """
  return tuple(name for name, declared in SETTINGS.items()
               if scope in declared.scopes)


def effective_values(values, scope):
  """Returns the settings of a scope as they made a difference in a run.

  Args:
    values: A dict of name to value, such as the content of a `config.json`. A
      setting that is not in it is younger than the run, and has its default.
    scope: As in `names`.

  Returns:
    A dict of name to value, for every one of `names(scope)`. It is None for a
    setting that made no difference, because one that it needs is 0.
  """
  value_of = lambda name: values.get(name, SETTINGS[name].default)
  effective = {}
  for name in names(scope):
    needs = SETTINGS[name].needs
    makes_a_difference = needs is None or value_of(needs)
    effective[name] = value_of(name) if makes_a_difference else None
  return effective
