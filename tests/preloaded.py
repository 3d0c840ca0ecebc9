"""Programs of the package in processes that have loaded TensorFlow already.

Such a process is forked from one that has done nothing else, which saves the
seconds of loading; from there on it is a process like any other. What a program
loads, and when, is for tests that start an interpreter of their own.
"""

import atexit
import faulthandler
import functools
import importlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys

# Nothing that defines flags.
_HEAVY = ('scalable_agent.training.loop', 'scalable_agent.jobs.policy_at_actor',
          'scalable_agent.evaluation.test_mode')


def load():
  """Loads what programs will, in the process that they are forked from."""
  from scalable_agent.process import tensorflow_environment

  tensorflow_environment.load()
  for name in _HEAVY:
    importlib.import_module(name)
  import tensorflow_probability as tfp
  assert tfp.distributions  # Which loads all of it.


@functools.cache
def _context():
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(['tests.preload'])
  return context


class Popen:
  """As `subprocess.Popen`, of `python -m MODULE` in a session of its own.

  Attributes:
    pid: Of the process, which is that of its group and session too.
  """

  def __init__(self, module, arguments, cwd, output, env):
    """Starts it.

    Args:
      module: The program's name.
      arguments: A list of its arguments.
      cwd: Its directory.
      output: The path of a file or a pipe that gets stdout and stderr.
      env: A dict of all of its environment variables.
    """
    receiver, sender = _context().Pipe(duplex=False)
    self._process = _context().Process(
        target=_run, args=(module, list(arguments), os.fspath(cwd),
                           os.fspath(output), dict(env), sender))
    self._process.start()
    sender.close()
    receiver.recv()
    receiver.close()
    self.pid = self._process.pid

  def poll(self):
    """Returns the exit code, None while it runs."""
    return self._process.exitcode

  def wait(self, timeout=None):
    """Returns the exit code, or raises `subprocess.TimeoutExpired`."""
    self._process.join(timeout)
    if self._process.exitcode is None:
      raise subprocess.TimeoutExpired(str(self._process), timeout)
    return self._process.exitcode

  def send_signal(self, signum):
    os.kill(self.pid, signum)


def _run(module, arguments, cwd, output, env, started):
  """What the process does: becomes a fresh one, and runs the program."""
  os.setsid()
  for path, flags, streams in (
      (os.devnull, os.O_RDONLY, (0,)),
      (output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, (1, 2))):
    descriptor = os.open(path, flags, 0o644)
    for stream in streams:
      os.dup2(descriptor, stream)
    os.close(descriptor)
  os.chdir(cwd)
  os.environ.clear()
  os.environ.update(env)
  path = [name for name in env.get('PYTHONPATH', '').split(os.pathsep) if name]
  sys.path[:] = [cwd, *path] + [name for name in sys.path if name]
  for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.default_int_handler)
  if env.get('PYTHONFAULTHANDLER'):
    faulthandler.enable()
  sys.argv[:] = [module, *arguments]
  started.send(None)
  started.close()
  try:
    runpy.run_module(module, run_name='__main__', alter_sys=True)
  finally:
    # As an interpreter does at its end, and one of `multiprocessing` does not.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
