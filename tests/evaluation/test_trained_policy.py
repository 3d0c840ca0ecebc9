"""Loaded agents: they act as the run's own policy does."""

import numpy as np
import pytest

import scalable_agent
from scalable_agent import config as config_lib
from scalable_agent import environments
from scalable_agent import policy as policy_lib
from scalable_agent.checkpoints import checkpoint
from scalable_agent.environments.engines import dmlab
from scalable_agent.evaluation import trained
from scalable_agent.training import run_config
from tests.evaluation import trained_runs

_T, _B = 5, 3


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('runs')


@pytest.fixture(scope='module')
def lstm(folder):
  """A run whose observations are vectors: log directory, facts and agent."""
  logdir = folder / 'lstm'
  return (logdir, *trained_runs.make(
      logdir, level_name='synthetic:size=3', use_lstm=True))


@pytest.fixture(scope='module')
def language(folder):
  logdir = folder / 'language'
  return (logdir, *trained_runs.make(
      logdir, level_name='rooms_watermaze', network='shallow', height=24,
      width=24))


def _reference(logdir, agent):
  """The policy that actors have, with the same weights and seed."""
  saved = checkpoint.restore_weights([str(logdir / 'ckpt-0')], agent)
  return policy_lib.Policy(agent, saved.weights, 0, seed=9, device='/cpu:0')


def _inputs(seed=0):
  rng = np.random.default_rng(seed)
  return (rng.normal(size=[_T, _B, 3]).astype(np.float32),
          rng.normal(size=[_T, _B]).astype(np.float32),
          rng.random([_T, _B]) < .4)


def test_it_keeps_the_core_state_and_the_last_action(lstm):
  logdir, _, agent = lstm
  reference = _reference(logdir, agent)
  policy = scalable_agent.load(logdir, seed=9)
  frames, rewards, dones = _inputs()
  actions, state = np.zeros([_B], np.int32), agent.initial_state(_B)
  for frame, reward, done in zip(frames, rewards, dones):
    expected, state, _ = reference(
        actions, environments.StepOutput(reward, (), done, (frame,)), state)
    actions = expected.action
    for value, other in zip(policy.step(frame, reward, done), expected):
      np.testing.assert_array_equal(value, other)


def test_one_environment_needs_no_batch(lstm):
  logdir, _, _ = lstm
  frames, rewards, dones = _inputs()
  single, batch = (scalable_agent.load(logdir, seed=9) for _ in range(2))
  for frame, reward, done in zip(frames[:, 0], rewards[:, 0], dones[:, 0]):
    output = single.step(frame, float(reward), bool(done))
    expected = batch.step(frame[np.newaxis], [reward], [done])
    assert output.action.shape == output.baseline.shape == ()
    assert output.policy_logits.shape == (single.num_actions,)
    for value, other in zip(output, expected):
      np.testing.assert_array_equal(value, other[0])


def test_reset_forgets(lstm):
  logdir, _, _ = lstm
  policy = scalable_agent.load(logdir)
  frames, _, _ = _inputs()
  first = policy.step(frames[0, 0])
  second = policy.step(frames[0, 0])
  assert (first.policy_logits != second.policy_logits).any()
  policy.reset()
  np.testing.assert_array_equal(
      policy.step(frames[0, 0]).policy_logits, first.policy_logits)
  policy.reset()
  assert policy.step(frames[0]).action.shape == (_B,)


def test_instructions_are_text(language):
  logdir, facts, agent = language
  reference = _reference(logdir, agent)
  policy = scalable_agent.load(logdir, seed=9)
  frame = np.random.default_rng(0).integers(256, size=[2, 24, 24, 3])
  frame = frame.astype(np.uint8)
  texts = ['pick the red hat', 'go']
  words = np.stack([dmlab.hash_words(text) for text in texts])
  expected, _, _ = reference(
      np.zeros([2], np.int32), environments.StepOutput(
          np.zeros([2], np.float32), (), np.zeros([2], bool), (frame, words)),
      agent.initial_state(2))
  for value, other in zip(policy.step((frame, texts)), expected):
    np.testing.assert_array_equal(value, other)
  policy.reset()
  np.testing.assert_allclose(
      policy.step((frame[0], texts[0])).policy_logits,
      expected.policy_logits[0], atol=1e-5)
  assert policy.observation_spec == facts.observation_spec


def test_booleans_are_what_they_are_in_training(language):
  """Bytes 0 and 255."""
  logdir, _, _ = language
  policy = scalable_agent.load(logdir)
  planes = np.random.default_rng(0).random([24, 24, 3]) < .5
  logits = policy.step((planes, '')).policy_logits
  policy.reset()
  np.testing.assert_array_equal(
      policy.step((255 * planes.astype(np.uint8), '')).policy_logits, logits)


def test_it_says_what_it_is(lstm):
  logdir, facts, _ = lstm
  policy = scalable_agent.load(str(logdir))
  assert (policy.level_name, policy.frames, policy.num_actions) == (
      'synthetic:size=3', 0, facts.num_actions)
  assert policy.actions == list(range(facts.num_actions))


def test_it_says_what_an_environment_is_sent(folder, language):
  logdir = folder / 'from_one'
  trained_runs.make(
      logdir, level_name='gym:tests.evaluation.translated:FromOne-v0')
  assert scalable_agent.load(logdir).actions == [1, 2]
  assert scalable_agent.load(language[0]).actions == list(
      environments.DEFAULT_ACTION_SET)


@pytest.mark.parametrize('arguments, expected', [
    ((np.zeros([4]),), r'The frame is float64 \(4,\), expected float32 \(3,\)'),
    ((np.zeros([2, 2, 3]),), 'The frame is'),
    ((np.zeros([3], complex),), 'The frame is complex128'),
    ((np.zeros([2, 3]), np.zeros([3])), r'reward has the shape \(3,\)'),
    ((np.zeros([2, 3]), 0., [True]), r'done has the shape \(1,\)'),
    ((np.zeros([0, 3]),), r'The frame is float64 \(0, 3\)'),
    ((np.zeros([3]), None), 'reward is None'),
    ((np.zeros([3]), np.nan), 'reward is nan'),
    ((np.zeros([3]), '1'), "reward is '1'"),
    ((np.zeros([3]), 0., None), 'done is None')])
def test_arguments_that_do_not_fit_are_refused(lstm, arguments, expected):
  with pytest.raises(ValueError, match=expected):
    scalable_agent.load(lstm[0]).step(*arguments)


def test_frames_and_instructions_have_to_be_as_many(language):
  policy = scalable_agent.load(language[0])
  with pytest.raises(ValueError, match='2 frames, but 1 instructions'):
    policy.step((np.zeros([2, 24, 24, 3], np.uint8), ['go']))
  with pytest.raises(ValueError, match='2 frames, but 1 instructions'):
    policy.step((np.zeros([2, 24, 24, 3], np.uint8), 'go'))
  with pytest.raises(ValueError, match="is b'go', expected a string"):
    policy.step((np.zeros([24, 24, 3], np.uint8), b'go'))
  for dtype in np.float64, np.uint16:
    with pytest.raises(ValueError, match='expected uint8'):
      policy.step((np.zeros([24, 24, 3], dtype), 'go'))


def test_images_need_no_axis_of_one_channel(folder):
  """As environments give them to training."""
  logdir = folder / 'one_channel'
  trained_runs.make(
      logdir, level_name='gym:tests.evaluation.translated:Image-v0',
      network='shallow')
  policy = scalable_agent.load(logdir)
  frames = np.random.default_rng(0).integers(
      256, size=[2, 24, 24], dtype=np.uint8)
  logits = policy.step(frames[..., np.newaxis]).policy_logits
  policy.reset()
  np.testing.assert_array_equal(policy.step(frames).policy_logits, logits)
  policy.reset()
  np.testing.assert_allclose(
      policy.step(frames[1]).policy_logits, logits[1], atol=1e-6)


def test_the_checkpoint_of_another_run_is_refused(folder, lstm):
  """Though the weights would fit."""
  other = folder / 'another'
  trained_runs.make(other, level_name='synthetic:size=3,step_ms=1', use_lstm=True)
  with pytest.raises(config_lib.ConfigError,
                     match='trained with level_name=synthetic:size=3,step_ms=1'):
    scalable_agent.load(lstm[0], checkpoint=str(other / 'ckpt-0'))
  copy = folder / 'copy'
  copy.mkdir()
  for path in lstm[0].glob('ckpt-0.*'):
    (copy / path.name).write_bytes(path.read_bytes())
  assert not scalable_agent.load(
      lstm[0], checkpoint=str(copy / 'ckpt-0')).frames


def test_without_a_configuration_flags_have_to_say_what_was_trained(
    folder, lstm, monkeypatch):
  """Else weights could be tested on what they were not trained for."""
  logdir = folder / 'without_configuration'
  logdir.mkdir()
  for path in lstm[0].glob('ckpt-0.*'):
    (logdir / path.name).write_bytes(path.read_bytes())
  settings = dict(
      logdir=str(logdir), mode='test', level_name='synthetic:size=3')
  given = run_config.resolve(dict(settings, use_lstm=True))
  assert trained.restore(given).saved.frames == 0
  # Whether or not its environments can be made.
  monkeypatch.setattr(trained.suites, 'find_facts', None)
  for wrong, expected in (
      (settings, 'use_lstm=False cannot work: .*ckpt-0 was trained with '
       'use_lstm=True, and --logdir=.* has no config.json'),
      (dict(settings, level_name='pong'), 'level_name=pong cannot work')):
    with pytest.raises(config_lib.ConfigError, match=expected) as caught:
      trained.restore(run_config.resolve(wrong))
    assert '\n' not in str(caught.value)


def test_the_number_of_environments_may_not_change(lstm):
  policy = scalable_agent.load(lstm[0])
  policy.step(np.zeros([2, 3]))
  with pytest.raises(ValueError, match='2 environments, this one is of 3'):
    policy.step(np.zeros([3, 3]))


def test_what_cannot_be_loaded_is_refused(lstm, tmp_path):
  with pytest.raises(config_lib.ConfigError, match='has no best checkpoint'):
    scalable_agent.load(lstm[0], checkpoint='best')
  with pytest.raises(config_lib.ConfigError, match='has no checkpoint'):
    scalable_agent.load(tmp_path)


def test_settings_have_to_be_of_training():
  with pytest.raises(config_lib.ConfigError, match='train trains'):
    scalable_agent.train('/nonexistent', level_name='pong', mode='test')
  with pytest.raises(config_lib.ConfigError, match="setting 'learning_rat'"):
    scalable_agent.train('/nonexistent', learning_rat=1.)


def test_the_package_has_no_other_names():
  assert {'load', 'train'} < set(dir(scalable_agent))
  with pytest.raises(AttributeError, match="no attribute 'laod'"):
    scalable_agent.laod  # pylint: disable=pointless-statement


def test_a_checkpoint_may_be_replaced_while_environments_start(
    folder, monkeypatch):
  """As a run that trains does with its best one."""
  logdir = folder / 'replaced'
  facts, _ = trained_runs.make(logdir, level_name='synthetic:size=3')

  def find_facts(unused_config):
    for path in sorted(logdir.glob('ckpt-0.*'), reverse=True):
      path.rename(path.with_name(path.name.replace('-0.', '-9.', 1)))
    return facts

  monkeypatch.setattr(trained.suites, 'find_facts', find_facts)
  loaded = trained.restore(run_config.resolve(
      dict(logdir=str(logdir), mode='export')))
  assert loaded.saved.path == str(logdir / 'ckpt-9')
