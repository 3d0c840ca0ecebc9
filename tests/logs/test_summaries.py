"""What TensorBoard is given: groups in order, settings, distributions, films.
"""

import glob
import io

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf
from tensorboard.plugins.hparams import metadata as hparams_metadata

from scalable_agent import atari57
from scalable_agent import config as config_lib
from scalable_agent import staging
from scalable_agent import trajectories
from scalable_agent.assembly import devices
from scalable_agent.assembly import learner as learner_assembly
from scalable_agent.logs import film
from scalable_agent.logs import recent
from scalable_agent.logs import summaries
from scalable_agent.process import timing

_METRICS = dict(
    frames=200, wall_time=1., fps=3., learner_steps=1, total_loss=4.,
    policy_lag_mean=.5, policy_lag_max=1, behaviour_kl=.1, new_loss=2.,
    queue_size=3, replay_age_mean=9., replayed_share=.5,
    time_learner_wait=.5)


def _config(logdir, **values):
  return config_lib.resolve(dict(
      dict(logdir=str(logdir), level_name='pong'), **values))


def _write(logdir, episodes=(), metrics=None, shown=None, **values):
  """Writes once, and returns a dict of tag to the newest (event, value)."""
  config = _config(logdir, **values)
  recent_episodes = recent.RecentEpisodes(config.level_name)
  for _, episode in episodes:
    recent_episodes.add(episode)
  found = summaries.Summaries(config)
  found.write(200, dict(metrics or _METRICS), list(episodes), recent_episodes,
              {'3_lag/policy_lag': np.array([0, 1, 1]),
               '5_policy/action': np.array([[2, 2]])}, shown)
  found.close()
  return {value.tag: (event, value) for event, value in _read(logdir)}


def _read(logdir):
  """Returns a list of pairs: an event, and a value in it."""
  events = [tf.compat.v1.Event.FromString(record.numpy())
            for path in glob.glob(str(logdir / 'events.*'))
            for record in tf.data.TFRecordDataset(path)]
  return [(event, value) for event in events for value in event.summary.value]


def _plugin(value):
  return value.metadata.plugin_data.plugin_name


def _number(found, tag):
  return float(tf.make_ndarray(found[tag][1].tensor))


def test_groups_stand_in_the_order_in_which_people_look(tmp_path):
  """The return comes first, as the mean of 100 episodes."""
  found = _write(tmp_path, [(100, trajectories.Episode('pong', value, 40))
                            for value in (1., 2.)])
  tags = sorted(tag for tag, (_, value) in found.items()
                if _plugin(value) == 'scalars')
  assert tags == [
      '1_return/mean_of_100_episodes', '2_speed/fps', '2_speed/learner_steps',
      '3_lag/policy_lag_max', '3_lag/policy_lag_mean', '3_lag/queue_size',
      '3_lag/replay_age_mean', '3_lag/replayed_share', '4_losses/new_loss',
      '4_losses/total_loss', '5_policy/behaviour_kl',
      '6_time/time_learner_wait', '7_levels/pong/episode_frames',
      '7_levels/pong/episode_return']
  assert _number(found, '1_return/mean_of_100_episodes') == 1.5
  assert _number(found, '2_speed/fps') == 3.
  assert found['2_speed/fps'][0].step == 200
  assert found['7_levels/pong/episode_return'][0].step == 100


@pytest.mark.parametrize('name, group', [
    ('replay_mb', '3_lag'), ('replaying_mb', '3_lag'),
    ('relevance_mean', '5_policy'), ('replay_rejected', '5_policy'),
    ('online_rejected', '5_policy'),
    ('time_replay', '6_time'), ('of_somebody_else', '4_losses')])
def test_a_key_stands_in_its_group(name, group):
  assert summaries.tag_of(name) == f'{group}/{name}'


@pytest.mark.parametrize('values', [
    {}, dict(replay_proportion=.5),
    dict(replay_proportion=.5, replay_state='recomputed', use_lstm=True),
    dict(agent='reactor', replay_steps=20_000)])
def test_no_gauge_of_a_source_stands_among_the_losses(values):
  source = learner_assembly.create_source(
      config_lib.resolve(dict(
          values, level_name='pong', num_actors=1, batch_size=2)),
      staging.LagLimitedQueue(2, 1, 0), timing.StageTimes(), None,
      devices.Devices(['/cpu:0'], '/cpu:0', False))
  groups = {name: summaries.tag_of(name).split('/')[0]
            for name in source.take_gauges()}
  assert groups and '4_losses' not in groups.values(), groups


def test_every_episode_stands_at_the_frames_where_it_ended(tmp_path):
  """Also those that ended between the same two updates, and of other levels.
  """
  ended = [(100, 'pong', 1.), (100, 'pong', 2.), (100, 'krull', 3.),
           (200, 'pong', 4.)]
  _write(tmp_path, [(frames, trajectories.Episode(level_name, value, 40))
                    for frames, level_name, value in ended])
  assert [(event.step, value.tag, float(tf.make_ndarray(value.tensor)))
          for event, value in _read(tmp_path)
          if value.tag.endswith('episode_return')] == [
              (frames, f'7_levels/{level_name}/episode_return', value)
              for frames, level_name, value in ended]


def test_a_suite_has_its_scores_in_place_of_a_mean_return(tmp_path):
  """And its levels are in one group."""
  games = atari57.GAMES[:2]
  found = _write(
      tmp_path, [(100, trajectories.Episode(game, 1., 4)) for game in games],
      dict(_METRICS, median_human_normalized_score=7.), level_name='atari57')
  assert _number(found, '1_return/median_human_normalized_score') == 7.
  assert '1_return/mean_of_100_episodes' not in found
  for game in games:
    assert _number(found, f'7_levels/{game}/episode_return') == 1.


def test_distributions_of_lags_and_actions(tmp_path):
  found = _write(tmp_path)
  for tag, values in (('3_lag/policy_lag', [0, 1, 1]),
                      ('5_policy/action', [2, 2])):
    _, value = found[tag]
    assert _plugin(value) == 'histograms'
    buckets = tf.make_ndarray(value.tensor)
    assert buckets[:, 2].sum() == len(values)
    assert (buckets[:, 0].min(), buckets[:, 1].max()) == pytest.approx(
        (min(values), max(values)), abs=.51)


def test_the_settings_are_a_text(tmp_path):
  _, value = _write(tmp_path, learning_rate=.125)['settings']
  assert _plugin(value) == 'text'
  text = tf.make_ndarray(value.tensor).item().decode()
  assert '| learning_rate | 0.125 |' in text.splitlines()
  assert all(f'| {name} |' in text for name in config_lib.SETTINGS)


def test_runs_are_rows_of_the_hparams_table(tmp_path):
  """By their directories, though all of their settings be the same."""
  groups = []
  for name in ('a', 'b'):
    found = _write(tmp_path / name, learning_rate=.125)
    _, value = found[hparams_metadata.SESSION_START_INFO_TAG]
    info = hparams_metadata.parse_session_start_info_plugin_data(
        value.metadata.plugin_data.content)
    groups.append(info.group_name)
    assert info.hparams['learning_rate'].number_value == .125
    assert info.hparams['level_name'].string_value == 'pong'
    assert info.hparams['use_lstm'].bool_value is False
    # Whether they are a part of the agent or not.
    assert info.hparams['num_actors'].number_value >= 1
    # It makes no difference without replay.
    assert 'replay_capacity' not in info.hparams
    # TensorBoard finds out by itself which settings differ, and shows these.
    assert hparams_metadata.EXPERIMENT_TAG not in found
  assert groups == [f'{name} ({tmp_path}/{name})' for name in ('a', 'b')]


def test_an_episode_is_an_animation(tmp_path):
  rng = np.random.default_rng(0)
  frames = [rng.integers(0, 255, (10, 20, 1), np.uint8) for _ in range(3)]
  found = _write(tmp_path, shown=film.Film('pong', frames))
  event, value = found['8_episode/pong']
  assert (event.step, _plugin(value)) == (200, 'images')
  width, height, gif = tf.make_ndarray(value.tensor)
  assert (width, height) == (b'20', b'10')
  with Image.open(io.BytesIO(gif)) as image:
    assert (image.format, image.size, image.n_frames) == ('GIF', (20, 10), 3)
    assert image.info['duration'] == 70  # Four frames of 60 in a second.
    np.testing.assert_array_equal(
        np.array(image.convert('L')), frames[0][..., 0])


def test_no_film_no_animation(tmp_path):
  assert not any(tag.startswith('8_episode') for tag in _write(tmp_path))
