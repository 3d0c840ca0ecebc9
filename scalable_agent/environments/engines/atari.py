"""Plays Atari games with ALE's vector environment, by the paper's protocol.

Table G.1: 84x84 grey frames, action repeat 4, the maximum of the last two
frames, stacks of four. The loss of a life ends the episode for the learner
while the game plays on; a game's return is that of all its lives. Table 4: up
to 30 no-ops at the start of a game. What the paper does not say: at most
108,000 frames a game, and no sticky actions.
"""

import numpy as np

from scalable_agent import environments
from scalable_agent.process import errors

MAX_FRAMES_PER_GAME = 108000
MAX_NOOPS = 30
SCREEN_WIDTH = 160
SCREEN_HEIGHT = 210

# Skiing has no fire button, and takes only 9 of the 18 actions: no-op and the
# directions, which are 0 and 2 to 9. The others do nothing there.
_ACTIONS_WITHOUT_FIRE = np.array([0] * 2 + list(range(1, 9)) + [0] * 8)


def _vector_env_class(level_name):
  try:
    from ale_py import roms
    from ale_py import vector_env
  except ImportError as e:
    raise environments.PoolError(
        f'{level_name} needs the package ale-py, which cannot be imported '
        f'({e}). Install it with: pip install ale-py') from e
  if level_name not in roms.get_all_rom_ids():
    raise environments.PoolError(
        f'The installed ale-py knows no game {level_name}.')
  try:
    roms.get_rom_path(level_name)
  except OSError as e:
    raise environments.PoolError(
        f'ale-py has no usable ROM for {level_name}: {errors.one_line(e)}'
    ) from e
  return vector_env.AtariVectorEnv


def find_actions(level_name, full_action_set):
  """Finds out what the actions of a game mean.

  Args:
    level_name: The game in snake case.
    full_action_set: Whether they are all 18 instead of the game's own.

  Returns:
    A list of pairs: a name of ALE's, and the index that ALE's vector
    environment takes for it.

  Raises:
    PoolError: ale-py or the ROM is missing.
  """
  _vector_env_class(level_name)
  import ale_py
  from ale_py import roms
  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
  emulator = ale_py.ALEInterface()
  emulator.loadROM(roms.get_rom_path(level_name))
  own = (emulator.getLegalActionSet() if full_action_set else
         emulator.getMinimalActionSet())
  if full_action_set and len(own) == 9:
    return [(ale_py.Action(i).name, int(index))
            for i, index in enumerate(_ACTIONS_WITHOUT_FIRE)]
  return [(action.name, i) for i, action in enumerate(own)]


class AtariPool(environments.Pool):
  """Many environments of one game, stepped by ALE's threads.

  Observations are (frame,), uint8 [height, width, frame_stack], the newest
  frame last.
  """

  def __init__(self, level_name, num_environments, seed, batch_size=0,
               num_threads=0, num_action_repeats=4, width=84, height=84,
               full_action_set=False, max_frames_per_game=MAX_FRAMES_PER_GAME,
               colour=False, frame_stack=4):
    """Starts the environments.

    Args:
      level_name: The game in snake case, e.g. 'space_invaders'.
      num_environments: Number of environments, N.
      seed: Environment i draws its no-ops with seed + i.
      batch_size: How many environments `recv` hands out; N is a multiple of it.
        0 means N.
      num_threads: Threads that step environments; 0 leaves it to ALE.
      num_action_repeats: Environment frames per agent step.
      width: Of the frame, in pixels.
      height: Of the frame, in pixels.
      full_action_set: Whether to use all 18 actions instead of the game's own.
      max_frames_per_game: Environment frames after which a game is cut.
      colour: Whether observations are instead what a person sees, single RGB
        frames, uint8 [height, width, 3].
      frame_stack: Frames in an observation.

    Raises:
      PoolError: ale-py or the ROM is missing.
    """
    self._env = _vector_env_class(level_name)(
        game=level_name,
        num_envs=num_environments,
        batch_size=batch_size,
        num_threads=num_threads,
        thread_affinity_offset=-1,
        max_num_frames_per_episode=max_frames_per_game,
        repeat_action_probability=0.0,
        full_action_space=full_action_set,
        continuous=False,
        # With next-step reset the first action of a game would be swallowed.
        autoreset_mode='SameStep',
        img_height=height,
        img_width=width,
        grayscale=not colour,
        stack_num=1 if colour else frame_stack,
        frameskip=num_action_repeats,
        maxpool=True,
        noop_max=MAX_NOOPS + 1,  # ALE draws from 0 to noop_max - 1.
        # `episodic_life` would restart the game at every life.
        episodic_life=False,
        life_loss_info=True,
        reward_clipping=False,
        use_fire_reset=False)
    self.num_environments = num_environments
    num_own_actions = int(self._env.single_action_space.n)
    self._own_actions = np.arange(num_own_actions)
    if full_action_set and num_own_actions == 9:
      self._own_actions = _ACTIONS_WITHOUT_FIRE
    self.num_actions = len(self._own_actions)
    self.observation_spec = (
        environments.ArraySpec((height, width, 3 if colour else frame_stack),
                               np.dtype(np.uint8)),)
    self._colour = colour
    self.level_names = [level_name] * num_environments
    self._batch_size = batch_size or num_environments
    self._initial_results = self._env.reset(seed=seed)
    self._started = np.zeros([num_environments], bool)
    self._game_start = np.zeros([num_environments], np.int64)
    self._return = np.zeros([num_environments], np.float32)
    self._step = np.zeros([num_environments], np.int32)

  def recv(self):
    """See base class. Hands out `batch_size` environments."""
    env = self._open_env()
    if self._initial_results is not None:
      stacks, info = self._initial_results
      self._initial_results = None
      reward = np.zeros([self._batch_size], np.float32)
      ended = np.zeros([self._batch_size], bool)
    else:
      stacks, reward, terminated, truncated, info = env.recv()
      reward = reward.astype(np.float32)
      ended = terminated | truncated
    return self._output(info, stacks, reward, ended)

  def _output(self, info, stacks, reward, ended):
    ids = info['env_id']
    first = ~self._started[ids]
    self._started[ids] = True

    # ALE reports a lost life like a finished game. The frame at which the game
    # began changes only after a finished game.
    game_start = info['frame_number'] - info['episode_frame_number']
    is_last = ended & (game_start != self._game_start[ids])
    self._game_start[ids] = game_start

    episode_return = self._return[ids] + reward
    episode_step = self._step[ids] + ~first
    self._return[ids] = np.where(is_last, 0., episode_return)
    self._step[ids] = np.where(is_last, 0, episode_step)

    if self._colour:
      frames = stacks[:, 0].copy()
    else:
      frames = np.empty(
          [len(ids), *stacks.shape[2:], stacks.shape[1]], np.uint8)
      for i in range(stacks.shape[1]):
        frames[..., i] = stacks[:, i]
    return environments.PoolOutput(
        ids=ids,
        step_output=environments.StepOutput(
            reward=reward,
            info=environments.StepOutputInfo(
                episode_return, episode_step.astype(np.int32)),
            done=ended | first,
            observation=(frames,)),
        is_first=first,
        is_last=is_last)

  def send(self, ids, actions):
    """See base class. Call before the next `recv`."""
    self._open_env().send(self._own_actions[actions].astype(np.int32))

  def _open_env(self):
    env = self._env
    if env is None:
      raise environments.PoolError('The pool of environments is closed.')
    return env

  def close(self):
    """See base class."""
    self._env = None  # ALE's threads end with the last reference.
