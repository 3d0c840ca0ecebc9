"""Damages files of a log directory, as crashes and bad disks do."""

import os
import shutil

from tests.chaos import snapshot

DAMAGES = ('delete', 'empty', 'zero', 'truncate', 'flip')
_CUT_BYTES = 20


def damage(path, how, rng):
  """Damages one file.

  Args:
    path: Of the file.
    how: One of `DAMAGES`.
    rng: A `random.Random`.
  """
  size = os.path.getsize(path)
  if how == 'delete':
    os.remove(path)
  elif how == 'empty':
    os.truncate(path, 0)
  elif how == 'zero':
    with open(path, 'wb') as f:
      f.write(bytes(size))
  elif how == 'truncate':
    os.truncate(path, rng.randrange(size) if size else 0)
  elif how == 'flip':
    with open(path, 'r+b') as f:
      content = bytearray(f.read())
      if content:
        bit = rng.randrange(8 * size)
        content[bit // 8] ^= 1 << bit % 8
      f.seek(0)
      f.write(content)
  else:
    raise ValueError(how)


def damage_state(logdir, rng):
  """Damages the file `checkpoint`, made if need be. Returns how, a string.

  It may also name a checkpoint that is not there, or hold anything.
  """
  path = os.path.join(logdir, 'checkpoint')
  how = rng.choice(DAMAGES + ('none such', 'bytes'))
  with open(path, 'a'):
    pass
  if how == 'none such':
    with open(path, 'w') as f:
      f.write('model_checkpoint_path: "ckpt-123456789"\n'
              'all_model_checkpoint_paths: "ckpt-123456789"\n')
  elif how == 'bytes':
    with open(path, 'wb') as f:
      f.write(rng.randbytes(100))
  else:
    damage(path, how, rng)
  return f'checkpoint: {how}'


def damage_checkpoints(logdir, numbers, rng):
  """Damages a file of each of some checkpoints. Returns how, a string."""
  done = []
  for number in numbers:
    name = rng.choice((snapshot.index_name(number),
                       snapshot.data_name(number)))
    how = rng.choice(DAMAGES)
    damage(os.path.join(logdir, name), how, rng)
    done.append(f'{name}: {how}')
  return ', '.join(done)


def cut_log(logdir, name, rng):
  """Cuts the end off a log. Returns how, a string."""
  path = os.path.join(logdir, name)
  cut = min(rng.randint(1, _CUT_BYTES), os.path.getsize(path))
  os.truncate(path, os.path.getsize(path) - cut)
  return f'{name}: cut by {cut}'


def put_directory(logdir, name):
  """Puts a directory in the place of a file. Returns how, a string."""
  path = os.path.join(logdir, name)
  if os.path.exists(path):
    os.remove(path)
  os.mkdir(path)
  return f'{name}: a directory'


def leave_temporaries(logdir, rng):
  """Leaves what a process that is killed in a save leaves. Returns how."""
  numbers = snapshot.pairs(os.listdir(logdir)) or [0]
  number = rng.choice((numbers[-1] + 10, 1))
  folder = os.path.join(logdir, f'ckpt-{number}_temp')
  os.makedirs(folder, exist_ok=True)
  parts = rng.choice(((), ('.data-00000-of-00001',),
                      ('.data-00000-of-00001', '.index')))
  # As TensorFlow calls its own, or as they are to be called.
  prefix = rng.choice(('part-00000-of-00001', f'ckpt-{number}'))
  for part in parts:
    with open(os.path.join(folder, prefix + part), 'wb') as f:
      f.write(rng.randbytes(1000))
  return f'ckpt-{number}_temp: {len(parts)} files {prefix}'


def remove_checkpoints(logdir):
  """Removes all checkpoints and the file `checkpoint`. Returns how."""
  for name in os.listdir(logdir):
    path = os.path.join(logdir, name)
    if name.startswith(('ckpt-', 'damaged-ckpt-')) or name == 'checkpoint':
      shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
  return 'no checkpoint left'
