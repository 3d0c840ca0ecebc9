"""Writes a trained agent as a SavedModel, which needs nothing but TensorFlow.

The signature `initial_state` takes `batch_size` and `seed`, int32 scalars. It
returns the state that B environments start with, a dict. The signature `step`
takes by name all of this state and

  frame: As metadata.json says, [B, ...].
  instruction: For levels with language, string [B].
  reward: float32 [B], what the last action brought; 0 at the start.
  done: bool [B], whether that ended the episode; then the frame is the first of
    the next one.

and returns `action` int32 [B], drawn from the policy, `policy_logits` float32
[B, NUM_ACTIONS], `baseline` float32 [B], and all of the next state. B is free.
"""

import json
import os
import tempfile

from absl import logging
import tensorflow as tf
import tree

from scalable_agent import environments
from scalable_agent import networks
from scalable_agent import suites
from scalable_agent.config.settings import refusal
from scalable_agent.evaluation import trained as trained_lib
from scalable_agent.process import errors

_METADATA_FILE = 'metadata.json'
_MODEL_FILE = 'saved_model.pb'
# All that an export has.
_CONTENTS = {_METADATA_FILE, _MODEL_FILE, 'fingerprint.pb', 'assets',
             'variables'}
_BATCHED = (None,)


def export(config):
  """Exports the checkpoint that `config.checkpoint` names.

  Args:
    config: A `config.Config`.

  Returns:
    The directory, as `config.export_dir` says.

  Raises:
    config.ConfigError: There is no checkpoint, it is another run's, or the
      directory cannot be read or written.
    environments.PoolError: An environment cannot be made.
    checkpoint.CheckpointError: The checkpoint is damaged.
  """
  directory = config.export_dir or os.path.join(config.logdir, 'export')
  try:
    is_taken = os.path.exists(directory) and not _is_replaceable(directory)
  except OSError as e:
    raise refusal('export_dir', directory,
                  f'it cannot be read: {errors.first_line(e)}') from e
  if is_taken:
    raise refusal('export_dir', directory, 'it is there already and holds '
                  'something else than an export. Name another directory')
  trained = trained_lib.restore(config)
  metadata = _describe(config, trained)
  parent, name = os.path.split(os.path.abspath(directory))
  try:
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=name, dir=parent) as temporary:
      new = os.path.join(temporary, 'new')
      _save(trained, new)
      with open(os.path.join(new, _METADATA_FILE), 'w') as f:
        f.write(json.dumps(metadata, indent=2) + '\n')
      _replace(directory, new, os.path.join(temporary, 'old'))
  except (OSError, tf.errors.OpError) as e:
    raise refusal('export_dir', directory,
                  f'it cannot be written: {errors.first_line(e)}') from e
  logging.info('Exported %s', trained.saved.path)
  return directory


def _replace(directory, new, old):
  """Puts `new` in the place of a directory that may be there, all or nothing.

  What was there goes to `old`.
  """
  try:
    if os.path.isdir(directory):
      os.replace(directory, old)
    os.replace(new, directory)
  except BaseException:  # Also if a signal comes between the two.
    if os.path.isdir(old) and not os.path.isdir(directory):
      os.replace(old, directory)
    raise


def _is_replaceable(directory):
  """Whether a directory is empty, or an export and nothing else."""
  if not os.path.isdir(directory):
    return False
  contents = set(os.listdir(directory))
  return not contents or (
      {_METADATA_FILE, _MODEL_FILE} <= contents <= _CONTENTS)


def _describe(config, trained):
  """Returns the metadata, as JSON can hold it."""
  frame, *others = trained.facts.observation_spec
  actions = suites.find_actions(config, trained.facts)
  return dict(
      level_name=config.level_name,
      suite=config.suite,
      num_action_repeats=config.num_action_repeats,
      full_action_set=config.full_action_set,
      frame=dict(shape=list(frame.shape), dtype=str(frame.dtype)),
      has_instruction=bool(others),
      action_meanings=[meaning for meaning, _ in actions],
      actions=[value for _, value in actions],
      frames=trained.saved.frames,
      checkpoint=os.path.basename(trained.saved.path),
      network=config.network,
      use_lstm=config.use_lstm,
      tensorflow=tf.__version__)


def _save(trained, directory):
  """Writes the SavedModel of a `trained.Trained`."""
  agent, facts = trained.agent, trained.facts
  module = tf.Module()
  module.params = {name: tf.Variable(value, trainable=False)
                   for name, value in trained.saved.weights.items()}
  # One environment's; the names are those of its fields.
  core_state = agent.initial_state(1)
  core = {'_'.join(['core', *map(str, path)]): value
          for path, value in tree.flatten_with_path(core_state)}

  def initial_state(batch_size, seed):
    return dict(
        {name: tf.zeros([batch_size, *value.shape[1:]], value.dtype)
         for name, value in core.items()},
        last_action=tf.zeros([batch_size], tf.int32),
        # The seed that actions are drawn by, and the number of the step.
        seed=tf.stack([seed, 0]))

  def step(frame, reward, done, last_action, seed, instruction=None, **states):
    words = ()
    if instruction is not None:
      words = (_hash(instruction, facts.observation_spec[1]),)
    output, after = agent.step(
        {name: variable.read_value()
         for name, variable in module.params.items()},
        seed, last_action,
        environments.StepOutput(reward, (), done, (frame, *words)),
        tree.unflatten_as(core_state, [states[name] for name in core]))
    return dict(
        output._asdict(), last_action=output.action, seed=seed + [0, 1],
        **dict(zip(core, tree.flatten(after))))

  frame_spec, *others = facts.observation_spec
  inputs = dict(
      frame=tf.TensorSpec(_BATCHED + frame_spec.shape, frame_spec.dtype),
      reward=tf.TensorSpec(_BATCHED, tf.float32),
      done=tf.TensorSpec(_BATCHED, tf.bool),
      last_action=tf.TensorSpec(_BATCHED, tf.int32),
      seed=tf.TensorSpec([2], tf.int32),
      **{name: tf.TensorSpec(_BATCHED + value.shape[1:], value.dtype)
         for name, value in core.items()})
  if others:
    inputs['instruction'] = tf.TensorSpec(_BATCHED, tf.string)
  scalar = tf.TensorSpec([], tf.int32)
  trace = lambda function, **specs: tf.function(
      function, autograph=False).get_concrete_function(**specs)
  tf.saved_model.save(module, directory, signatures=dict(
      initial_state=trace(initial_state, batch_size=scalar, seed=scalar),
      step=trace(step, **inputs)))


def _hash(instruction, spec):
  """Returns word ids of instructions, cut as they are in training."""
  return networks.hash_instructions(instruction)[:, :spec.shape[0]]
