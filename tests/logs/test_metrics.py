"""What a run writes: metrics, episodes, TensorBoard events, progress."""

import csv
import fcntl
import glob
import io
import json
import logging
import os
import pty
import struct
import sys
import termios
import threading
import time

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import dmlab30
from scalable_agent import trajectories
from scalable_agent.logs import metrics as metrics_lib
from scalable_agent.process import progress as progress_lib

HEADER = 'frames,level,episode_return,episode_frames\n'
LOGS = dict(total_loss=4., learning_rate=.5, skipped=0.)
ACTIONS = np.array([[0, 2], [1, 2]], np.int32)


def _reporter(logdir, frames=0, learner_steps=0, interval_secs=1e9,
              level_name='pong'):
  return metrics_lib.Reporter(config_lib.resolve(dict(
      logdir=str(logdir), total_environment_frames=1000,
      log_interval_secs=interval_secs, level_name=level_name)), frames,
                              learner_steps)


def _episode(episode_return=1.5, frames=40, level_name='pong'):
  return trajectories.Episode(level_name, episode_return, frames)


def _metrics(logdir):
  return [json.loads(line, parse_constant=pytest.fail)
          for line in (logdir / 'metrics.jsonl').read_text().splitlines()]


def _summaries(logdir):
  """A dict of tag to a list of (step, array) in all event files."""
  found = {}
  for path in glob.glob(str(logdir / 'events.*')):
    for record in tf.data.TFRecordDataset(path):
      event = tf.compat.v1.Event.FromString(record.numpy())
      for value in event.summary.value:
        found.setdefault(value.tag, []).append(
            (event.step, tf.make_ndarray(value.tensor)))
  return found


def _scalars(logdir):
  """A dict of tag to a list of (step, value), of those that are numbers."""
  return {tag: [(step, float(value)) for step, value in values]
          for tag, values in _summaries(logdir).items()
          if values[0][1].dtype == np.float32 and not values[0][1].shape}


# -- metrics.jsonl ------------------------------------------------------------


def test_writing_leaves_nothing_behind(tmp_path):
  """TensorFlow would keep a Python number that it converts for ever."""
  frames, value = int('123456'), float('3.25')
  episode = _episode(float('7.5'), int('34567'))
  numbers = frames, value, episode.episode_return, episode.episode_frames
  reporter = _reporter(tmp_path)
  reporter.step(frames, dict(total_loss=1.), np.array([1]), ACTIONS)
  reporter.episode(episode)
  counts = lambda: [sys.getrefcount(number) for number in numbers]
  before = counts()
  reporter.write(1, dict(gauge=value), {})
  # The return is kept for the means of 100 games, of all and of the level; the
  # frames, instead of for the episode, for those per second.
  assert np.subtract(counts(), before).tolist() == [0, 0, 2, 0]
  reporter.close()


def test_metrics_are_means_over_the_interval(tmp_path):
  reporter = _reporter(tmp_path)
  reporter.step(100, dict(LOGS, total_loss=2.), np.array([0, 1]), ACTIONS)
  reporter.step(200, dict(LOGS, total_loss=6., learning_rate=.3, skipped=1.),
                np.array([7, 2]), ACTIONS)
  reporter.write(2, dict(queue_size=3), dict(learner_step=.25))
  reporter.step(300, dict(LOGS, total_loss=-1., skipped=1.),
                np.array([1, 1]), ACTIONS)
  reporter.write(3, dict(queue_size=0), {})
  reporter.close()
  first, second = _metrics(tmp_path)

  assert set(first) == {
      'frames', 'wall_time', 'fps', 'learner_steps', 'updates_per_frame',
      'total_loss', 'learning_rate', 'skipped', 'policy_lag_mean',
      'policy_lag_max', 'queue_size', 'time_learner_step'}
  assert (first['frames'], first['learner_steps']) == (200, 2)
  assert (first['updates_per_frame'], second['updates_per_frame']) == (
      .01, .01)
  assert first['total_loss'] == 4.
  assert first['learning_rate'] == pytest.approx(.4)
  assert first['skipped'] == 1.
  assert first['policy_lag_mean'] == pytest.approx((0.5 + 4.5) / 2)
  assert first['policy_lag_max'] == 7
  assert first['queue_size'] == 3
  assert first['fps'] == pytest.approx(200 / first['wall_time'], rel=.1)
  assert first['time_learner_step'] == pytest.approx(
      .25 / first['wall_time'], rel=.1)
  # Nothing of the first interval is left in the second.
  assert second['frames'] == 300
  assert second['total_loss'] == -1.
  assert second['skipped'] == 1.
  assert second['policy_lag_max'] == 1
  assert second['fps'] == pytest.approx(
      100 / (second['wall_time'] - first['wall_time']), rel=.1)
  assert 'time_learner_step' not in second


def test_means_are_over_the_updates_that_have_a_value(tmp_path):
  reporter = _reporter(tmp_path)
  for frames, value in ((100, np.nan), (200, .5), (300, .7)):
    reporter.step(frames, dict(LOGS, relevance_mean=value), np.array([0]),
                  ACTIONS)
  reporter.write(3, {}, {})
  reporter.step(400, dict(LOGS, relevance_mean=np.nan), np.array([0]), ACTIONS)
  reporter.write(4, {}, {})
  reporter.close()
  first, second = _metrics(tmp_path)
  assert first['relevance_mean'] == pytest.approx(.6)
  assert second['relevance_mean'] is None


def test_the_mean_lag_is_over_unrolls(tmp_path):
  """Of which updates have different numbers where some are replayed."""
  reporter = _reporter(tmp_path)
  reporter.step(100, LOGS, np.array([3]), ACTIONS)
  reporter.step(200, LOGS, np.array([], np.int64), ACTIONS)
  reporter.step(300, LOGS, np.array([0, 1, 0]), ACTIONS)
  reporter.write(3, {}, {})
  reporter.close()
  (metrics,) = _metrics(tmp_path)
  assert (metrics['policy_lag_mean'], metrics['policy_lag_max']) == (1., 3)


def test_what_is_not_finite_is_null(tmp_path):
  """The file stays JSON, which has no NaN."""
  reporter = _reporter(tmp_path)
  reporter.step(100, dict(LOGS, total_loss=np.nan, grad_norm=np.inf),
                np.array([0]), ACTIONS)
  reporter.write(1, {}, {})
  reporter.close()
  metrics, = _metrics(tmp_path)
  assert metrics['total_loss'] is None and metrics['grad_norm'] is None
  assert metrics['learning_rate'] == .5


def test_a_suite_has_its_scores_once_every_level_has_had_a_game(tmp_path):
  reporter = _reporter(tmp_path, level_name='atari57')
  for game in atari57.GAMES[1:]:
    reporter.episode(_episode(atari57.HUMAN_SCORES[game], level_name=game))
  reporter.step(100, LOGS, np.array([0]), ACTIONS)
  said = [reporter.write(1, {}, {})]
  game = atari57.GAMES[0]
  reporter.episode(_episode(atari57.RANDOM_SCORES[game], level_name=game))
  reporter.step(200, LOGS, np.array([0]), ACTIONS)
  said.append(reporter.write(2, {}, {}))
  reporter.close()
  before, after = _metrics(tmp_path)
  median, mean = ('median_human_normalized_score',
                  'mean_human_normalized_score')
  assert median not in before and mean not in before
  assert 'median' not in said[0]
  assert ', median 100.0 %, ' in said[1]
  assert after[median] == pytest.approx(100)
  assert after[mean] == pytest.approx(100 * 56 / 57)
  assert after['capped_human_normalized_score'] == pytest.approx(100 * 56 / 57)
  scalars = _scalars(tmp_path)
  assert scalars[f'1_return/{median}'] == [(200, pytest.approx(100))]
  assert not any(name.startswith('dmlab30/') for name in scalars)


def test_dmlab30_has_its_released_names_in_tensorboard(tmp_path):
  """One level at twice a human's score counts once and twice."""
  reporter = _reporter(tmp_path, level_name='dmlab30')
  for i, (level, twin) in enumerate(dmlab30.LEVEL_MAPPING.items()):
    human, random = dmlab30.HUMAN_SCORES[twin], dmlab30.RANDOM_SCORES[twin]
    reporter.episode(_episode(
        human if i else 2 * human - random, level_name=level))
  reporter.step(100, LOGS, np.array([0]), ACTIONS)
  reporter.write(1, {}, {})
  reporter.close()
  scalars = _scalars(tmp_path)
  assert scalars['dmlab30/training_cap_100'] == [(100, pytest.approx(100))]
  assert scalars['dmlab30/training_no_cap'] == [
      (100, pytest.approx(100 * 31 / 30))]
  assert scalars['1_return/capped_human_normalized_score'] == (
      scalars['dmlab30/training_cap_100'])


def test_tensorboard_has_a_histogram_of_actions(tmp_path):
  """Of the newest batch: as many of each action as there are in it."""
  reporter = _reporter(tmp_path)
  reporter.step(100, LOGS, np.array([0]), ACTIONS + 1)
  reporter.step(200, LOGS, np.array([0]), ACTIONS)
  reporter.write(2, {}, {})
  reporter.write(2, {}, {})
  reporter.close()
  (step, buckets), = _summaries(tmp_path)['5_policy/action']
  assert step == 200
  counts = {action: sum(count for low, high, count in buckets
                        if low <= action < high or action == high == 2)
            for action in range(3)}
  assert counts == {0: 1, 1: 1, 2: 2}


def test_before_an_episode_has_ended_the_file_has_its_header(tmp_path):
  reporter = _reporter(tmp_path)
  assert not (tmp_path / 'episodes.csv').exists()
  for _ in range(2):
    reporter.step(100, LOGS, np.array([0]), ACTIONS)
    reporter.write(1, {}, {})
    assert (tmp_path / 'episodes.csv').read_text() == HEADER
  reporter.episode(_episode())
  reporter.write(1, {}, {})
  reporter.close()
  header, line = (tmp_path / 'episodes.csv').read_text().splitlines()
  assert header + '\n' == HEADER and line.endswith('1.5,40')


def test_no_line_without_a_step(tmp_path):
  """So the frames increase strictly; games are written all the same."""
  reporter = _reporter(tmp_path)
  reporter.episode(_episode())
  reporter.write(0, {}, {})
  reporter.close()
  assert not (tmp_path / 'metrics.jsonl').exists()
  assert len((tmp_path / 'episodes.csv').read_text().splitlines()) == 2
  assert not any(tag.startswith(('2_speed', '3_lag'))
                 for tag in _summaries(tmp_path))


def test_due_after_the_interval(tmp_path, monkeypatch):
  now = [1000.]
  monkeypatch.setattr(metrics_lib.time, 'monotonic', lambda: now[0])
  reporter = _reporter(tmp_path, interval_secs=10.)
  assert not reporter.due()
  now[0] += 10.
  assert reporter.due()
  reporter.write(0, {}, {})
  assert not reporter.due()
  reporter.close()


def test_lines_are_there_at_once(tmp_path):
  """Whoever follows the files sees whole lines before the run has ended."""
  reporter = _reporter(tmp_path)
  reporter.episode(_episode())
  reporter.step(100, LOGS, np.array([0]), ACTIONS)
  reporter.write(1, {}, {})
  assert len(_metrics(tmp_path)) == 1
  assert (tmp_path / 'episodes.csv').read_text().endswith('1.5,40\n')
  assert '7_levels/pong/episode_return' in _scalars(tmp_path)
  reporter.close()


# -- episodes.csv and TensorBoard ---------------------------------------------


def test_episodes(tmp_path):
  """A game is noted at the frames of the learner when it ended."""
  reporter = _reporter(tmp_path)
  reporter.episode(_episode(-21., 3600))
  reporter.step(100, LOGS, np.array([0]), ACTIONS)
  reporter.episode(_episode(1234567., 108000, 'gym:CartPole-v1'))
  reporter.step(200, LOGS, np.array([0]), ACTIONS)
  reporter.write(2, {}, {})
  reporter.episode(_episode(.5, 4))
  reporter.write(2, {}, {})
  reporter.close()
  assert (tmp_path / 'episodes.csv').read_text() == (
      HEADER + '0,pong,-21,3600\n100,gym:CartPole-v1,1234567,108000\n'
      '200,pong,0.5,4\n')
  scalars = _scalars(tmp_path)
  assert scalars['7_levels/pong/episode_return'] == [(0, -21.), (200, .5)]
  assert scalars['7_levels/pong/episode_frames'] == [(0, 3600.), (200, 4.)]
  assert scalars['7_levels/gym:CartPole-v1/episode_return'] == [
      (100, 1234567.)]
  assert scalars['4_losses/total_loss'][0] == (200, 4.)


def test_level_names_with_commas_are_quoted(tmp_path):
  reporter = _reporter(tmp_path)
  reporter.episode(_episode(level_name='gym:a,"b"'))
  reporter.write(0, {}, {})
  reporter.close()
  with open(tmp_path / 'episodes.csv', newline='') as f:
    assert [row[1] for row in csv.reader(f)] == ['level', 'gym:a,"b"']


def test_episodes_of_many_threads(tmp_path):
  """None is lost or written twice while the main thread writes."""
  reporter = _reporter(tmp_path)
  num_threads, num_games = 8, 200

  def play(i):
    for j in range(num_games):
      reporter.episode(_episode(i * num_games + j))

  threads = [threading.Thread(target=play, args=(i,))
             for i in range(num_threads)]
  for thread in threads:
    thread.start()
  steps = 0
  while any(thread.is_alive() for thread in threads):
    steps += 1
    reporter.step(steps, LOGS, np.array([0]), ACTIONS)
    reporter.write(steps, {}, {})
  reporter.write(steps, {}, {})
  reporter.close()

  rows = (tmp_path / 'episodes.csv').read_text().splitlines()[1:]
  returns = [float(row.split(',')[2]) for row in rows]
  assert sorted(returns) == list(range(num_threads * num_games))
  frames = [int(row.split(',')[0]) for row in rows]
  for i in range(num_threads):  # In the order in which a thread told them.
    mine = [r for r in returns if r // num_games == i]
    assert mine == sorted(mine)
  assert frames == sorted(frames)


# -- Resuming -----------------------------------------------------------------


def _write_run(logdir, frames):
  with open(logdir / 'metrics.jsonl', 'w') as f:
    f.writelines(json.dumps(dict(frames=n)) + '\n' for n in frames)
  with open(logdir / 'episodes.csv', 'w') as f:
    f.write(HEADER)
    f.writelines(f'{n},pong,{n},4\n' for n in frames)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 300), unique=True), st.integers(0, 300),
       st.integers(0, 40))
def test_what_came_after_the_checkpoint_is_dropped(
    tmp_path_factory, frames, checkpoint_frames, cut):
  """Also what a killed run wrote half of, wherever it was cut."""
  logdir = tmp_path_factory.mktemp('run')
  frames.sort()
  _write_run(logdir, frames)
  contents = {name: (logdir / name).read_bytes()
              for name in ('metrics.jsonl', 'episodes.csv')}
  for name, content in contents.items():
    # The header is written before any training.
    content = content[:max(len(content) - cut, len(HEADER) * ('csv' in name))]
    contents[name] = content
    (logdir / name).write_bytes(content)

  reporter = _reporter(logdir, checkpoint_frames)
  reporter.episode(_episode(77., 4))
  reporter.step(400, LOGS, np.array([0]), ACTIONS)
  reporter.write(1, {}, {})
  reporter.close()

  whole = contents['metrics.jsonl'].count(b'\n')
  assert [m['frames'] for m in _metrics(logdir)] == [
      n for n in frames[:whole] if n <= checkpoint_frames] + [400]
  whole = contents['episodes.csv'].count(b'\n') - 1
  assert (logdir / 'episodes.csv').read_text() == HEADER + ''.join(
      f'{n},pong,{n},4\n' for n in frames[:whole] if n <= checkpoint_frames
  ) + f'{checkpoint_frames},pong,77,4\n'
  assert not [name for name in os.listdir(logdir) if name.endswith('.tmp')]


def test_updates_after_the_checkpoint_are_dropped_where_frames_are_equal(
    tmp_path):
  """As of Reactor, which makes several updates for each unroll that comes."""
  (tmp_path / 'metrics.jsonl').write_text(''.join(
      json.dumps(dict(frames=frames, learner_steps=steps)) + '\n'
      for frames, steps in ((60, 3), (80, 6), (80, 7), (100, 8))))
  _reporter(tmp_path, frames=80, learner_steps=6).close()
  assert [m['learner_steps'] for m in _metrics(tmp_path)] == [3, 6]


def test_a_number_cut_short_is_no_smaller_number(tmp_path):
  """'64' of '6400' is not a row at 64 frames, but half of one at 6400."""
  (tmp_path / 'episodes.csv').write_text(HEADER + '32,pong,1,4\n64')
  _reporter(tmp_path, frames=100).close()
  assert (tmp_path / 'episodes.csv').read_text() == HEADER + '32,pong,1,4\n'


def test_a_file_with_nothing_to_drop_is_left_alone(tmp_path):
  _write_run(tmp_path, [100, 200])
  before = os.stat(tmp_path / 'metrics.jsonl')
  _reporter(tmp_path, frames=200).close()
  after = os.stat(tmp_path / 'metrics.jsonl')
  assert (before.st_ino, before.st_mtime_ns) == (after.st_ino,
                                                 after.st_mtime_ns)


def test_fps_of_a_resumed_run_counts_its_own_frames(tmp_path):
  reporter = _reporter(tmp_path, frames=10**9)
  reporter.step(10**9 + 100, LOGS, np.array([0]), ACTIONS)
  reporter.write(1, {}, {})
  reporter.close()
  metrics, = _metrics(tmp_path)
  assert metrics['fps'] == pytest.approx(100 / metrics['wall_time'], rel=.1)


# -- Progress -----------------------------------------------------------------


def _read_until(descriptor, end):
  """What a terminal has been sent, which may take a while on a busy machine."""
  text = ''
  deadline = time.monotonic() + 60
  while not text.endswith(end):
    assert time.monotonic() < deadline, text
    try:
      text += os.read(descriptor, 4096).decode()
    except BlockingIOError:
      time.sleep(.01)
  return text


@pytest.mark.parametrize('columns', [20, 80])
def test_on_a_terminal_one_line_is_overwritten(columns):
  """Never as wide as the terminal, which would make it two lines."""
  master, slave = pty.openpty()
  os.set_blocking(master, False)
  fcntl.ioctl(
      slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
  with open(slave, 'w') as stream:
    progress = progress_lib.ProgressLine(stream)
    progress.show('a longer first text')
    progress.show('x' * 100)
    progress.show('last')
    shown = _read_until(master, 'last')
    progress.end()
    ended = _read_until(master, '\n')
  os.close(master)
  assert '\n' not in shown
  lines = shown.split('\r\x1b[K')
  assert lines == ['', 'a longer first text'[:columns - 1],
                   'x' * (columns - 1), 'last']
  assert ended == '\r\n'


def test_elsewhere_progress_is_log_lines(caplog):
  stream = io.StringIO()
  progress = progress_lib.ProgressLine(stream)
  with caplog.at_level(logging.INFO, logger='absl'):
    progress.show('one')
    progress.show('two')
  progress.end()
  assert [record.getMessage() for record in caplog.records] == ['one', 'two']
  assert stream.getvalue() == ''
