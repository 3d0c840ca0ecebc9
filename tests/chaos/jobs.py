"""Rounds with several jobs: connections that idle, learners that differ."""

import contextlib
import resource
import signal
import socket

from tests import ports
from tests.chaos import arena as arena_lib
from tests.chaos import oracle
from tests.chaos import snapshot
from tests.chaos import words

# More than the files that a process may usually open.
_CONNECTIONS, _FILES = 1100, 1024
# What this process may need beside connections.
_OWN_FILES = 200
_END_SECONDS = 60.
# What learners have to have alike, with values that a learner may have.
_SHARED = (
    ('replay_proportion', '0.5'), ('batch_size', '4'), ('unroll_length', '7'),
    ('total_environment_frames', '500000'), ('discounting', '0.9'),
    ('entropy_cost', '0.1'), ('baseline_cost', '0.1'),
    ('reward_clipping', 'none'), ('clip_rho_threshold', '2'),
    ('clip_pg_rho_threshold', '2'), ('vtrace_lambda', '0.5'),
    ('learning_rate', '0.1'), ('decay', '0.9'), ('momentum', '0.1'),
    ('epsilon', '0.5'), ('gradient_norm_clip', '1'),
    ('num_action_repeats', '2'), ('precision', 'bfloat16'))


def connections(arena, rng):
  """A learner job with an actor, and idle connections in numbers."""
  port = ports.free_port()
  flags = ('--task=0', f'--learner_hosts=localhost:{port}', '--num_actors=1',
           '--envs_per_actor=4')
  count = rng.choice((_CONNECTIONS, 2 * _CONNECTIONS))
  _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
  if hard != resource.RLIM_INFINITY:
    count = min(count, hard - _OWN_FILES)

  def act(learner):
    with contextlib.ExitStack() as stack:
      actor = stack.enter_context(arena.program(
          *flags, '--job_name=actor', logdir=arena.logdir + '.actor'))
      if not learner.train_for(0):
        return
      for _ in range(count):
        # One that is refused or shut is as good.
        with contextlib.suppress(OSError):
          stack.enter_context(socket.create_connection(
              ('localhost', port), timeout=1))
      if not (learner.wait_for_save(20) and learner.wait_for_save(20)):
        arena.violated('connections', f'no save with {count} of them')
      if actor.ended():
        arena.violated('connections', 'the actor has ended')
    if not learner.ended():
      learner.signal(signal.SIGTERM)

  arena.start(act, arena_lib.STOPPED, *flags, *arena.failing_saves(1000),
              limits={resource.RLIMIT_NOFILE: (_FILES, _FILES)})
  return f'{count} of them'


def replay_job(arena, rng):
  """A learner whose replay job is killed, stopped, or asleep, and comes back.
  """
  port = ports.free_port()
  done = []

  def act(learner):
    with contextlib.ExitStack() as stack:
      start = lambda: stack.enter_context(arena.program(
          f'--replay_host=localhost:{port}', '--job_name=replay',
          logdir=arena.logdir + '.replay'))
      job = start()
      num_blows = rng.randint(1, 3)
      for blow in range(num_blows):
        if not learner.train_for(rng.uniform(0, 1)):
          return
        done.append(rng.choice((
            signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)))
        job.signal(done[-1])
        learner.wait_until(learner.ended, rng.uniform(0, 3))
        if done[-1] == signal.SIGSTOP:
          job.signal(signal.SIGCONT)
        elif blow < num_blows - 1 or rng.random() < .8:
          arena.found += words.check_exit(
              job.wait(), {0, -done[-1]}, job.errors())
          arena.found += words.check_lines(job.errors())
          job = start()
      # It may be waiting for a job that is gone.
      learner.signal(signal.SIGTERM)
      learner.wait()
      job.signal(signal.SIGTERM)
      if not job.ended():
        arena.found += words.check_exit(job.wait(), {0}, job.errors())
      arena.found += words.check_lines(job.errors())

  arena.start(act, arena_lib.STOPPED, f'--replay_host=localhost:{port}',
              '--replay_proportion=0.5')
  return ', '.join(signum.name for signum in done)


def learners_differ(arena, rng):
  """Two learners with one setting that has to be alike, and is not."""
  name, value = rng.choice(_SHARED)
  hosts = [f'localhost:{port}' for port in ports.free_ports(4)]
  # So large that each has a part of it, and replay a part of that.
  flags = ('--insecure_network', '--batch_size=8',
           '--learner_hosts=' + ','.join(hosts[:2]),
           '--collective_hosts=' + ','.join(hosts[2:]))
  before = snapshot.take(arena.logdir)
  with arena.program(*flags, '--task=0', whole=before.whole) as first, \
      arena.program(*flags, '--task=1', f'--{name}={value}',
                    logdir=arena.logdir + '.second') as second:
    both = (first, second)
    ended = lambda: (all(program.ended() for program in both) or
                     any(words.trained(program.errors()) for program in both))
    first.wait_until(ended)
    first.wait_until(ended, _END_SECONDS)
    for program in both:
      if words.trained(program.errors()):
        arena.violated('learners differ', f'in --{name}, and train')
        return f'--{name}={value}'
    for program in both:
      code = program.wait(_END_SECONDS)
      errors = program.errors()
      arena.found += words.check_exit(code, arena_lib.REFUSED, errors)
      arena.found += words.check_lines(errors)
    if not any(f'--{name}' in line for program in both
               for line in program.errors().splitlines()
               if line.startswith('Error: ')):
      arena.violated('learners differ', f'--{name} is not named')
  arena.found += oracle.check_unchanged(before, snapshot.take(arena.logdir))
  return f'--{name}={value}'
