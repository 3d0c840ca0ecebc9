"""A trained agent that acts in environments of the user's."""

import numpy as np

from scalable_agent import actor
from scalable_agent import environments
from scalable_agent import policy as policy_lib
from scalable_agent import trajectories
from scalable_agent.environments.engines import dmlab


class TrainedPolicy:
  """An agent with trained weights, and what it remembers of its environments.

  Attributes:
    level_name: As the setting, what it was trained on.
    frames: Environment frames that it was trained on.
    num_actions: Size of the action set.
    actions: What an environment is sent for each of them, a list.
    observation_spec: A tuple of `environments.ArraySpec`: of the frame and, for
      levels with language, of the instruction's word ids.
  """

  def __init__(self, level_name, trained, actions, seed):
    """Initializes the policy.

    Args:
      level_name: As the attribute.
      trained: A `trained.Trained`.
      actions: As the attribute.
      seed: An int that the actions are drawn by.
    """
    self.level_name = level_name
    self.frames = trained.saved.frames
    self.num_actions = trained.facts.num_actions
    self.actions = actions
    self.observation_spec = trained.facts.observation_spec
    self._agent = trained.agent
    self._policy = policy_lib.Policy(
        trained.agent, trained.saved.weights, trained.saved.steps, seed,
        device=None)
    self.reset()

  def reset(self):
    """Forgets all episodes; the next `step` may be of other environments."""
    self._last_actions = self._core_state = None

  def step(self, observation, reward=0., done=False):
    """Acts in one environment, or in B of them at once.

    Args:
      observation: The frame, of the shape and dtype of `observation_spec[0]`,
        or [B, ...] of them; planes of booleans also where that is of bytes, and
        without the last axis where that is 1. For levels with language a pair
        of this and the instruction, a string, or a list of B.
      reward: A finite float or float [B], what the last action brought.
      done: A bool or bool [B], whether that ended the episode; then the
        observation is the first of the next one.

    Returns:
      An `AgentOutput` of NumPy values: `action` int32 [], drawn from the
      policy, an index of `actions`; `policy_logits` float32 [num_actions];
      `baseline` float32 []. Each has B in front for B environments.

    Raises:
      ValueError: An argument has another shape or type, or another B than in
        the step before.
    """
    frame, words, is_batch = self._read(observation)
    size = len(frame)
    if self._last_actions is None:
      self._last_actions = actor.initial_output(size, self.num_actions).action
      self._core_state = self._agent.initial_state(size)
    elif len(self._last_actions) != size:
      raise ValueError(
          f'The step before was of {len(self._last_actions)} environments, '
          f'this one is of {size}. Call reset() in between.')
    env_output = environments.StepOutput(
        reward=_along_batch('reward', reward, np.float32, size),
        info=(),
        done=_along_batch('done', done, bool, size),
        observation=(frame, *words))
    output, self._core_state, _ = self._policy(
        self._last_actions, env_output, self._core_state)
    self._last_actions = output.action
    if is_batch:
      return output
    return trajectories.AgentOutput(*(values[0] for values in output))

  def _read(self, observation):
    """Returns frames [B, ...], a tuple of word ids, whether it is a batch."""
    spec, *others = self.observation_spec
    frame, instruction = observation if others else (observation, None)
    frame, is_batch = _to_frames(frame, spec)
    words = ()
    if others:
      texts = list(instruction) if _is_list(instruction) else [instruction]
      if len(texts) != len(frame) or _is_list(instruction) != is_batch:
        raise ValueError(f'There are {len(frame)} frames, but {len(texts)} '
                         'instructions.')
      for text in texts:
        if not isinstance(text, str):
          raise ValueError(f'An instruction is {text!r}, expected a string.')
      words = (np.stack([dmlab.hash_words(text) for text in texts]),)
    return frame, words, is_batch


def _is_list(instruction):
  return isinstance(instruction, (list, tuple, np.ndarray))


def _to_frames(frame, spec):
  """Returns frames [B, ...] as training has them, whether they are a batch."""
  frame = found = np.asarray(frame)
  # Environments give what follows to training likewise.
  if (spec.shape[2:] == (1,) and spec.shape[:2] == frame.shape[-2:] and
      spec.shape != frame.shape[-3:]):
    frame = frame[..., np.newaxis]
  if frame.dtype == bool and spec.dtype == np.uint8:
    frame = frame * np.uint8(255)
  is_batch = frame.ndim == len(spec.shape) + 1
  # Of bytes, no other whole number may be cut to one.
  casting = 'safe' if spec.dtype == np.uint8 else 'same_kind'
  if (frame.shape[is_batch:] != spec.shape or not frame.size or
      not np.can_cast(frame.dtype, spec.dtype, casting)):
    raise ValueError(
        f'The frame is {found.dtype} {found.shape}, expected {spec.dtype} '
        f'{spec.shape}, or B of these.')
  frame = frame.astype(spec.dtype, copy=False)
  return frame if is_batch else frame[np.newaxis], is_batch


def _along_batch(name, value, dtype, size):
  """Returns an argument of `step` as an array [size]."""
  array = np.asarray(value)
  if array.shape not in ((), (size,)):
    raise ValueError(
        f'{name} has the shape {array.shape}, expected () or ({size},).')
  # None and NaN would give an agent that acts without a sign that it cannot.
  if not (np.can_cast(array.dtype, np.float64) and np.isfinite(array).all()):
    raise ValueError(f'{name} is {value!r}, expected finite numbers.')
  return np.broadcast_to(array.astype(dtype), [size])
