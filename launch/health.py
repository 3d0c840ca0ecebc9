#!/usr/bin/env python3
"""Says whether the job in this container works: the health check of its image.

    python health.py

Prints one line, and exits with 0 if all is well:

* An actor is connected to its learner.
* A learner listens for actors and, while some are connected, trains.
* A replay job listens for learners.
* A run without jobs trains.

What trains writes `metrics.jsonl`. While there is no update to make, as without
actors, it renews the time of its `lock`. If both are older than the longest
wait for a batch (--batch_timeout_secs) and --log_interval_secs together, the
run should have ended by itself, and hangs. Only the evaluation at the end of a
run may take longer. Of several learners, only the first writes these files.
Linux only: all is read in /proc.
"""

import glob
import os
import sys
import time

from absl import app  # Has flags of its own.  pylint: disable=unused-import
from absl import flags

from scalable_agent.config import flags as config_flags
from scalable_agent.files import log_file
from scalable_agent.sweeps import progress
from scalable_agent.training import logdir
from scalable_agent.training import run_config

_LISTENS, _CONNECTED = '0A', '01'  # In /proc/net/tcp.


def find_job(proc='/proc'):
  """Returns a folder of /proc and the arguments of the oldest job in it.

  Args:
    proc: The path of /proc.

  Returns:
    A pair of a path and a list of strings, or None if there is no job.
  """
  for pid in sorted(map(int, filter(str.isdecimal, os.listdir(proc)))):
    path = os.path.join(proc, str(pid))
    try:
      with open(os.path.join(path, 'cmdline'), errors='replace') as f:
        arguments = f.read().split('\0')[:-1]
    except OSError:
      continue  # It has ended.
    if 'scalable_agent.experiment' in arguments:
      return path, arguments[arguments.index('scalable_agent.experiment'):]
  return None


def find_sockets(proc='/proc'):
  """Returns the state, local port and remote port of all TCP sockets, a set."""
  found = set()
  for path in glob.glob(os.path.join(proc, 'net', 'tcp*')):
    with open(path) as f:
      for line in f.readlines()[1:]:
        _, local, remote, state = line.split()[:4]
        found.add((state, *(int(address.rpartition(':')[2], 16)
                            for address in (local, remote))))
  return found


def find_silence(config, process):
  """Returns for how long a job shows no sign of training, in seconds.

  Signs are those of the module's docstring, and its start. It returns 0 while
  the job does what may take longer.

  Args:
    config: The job's `config.Config`.
    process: Its folder of /proc.
  """
  with open(os.path.join(process, 'stat')) as f:
    # In ticks since the machine began. The folder's own times are younger where
    # the kernel had to make it again. A name may hold spaces and brackets.
    began = int(f.read().rpartition(')')[2].split()[19])
  runs = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf(
      'SC_CLK_TCK')
  if progress.is_trained(config.logdir, config.total_environment_frames):
    return 0.  # What is left is an evaluation.
  paths = (os.path.join(config.logdir, name)
           for name in (log_file.METRICS, logdir.LOCK_FILE))
  return min([runs, *(time.time() - os.path.getmtime(path)
                      for path in paths if os.path.exists(path))])


def find_problem(config, sockets, silent_seconds):
  """Returns what is wrong with a job, a string, or None.

  Args:
    config: The job's `config.Config`.
    sockets: As of `find_sockets`.
    silent_seconds: A function that returns what `find_silence` does.
  """
  if config.mode != 'train':
    return None
  if config.is_replay_job:
    port = int(config.replay_host.rpartition(':')[2])
    listens = any(state == _LISTENS and local == port
                  for state, local, _ in sockets)
    return None if listens else f'does not listen on port {port}'
  hosts = config.learner_hosts
  port = int(hosts[max(config.task, 0) % len(hosts)].rpartition(':')[2])
  if config.is_actor_job:
    connected = any(state == _CONNECTED and remote == port
                    for state, _, remote in sockets)
    return None if connected else f'not connected to the learner, port {port}'
  if config.task >= 0:
    ends = [state for state, local, _ in sockets if local == port]
    if _LISTENS not in ends:
      return f'does not listen on port {port}'
    if _CONNECTED not in ends:
      return None  # Nobody is there to learn from.
  longest = config.batch_timeout_secs + config.log_interval_secs
  if config.writes_logdir and silent_seconds() > longest:
    return f'has shown no sign of training for {silent_seconds():.0f} s'
  return None


def main():
  """Returns the exit code."""
  job = find_job()
  if job is None:
    print('no job is running')
    return 1
  process, arguments = job
  os.chdir(os.path.join(process, 'cwd'))
  flags.FLAGS(arguments)
  config = run_config.resolve(config_flags.given())
  problem = find_problem(
      config, find_sockets(), lambda: find_silence(config, process))
  print(problem or 'works')
  return 1 if problem else 0


if __name__ == '__main__':
  sys.exit(main())
