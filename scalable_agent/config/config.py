"""The configuration of a run: all of its settings, and what follows from them.
"""

import dataclasses
import json

from scalable_agent.config import environments
from scalable_agent.config import jobs
from scalable_agent.config import learning
from scalable_agent.config import machine
from scalable_agent.config import reactor
from scalable_agent.config import run
from scalable_agent.config import settings
from scalable_agent.config import start


# The fields of the last class come first.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(machine.MachineSettings, jobs.JobSettings,
             reactor.ReactorSettings, learning.LearningSettings,
             environments.EnvironmentSettings, run.RunSettings,
             start.StartSettings):
  """Everything a run depends on; each setting's help explains its value."""

  @property
  def frames_per_unroll(self):
    """Environment frames in an unroll."""
    return self.unroll_length * self.num_action_repeats

  @property
  def frames_per_step(self):
    """Environment frames that an update trains on for the first time.

    With Reactor, those that are acted for each update.
    """
    if self.agent == 'reactor':
      return self.steps_per_update * self.num_action_repeats
    return self.num_new_unrolls * self.num_learners * self.frames_per_unroll

  @property
  def frames_before_updates(self):
    """Environment frames that Reactor acts in each start before it updates."""
    if self.agent != 'reactor':
      return 0
    return self.replay_min_steps * self.num_action_repeats * self.num_learners

  @property
  def num_environments(self):
    """Environments of this job: those of all actors if it is on its own."""
    return self.envs_per_actor if self.is_actor_job else self.num_actors

  @property
  def num_known_environments(self):
    """Environments of which a learner gets unrolls; None if jobs bring them."""
    return self.num_actors if self.task < 0 else None

  @property
  def is_actor_job(self):
    """Whether this is one of several jobs, and acts."""
    return self.task >= 0 and self.job_name == 'actor'

  @property
  def is_replay_job(self):
    """Whether this is a job that keeps unrolls for several agents."""
    return self.mode == 'train' and self.job_name == 'replay'

  @property
  def is_learner(self):
    """Whether this job trains, alone or as one of several jobs."""
    return (self.mode == 'train' and not self.is_actor_job and
            not self.is_replay_job)

  @property
  def makes_environments(self):
    """Whether this job plays; a learner job leaves that to actor jobs."""
    if self.is_replay_job:
      return False
    if self.mode == 'train':
      return self.task < 0 or self.is_actor_job or self.evaluates
    return self.mode in ('test', 'check')

  @property
  def evaluates(self):
    """Whether this job plays whole episodes while it trains."""
    return self.writes_logdir and self.evaluate_every_frames > 0

  @property
  def is_batched_a2c(self):
    """Whether actors and learner wait for each other."""
    return self.architecture in ('a2c_sync_step', 'a2c_sync_trajectory')

  @property
  def leaves_acting_to_others(self):
    """Whether this is a learner job whose actors have the policy."""
    return (self.mode == 'train' and self.task >= 0 and
            self.job_name == 'learner' and self.inference == 'actor')

  @property
  def num_learners(self):
    """Learners that update the same weights together with this job."""
    return (len(self.learner_hosts) if self.is_learner and self.task >= 0
            else 1)

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
  def updates_to_profile(self):
    """The updates after which a trace begins and ends, () without one."""
    return tuple(map(int, filter(None, self.profile_updates.split(':'))))

  @property
  def writes_logdir(self):
    """Whether this job trains, and writes to the log directory."""
    return self.is_learner and self.task <= 0

  def to_json(self):
    """The configuration as an indented JSON object."""
    return json.dumps(dataclasses.asdict(self), indent=2) + '\n'


# A dict of name to `settings.Setting`.
SETTINGS = settings.describe(Config)


def names(scope):
  """Returns the names of the settings that have a scope, a tuple.

  Args:
    scope: One of `IDENTITY`, `ACTORS`, `LEARNERS`, `AGENT`, `WORKERS` and
      `REPLAY`.
  """
  return tuple(name for name, declared in SETTINGS.items()
               if scope in declared.scopes)


def names_kept(mode):
  """Returns the settings that a start takes from the run in its log directory.

  Args:
    mode: As the setting.

  Returns:
    A tuple of names: whatever is not about a single start. Where a run's
    weights are only used, its machines and jobs do not matter.
  """
  left_out = [start.StartSettings]
  if mode != 'train':
    left_out += [machine.MachineSettings, jobs.JobSettings]
  others = {field.name for cls in left_out for field in dataclasses.fields(cls)}
  return tuple(name for name, declared in SETTINGS.items()
               if name not in others and not declared.is_derived)


def effective_values(values, scope):
  """Returns the settings of a scope as they made a difference in a run.

  Args:
    values: A dict of name to value, such as the content of a `config.json`. A
      setting that is not in it is younger than the run, and has its default.
    scope: As in `names`.

  Returns:
    A dict of name to value, for every one of `names(scope)`. A value is None
    where the setting made no difference: the setting that it needs is 0, one of
    its `only_with` has another value, or it is another agent's.
  """
  value_of = lambda name: values.get(name, SETTINGS[name].default)
  effective = {}
  for name in names(scope):
    declared = SETTINGS[name]
    makes_a_difference = (
        (declared.needs is None or value_of(declared.needs)) and
        all(value_of(other) == value
            for other, value in declared.only_with.items()) and
        declared.agent in (None, value_of('agent')))
    effective[name] = value_of(name) if makes_a_difference else None
  return effective
