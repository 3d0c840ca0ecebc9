"""The health check of the image, on made-up processes and sockets."""

import os
import runpy
import subprocess
import time

import pytest

from scalable_agent import config as config_lib

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@pytest.fixture(scope='module', name='health')
def _health():
  """What the script defines, a dict."""
  return runpy.run_path(os.path.join(_ROOT, 'launch', 'health.py'))


def _config(**values):
  return config_lib.resolve(dict(
      level_name='pong', learner_hosts=['a:8000', 'b:8001'],
      insecure_network=True, batch_timeout_secs=100., log_interval_secs=10.,
      batch_size=2, queue_capacity=2, **values))


_ACTOR = dict(task=3, job_name='actor')
_REPLAY = dict(job_name='replay', replay_host='a:9000')
_NOT_CONNECTED = 'not connected to the learner, port 8001'
_LISTENS, _ACTOR_IS_HERE = ('0A', 8000, 0), ('01', 8000, 40000)


@pytest.mark.parametrize('values, sockets, silent, expected', [
    (dict(task=-1), [], 109, None),
    (dict(task=-1), [], 111, 'has shown no sign of training for 111 s'),
    (dict(task=-1, mode='test'), [], 111, None),
    (_ACTOR, [('01', 40000, 8001)], 111, None),
    (_ACTOR, [('01', 40000, 8000)], 0, _NOT_CONNECTED),
    (_ACTOR, [('06', 40000, 8001)], 0, _NOT_CONNECTED),
    (dict(task=0), [], 0, 'does not listen on port 8000'),
    (dict(task=0), [_ACTOR_IS_HERE], 0, 'does not listen on port 8000'),
    (dict(task=0), [_LISTENS], 111, None),  # Nobody is there to learn from.
    (dict(task=0), [_LISTENS, _ACTOR_IS_HERE], 109, None),
    (dict(task=0), [_LISTENS, _ACTOR_IS_HERE], 111,
     'has shown no sign of training for 111 s'),
    (_REPLAY, [('0A', 9000, 0)], 111, None),
    (_REPLAY, [_LISTENS], 0, 'does not listen on port 9000'),
    (dict(task=1), [('0A', 8001, 0), ('01', 8001, 40000)], 111, None)])
def test_problem(health, values, sockets, silent, expected):
  assert health['find_problem'](
      _config(**values), set(sockets), lambda: silent) == expected


@pytest.mark.parametrize('written_before, waited_before, expected', [
    (30, 150, 30), (150, 30, 30), (None, 30, 30), (30, None, 30),
    (500, 300, 200), (None, None, 200)])
@pytest.mark.parametrize('is_trained', [False, True])
def test_a_job_is_silent_since_it_wrote_or_was_right_not_to_or_began(
    health, tmp_path, written_before, waited_before, expected, is_trained):
  """An evaluation has nothing to write."""
  began = (time.clock_gettime(time.CLOCK_BOOTTIME) - 200) * os.sysconf(
      'SC_CLK_TCK')
  (tmp_path / 'stat').write_text(
      f'12 (a ) 1 2) S {"0 " * 18}{began:.0f} 0 0\n')
  for name, before in (
      ('metrics.jsonl', written_before), ('lock', waited_before)):
    if before is not None:
      (tmp_path / name).write_text('')
      os.utime(tmp_path / name, (time.time() - before,) * 2)
  (tmp_path / f'ckpt-{70_000 if is_trained else 60_000}.index').write_text('')
  config = config_lib.resolve(dict(
      level_name='pong', logdir=str(tmp_path),
      total_environment_frames=70_000))
  assert health['find_silence'](config, str(tmp_path)) == pytest.approx(
      0 if is_trained else expected, abs=5)


def test_a_process_has_begun_when_it_says(health, tmp_path):
  config = config_lib.resolve(dict(level_name='pong', logdir=str(tmp_path)))
  with subprocess.Popen(['cat'], stdin=subprocess.PIPE) as process:
    silence = health['find_silence'](config, f'/proc/{process.pid}')
    process.stdin.close()
  assert -1 < silence < 60


def test_the_oldest_job_is_found_with_its_flags(health, tmp_path):
  for pid, arguments in (
      ('1', ['/sbin/init']), ('12', ['python', '-m', 'worker']),
      ('90', ['python', '-m', 'scalable_agent.experiment', '--a=b c']),
      ('100', ['python', '-m', 'scalable_agent.experiment', '--c'])):
    (tmp_path / pid).mkdir()
    (tmp_path / pid / 'cmdline').write_text('\0'.join(arguments) + '\0')
  # Of another program, in a pod whose containers see each other.
  (tmp_path / '12' / 'cmdline').write_bytes(b'less\0caf\xe9\0')
  (tmp_path / '5').mkdir()  # Has just ended.
  (tmp_path / 'self').mkdir()
  assert health['find_job'](tmp_path) == (
      str(tmp_path / '90'), ['scalable_agent.experiment', '--a=b c'])
  (tmp_path / '90' / 'cmdline').write_text('')
  (tmp_path / '100' / 'cmdline').write_text('')
  assert health['find_job'](tmp_path) is None


def test_sockets_of_both_protocols_are_found(health, tmp_path):
  (tmp_path / 'net').mkdir()
  header = '  sl  local_address rem_address   st tx_queue rx_queue\n'
  (tmp_path / 'net' / 'tcp').write_text(
      f'{header}   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000\n')
  (tmp_path / 'net' / 'tcp6').write_text(
      f'{header}   0: {"0" * 32}:1F40 {"0" * 32}:9C40 01 00000000:00000000\n')
  assert health['find_sockets'](tmp_path) == {_LISTENS, _ACTOR_IS_HERE}
