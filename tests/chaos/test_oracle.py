"""The oracle of the attacks: each promise, kept and broken."""

import json
import random

import pytest

from tests.chaos import arena as arena_lib
from tests.chaos import damage
from tests.chaos import logs
from tests.chaos import oracle
from tests.chaos import snapshot
from tests.chaos import words

_CKPT = ('ckpt-{}.index', 'ckpt-{}.data-00000-of-00001')
_TRAINED = 'I1122 12:00:00.000000 1 run.py:1] Agent: impala, vector\n'
_RESUMED = 'I1122 12:00:00.000000 1 run.py:1] Resuming from /a/b-1/ckpt-{}\n'
_WARNED = 'W1122 12:00:00.000000 1 a.py:1] ckpt-{} cannot be restored\n'


def _metrics(*frames):
  """metrics.jsonl of one start, with a line a second."""
  entries, previous = [], 0
  for seconds, number in enumerate(frames, 1):
    entries.append(dict(frames=number, fps=float(number - previous),
                        wall_time=float(seconds)))
    previous = number
  return ''.join(json.dumps(entry) + '\n' for entry in entries).encode()


def _episodes(*frames):
  return b''.join(
      [logs.HEADER + b'\n',
       *(b'%d,"synthetic:size=4,std=1",1,20\n' % number for number in frames)])


def _snap(*whole, damaged=(), metrics=None, episodes=None, **files):
  """A snapshot; keywords are names of files, with _ for what is not a letter.

  Args:
    *whole: Frames of whole checkpoints.
    damaged: Frames of others.
    metrics: Frames of lines, or all of the file.
    episodes: Frames of rows, or all of the file.
    **files: Others.
  """
  for name, content, make in ((snapshot.METRICS, metrics, _metrics),
                              (snapshot.EPISODES, episodes, _episodes)):
    if content is not None:
      files[name] = (content if isinstance(content, bytes)
                     else make(*content))
  for number in (*whole, *damaged):
    for part in _CKPT:
      files[part.format(number)] = part.format(number).encode()
  return snapshot.Snapshot(files, {number: number for number in whole})


def _rules(found):
  return [violation.rule for violation in found]


# -- Words and exit codes ------------------------------------------------------


def test_words():
  assert words.check_lines('Error: once\n') == []
  assert _rules(words.check_lines(
      'Traceback (most recent call last)\nOSError\n')) == ['traceback']
  assert _rules(words.check_lines('Error: a\nError: b\n')) == ['one line']


@pytest.mark.parametrize('code, expected, errors, rules', [
    (0, {0}, '', []),
    (-9, {-9}, 'anything', []),
    (1, {1}, 'before\nError: this\n', []),
    (1, {1}, 'Error: this\nand more\n', ['one line']),
    (1, {1}, '', ['one line']),
    (1, {0}, 'Error: this\n', ['exit code']),
    (-15, {0}, '', ['exit code']),
    (None, {0}, 'last\nFatal Python error: Aborted\nstacks', ['hang'])])
def test_exit_codes(code, expected, errors, rules):
  found = words.check_exit(code, expected, errors)
  assert _rules(found) == rules
  if code is None:
    assert found[0].detail.endswith(': last')


@pytest.mark.parametrize('count, rules', [
    (0, ['warnings']), (1, []), (3, []), (4, ['warnings'])])
def test_warnings(count, rules):
  errors = _TRAINED + count * _WARNED.format(1)
  assert _rules(words.check_warnings(errors, 1, 3)) == rules


# -- Resuming ------------------------------------------------------------------


@pytest.mark.parametrize('whole, damaged, errors, rules', [
    ([0, 10], [], _RESUMED.format(10), []),
    ([0, 10], [20], _RESUMED.format(10), []),
    ([0, 10], [], '', []),  # It was killed before.
    ([], [], _TRAINED, []),
    ([0, 10], [], _RESUMED.format(0), ['resumed']),
    ([0], [10], _RESUMED.format(10), ['resumed']),
    ([0], [], _RESUMED.format(10), ['resumed']),
    ([0, 10], [], _TRAINED, ['began afresh'])])
def test_resuming(whole, damaged, errors, rules):
  before = _snap(*whole, damaged=damaged)
  assert _rules(oracle.check_resumed(before, errors)) == rules


def test_resuming_from_what_was_being_moved():
  before = _snap(0, **{'ckpt-10_temp/ckpt-10.index': b''})
  assert oracle.check_resumed(before, _RESUMED.format(10)) == []


def test_the_path_of_a_checkpoint_may_have_numbers():
  assert words.resumed_frames(_TRAINED + _RESUMED.format(120)) == 120
  assert words.resumed_frames(_TRAINED) is None


def _set_aside(number):
  return {'damaged-' + part.format(number): part.format(number).encode()
          for part in _CKPT}


@pytest.mark.parametrize('errors, files, rules', [
    (_WARNED.format(20), _set_aside(20), []),
    ('', _set_aside(20), ['set aside']),
    (_WARNED.format(2), _set_aside(20), ['set aside']),
    (_WARNED.format(20), {}, ['set aside'] * 2),
    (_WARNED.format(20), dict.fromkeys(_set_aside(20), b'other'),
     ['set aside'] * 2)])
def test_setting_aside(errors, files, rules):
  before = _snap(10, damaged=[5, 20])
  found = oracle.check_set_aside(
      before, _snap(10, 30, **files), errors + _RESUMED.format(10))
  assert _rules(found) == rules


@pytest.mark.parametrize('before, refuses', [
    (_snap(), False),
    (_snap(0), False),
    (_snap(0, damaged=[10], metrics=[10]), False),
    (_snap(damaged=[0]), True),
    (_snap(**{'ckpt-0.index': b''}), True),
    (_snap(**{'ckpt-0.data-00000-of-00001': b'',
              'ckpt-0_temp/ckpt-0.index': b''}), False),
    (_snap(metrics=[10]), True),
    (_snap(episodes=[10]), True),
    (_snap(metrics=[], episodes=[]), False),
    (_snap(**{'best/best.json': b''}), True)])
def test_what_has_to_be_refused(before, refuses):
  assert oracle.must_refuse(before) == refuses


def test_nothing_changes():
  before = _snap(0, metrics=[10], **{'ckpt-1_temp/': b'', 'config.json': b'a'})
  same = _snap(0, metrics=[10], **{'config.json': b'a', 'lock': b'7'})
  assert oracle.check_unchanged(before, same) == []
  changed = _snap(0, metrics=[10, 20], new=b'', **{'config.json': b'b'})
  assert [v.detail.split()[0] for v in oracle.check_unchanged(
      before, changed)] == ['config.json', 'metrics.jsonl', 'new']
  assert _rules(oracle.check_unchanged(before, _snap(metrics=[10]))) == [
      'changed'] * 3
  # A start that has nothing to do writes its configuration.
  assert oracle.check_nothing_to_do(before, _snap(
      0, metrics=[10], **{'config.json': b'b', 'events.out.1': b''})) == []
  assert _rules(oracle.check_nothing_to_do(before, changed)) == ['changed'] * 2


def test_kept_lines():
  before = _snap(10, metrics=[5, 10, 15], episodes=[3, 10, 12])
  assert oracle.check_kept(before, before, 10) == []
  after = _snap(10, metrics=_metrics(5, 10) + b'{"frames": 20}\n',
                episodes=[3, 10, 20])
  assert oracle.check_kept(before, after, 10) == []
  # Line 15 has to be there if that is what it resumed from.
  assert _rules(oracle.check_kept(before, after, 15)) == ['kept lines'] * 2
  assert oracle.check_kept(before, after, 15, (
      snapshot.METRICS, snapshot.EPISODES)) == []
  other = _snap(10, metrics=[6, 10], episodes=[10, 20])
  assert _rules(oracle.check_kept(before, other, 10)) == ['kept lines'] * 2
  assert _rules(oracle.check_kept(before, _snap(), 10)) == ['kept lines'] * 2


@pytest.mark.parametrize('name', [
    'ckpt-5_temp/', 'ckpt-5_temp/part-00000-of-00001.index',
    'metrics.jsonl.tmp', 'config.json.77.tmp', 'checkpoint.tmp12ab'])
def test_leftovers(name):
  before, after = _snap(**{name: b'1'}), _snap(**{name: b'2'})
  assert _rules(oracle.check_leftovers(before, before)) == ['leftovers']
  # This one may be of the run that was killed.
  assert oracle.check_leftovers(before, after) == []
  assert oracle.check_leftovers(before, _snap(0)) == []
  assert _rules(oracle.check_leftovers(None, after)) == ['leftovers']


# -- What is saved and logged --------------------------------------------------


def test_saves():
  assert oracle.check_saved(_snap(0, 10), 10) == []
  assert oracle.check_saved(_snap(), None) == []
  assert _rules(oracle.check_saved(_snap(0), 10)) == ['lost save']
  assert _rules(oracle.check_saved(_snap(0, damaged=[10]), 10)) == ['lost save']
  assert _rules(oracle.check_saved(_snap(), 0)) == ['lost save']
  other = snapshot.Snapshot({}, {10: 20})
  assert _rules(oracle.check_saved(other, None)) == ['frames']


def test_old_checkpoints_go():
  assert oracle.check_count(_snap(10, 20, damaged=[30]), 3) == []
  assert _rules(oracle.check_count(
      _snap(10, 20, damaged=[30]), 2)) == ['checkpoints']


def test_stopping_saves_all():
  assert oracle.check_stopped(_snap(0, 20, metrics=[10, 20])) == []
  assert _rules(oracle.check_stopped(
      _snap(0, 10, metrics=[10, 20]))) == ['not saved']
  assert _rules(oracle.check_stopped(_snap(metrics=[10]))) == ['not saved']


@pytest.mark.parametrize('metrics, rules', [
    (_metrics(10, 20, 30), []), (None, []), (b'', []),
    (_metrics(10, 10), ['metrics']),
    (_metrics(20, 10), ['metrics']),
    (_metrics(10) + b'nothing\n' + _metrics(20), ['metrics']),
    (b'7\n', ['metrics']),
    (b'\xff\n', ['metrics']),
    (_metrics(10) + b'{"frames', ['metrics'])])
def test_lines_of_metrics(metrics, rules):
  after = _snap(metrics=metrics)
  assert _rules(oracle.check_metrics(after, ended_by_itself=True)) == rules


def test_a_killed_run_may_leave_half_a_line():
  after = _snap(metrics=_metrics(10) + b'{"frames',
                episodes=_episodes(10) + b'1')
  assert oracle.check_metrics(after, ended_by_itself=False) == []
  assert oracle.check_episodes(after, ended_by_itself=False) == []


def test_the_line_of_a_checkpoint():
  assert oracle.check_line_of_checkpoint(_snap(0, 20, metrics=[20, 30])) == []
  assert oracle.check_line_of_checkpoint(_snap(0)) == []
  found = oracle.check_line_of_checkpoint(_snap(0, 25, metrics=[20, 30]))
  assert _rules(found) == ['hole'] and '5 frames' in found[0].detail
  assert _rules(oracle.check_line_of_checkpoint(_snap(25))) == ['hole']


def test_frames_that_lines_tell_of():
  assert oracle.check_covered(_snap(metrics=[10, 20, 45])) == []
  # Of two starts: the second resumed from the last line, and its first line is
  # later in it than the other's last.
  first = _metrics(10, 20)
  line = b'{"frames": 60, "fps": 8.0, "wall_time": 5.0}\n'
  assert oracle.check_covered(_snap(metrics=first + line)) == []
  hole = b'{"frames": 70, "fps": 8.0, "wall_time": 5.0}\n'
  found = oracle.check_covered(_snap(metrics=first + hole))
  assert _rules(found) == ['hole'] and 'frame 70' in found[0].detail
  lines = _metrics(10, 20, 50).splitlines(True)
  assert _rules(oracle.check_covered(
      _snap(metrics=lines[0] + lines[2]))) == ['hole']
  twice = line.replace(b'60', b'40')  # Of more frames than there were.
  assert _rules(oracle.check_covered(_snap(metrics=first + twice))) == ['hole']


@pytest.mark.parametrize('episodes, rules', [
    (_episodes(10, 10, 20), []), (None, []), (_episodes(), []),
    (_episodes(20, 10), ['episodes']),
    (_episodes(10) + _episodes(20), ['episodes'] * 2),
    (_episodes(10).partition(b'\n')[2], ['episodes']),
    (b'', ['episodes']),
    (_episodes(10) + b'20,leve', ['episodes']),
    (_episodes(10) + b'20,level,1\n', ['episodes']),
    (_episodes(10) + b'20,level,1,2\xff\n', ['episodes'])])
def test_rows_of_episodes(episodes, rules):
  after = _snap(episodes=episodes)
  assert _rules(oracle.check_episodes(after, ended_by_itself=True)) == rules


def test_nothing_is_logged_before_a_save():
  assert oracle.check_saved_first(_snap(0, metrics=[10])) == []
  assert oracle.check_saved_first(_snap(metrics=[], episodes=[])) == []
  assert _rules(oracle.check_saved_first(_snap(metrics=[10]))) == ['first save']
  assert _rules(oracle.check_saved_first(_snap(episodes=[1]))) == ['first save']


@pytest.mark.parametrize('code, seconds, line, rules', [
    (1, 3, 'Error: process 77 of host has it\n', []),
    (1, 30, 'Error: process 77 of host has it\n', ['second run']),
    (1, 3, 'Error: process 777 of host has it\n', ['second run']),
    (1, 3, 'Error: process 77 has it\n', ['second run']),
    (0, 3, '', ['second run']), (None, 3, '', ['second run'])])
def test_a_second_run(code, seconds, line, rules):
  found = words.check_second(code, seconds, line, 77, 'host', 20)
  assert _rules(found) == rules


# -- A whole start -------------------------------------------------------------


def _start(before, after, code, errors, completed=None, first=0):
  return arena_lib.Start(before, after, code, errors, first, completed)


def test_a_start_that_keeps_all_promises():
  before = _snap(0, 10, metrics=[10])
  after = _snap(10, 20, metrics=[10, 20], episodes=[15])
  errors = _RESUMED.format(10) + _TRAINED
  assert arena_lib.check(_start(before, after, 0, errors, 20), {0}) == []
  fresh = _start(_snap(), after, 0, _TRAINED, 20)
  assert arena_lib.check(fresh, {0}) == []
  assert _rules(arena_lib.check(fresh._replace(first=10), {0})) == [
      'first save']
  refused = _start(_snap(damaged=[0]), _snap(damaged=[0]), 1, 'Error: a\n')
  assert arena_lib.check(refused, {0}) == []


def test_starts_that_break_promises():
  before = _snap(0, 10, metrics=[10])
  after = _snap(10, 20, metrics=[10, 20], episodes=[15])
  errors = _RESUMED.format(10) + _TRAINED
  rules = lambda *args: set(_rules(arena_lib.check(_start(*args), {0})))
  assert rules(before, after, -15, errors, 20) == {'exit code'}
  assert rules(before, after, 0, errors, 30) == {'lost save'}
  many = _snap(5, 10, 15, 20, metrics=[10, 20], episodes=[15])
  assert rules(before, many, 0, errors) == {'checkpoints'}
  assert 'checkpoints' not in rules(before, many, -9, errors)
  assert rules(before, _snap(0), 0, '') == {'lost save'}
  assert 'began afresh' in rules(before, after, 0, _TRAINED, 20)
  assert rules(_snap(metrics=[10]), after, 0, _TRAINED) >= {
      'exit code', 'changed'}


# -- What the oracle is told ---------------------------------------------------


def test_pairs_of_files():
  names = ['ckpt-0.index', 'ckpt-0.data-00000-of-00001', 'ckpt-10.index',
           'damaged-ckpt-5.index', 'damaged-ckpt-5.data-00000-of-00001',
           'ckpt-7.data-00000-of-00001', 'checkpoint']
  assert snapshot.pairs(names) == [0]
  assert snapshot.numbers(names) == [0, 7, 10]
  assert snapshot.temporaries(names) == set()


@pytest.fixture(name='saved')
def _saved(tmp_path):
  """A directory with two checkpoints of TensorFlow's."""
  import tensorflow as tf
  for number in (0, 10):
    tf.train.Checkpoint(
        num_environment_frames=tf.Variable(number, dtype=tf.int64),
        other=tf.Variable(tf.random.normal([100]))
    ).write(str(tmp_path / f'ckpt-{number}'))
  (tmp_path / 'empty').mkdir()
  return tmp_path


def test_a_snapshot_knows_what_is_whole(saved):
  snap = snapshot.take(saved)
  assert snap.whole == {0: 0, 10: 10} and 'empty/' in snap.files
  assert snapshot.take(saved / 'none') == snapshot.Snapshot()


@pytest.mark.parametrize('how', damage.DAMAGES)
@pytest.mark.parametrize('part', _CKPT)
def test_a_snapshot_knows_what_is_damaged(saved, how, part):
  path = saved / part.format(10)
  before = path.read_bytes()
  damage.damage(path, how, random.Random(0))
  assert not path.exists() or path.read_bytes() != before
  assert snapshot.take(saved).whole == {0: 0}


def test_all_ways_to_damage_a_directory(saved):
  """They change something, and never the checkpoint that is to stay."""
  rng = random.Random(0)
  (saved / snapshot.METRICS).write_bytes(_metrics(10, 20))
  before = snapshot.take(saved)
  for _ in range(20):
    damage.damage_state(saved, rng)
  damage.leave_temporaries(saved, rng)
  damage.cut_log(saved, snapshot.METRICS, rng)
  after = snapshot.take(saved)
  assert after.whole == before.whole
  assert snapshot.temporaries(after.files)
  assert len(after.files[snapshot.METRICS]) < len(
      before.files[snapshot.METRICS])
  damage.put_directory(saved, 'checkpoint')
  assert 'checkpoint/' in snapshot.take(saved).files
  damage.remove_checkpoints(saved)
  assert snapshot.numbers(snapshot.take(saved).files) == []
