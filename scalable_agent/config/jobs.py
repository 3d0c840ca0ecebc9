"""Settings of a run of several jobs: which this is, and how they meet."""

import dataclasses

from scalable_agent.config import settings
from scalable_agent.config.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings:
  """Settings of a run of several jobs."""

  task: int = setting(
      -1, 'Index of this job among those of its job_name; -1 runs all on '
      'this machine.', settings.NOWHERE, settings.Check(
          lambda value: value >= -1, 'it is -1, or the index of a job'))
  job_name: str = setting(
      'learner', 'What this job is, if --task is not -1: a learner, or an '
      'actor. Or, whatever --task is, a replay job, which keeps unrolls for '
      'several agents (--replay_host).', settings.NOWHERE,
      choices=('learner', 'actor', 'replay'))
  learner_hosts: list = setting(
      ['localhost:8000'],
      'host:port of every learner, in the order of their --task. A learner '
      'listens on its port: on loopback if its host is, on all addresses '
      'otherwise. Actor i talks to learner i modulo their number.',
      settings.LEARNERS)
  collective_hosts: list = setting(
      [], 'host:port where TensorFlow listens for the other learners, if there '
      'are several, in the order of their --task; by default the hosts of '
      '--learner_hosts, with ports that are higher by 1000.', settings.NOWHERE)
  envs_per_actor: int = setting(
      1, 'Environments of an actor job.', settings.NOWHERE,
      settings.ONE_OR_MORE)
  inference: str = setting(
      'actor', 'Where the policy of actor jobs runs: at the actor, with '
      'weights fetched as unrolls begin, or at the learner, which is sent '
      'observations and answers with actions.', settings.ACTORS,
      choices=('actor', 'learner'))
  replay_host: str = setting(
      '', 'host:port of the replay job whose unrolls this agent shares with '
      'others (LASER). A replay job listens there: on loopback if its host '
      'is, on all addresses otherwise. Empty: the agent has a buffer of its '
      'own.', settings.NOWHERE, agent='impala')
  replay_agents: int = setting(
      0, 'Agents that will share the replay job. An agent that comes early '
      'waits after its third batch until all have inserted something. The job '
      'waits a minute for the next one to begin, and then goes on without the '
      'rest. 0: not known, so nobody waits. A sweep or a population sets it.',
      settings.NOWHERE, settings.NOT_NEGATIVE, agent='impala')
  auth_token_file: str = setting(
      '', 'File with a secret of 16 characters or more that all jobs share.',
      settings.NOWHERE, is_path=True)
  tls_cert: str = setting(
      '', 'PEM file with the certificate of this job.', settings.NOWHERE,
      is_path=True)
  tls_key: str = setting(
      '', 'PEM file with the private key to it.', settings.NOWHERE,
      is_path=True)
  tls_ca: str = setting(
      '', 'PEM file with the certificates that the other side\'s has to be '
      'signed by. A learner that has one asks actors for theirs.',
      settings.NOWHERE, is_path=True)
  insecure_network: bool = setting(
      False, 'Let a job listen on a network without a token or TLS. '
      'Several learners need it, because TensorFlow connects them without '
      'either, on all addresses.', settings.NOWHERE)
