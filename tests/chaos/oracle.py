"""The promises about a log directory, as functions of what was found in it.

Each returns a list of `words.Violation`, empty where the promise was kept.
"""

import re

from tests.chaos import logs
from tests.chaos import snapshot
from tests.chaos import words

Violation = words.Violation

# Files that a start may write though it is refused, or has nothing to do.
_OF_A_START = re.compile(r'config\.json$|\.?lock|.*\.lock$|events\.out\.')
_OF_A_REFUSAL = re.compile(r'\.?lock|.*\.lock$')


# -- What a start makes of what it finds --------------------------------------


def check_resumed(before, errors):
  """Training goes on from the newest checkpoint that is whole."""
  resumed = words.resumed_frames(errors)
  newest = max(before.whole, default=None)
  if resumed is None:
    if words.trained(errors) and newest is not None:
      return [Violation('began afresh', f'over ckpt-{newest}')]
    return []
  if resumed not in before.whole:
    # A save may have been complete but for the names of its files.
    if (resumed in snapshot.pairs(before.files) or
        not any(path.startswith(f'ckpt-{resumed}_temp/')
                for path in before.files)):
      return [Violation('resumed', f'from ckpt-{resumed}, which is damaged')]
  if newest is not None and resumed < newest:
    return [Violation(
        'resumed', f'from ckpt-{resumed}, with a whole ckpt-{newest} there')]
  return []


def check_set_aside(before, after, errors):
  """Damaged checkpoints that were passed over have a warning and a new name."""
  resumed = words.resumed_frames(errors)
  if resumed is None:
    return []
  found = []
  damaged = [number for number in snapshot.pairs(before.files)
             if number not in before.whole and number > resumed]
  warnings = words.warnings(errors)
  for number in damaged:
    name = re.compile(rf'ckpt-{number}\b')
    if not any(name.search(warning) for warning in warnings):
      found.append(Violation(
          'set aside', f'no warning of the damaged ckpt-{number}'))
    for part in (snapshot.index_name(number), snapshot.data_name(number)):
      content = before.files[part]
      kept = [path for path, other in after.files.items()
              if 'damaged-' + part in path and other == content]
      if not kept:
        found.append(Violation(
            'set aside', f'{part} is not kept as damaged-{part}'))
  return found


def must_refuse(before):
  """Whether nothing can be restored though there is something to lose."""
  # What was being moved when a process was killed is no damage.
  moving = {path.partition('/')[0] for path in before.files if '_temp/' in path}
  lost = [number for number in snapshot.numbers(before.files)
          if f'ckpt-{number}_temp' not in moving]
  return not before.whole and (
      bool(lost) or logs.has_any(before) or 'best/best.json' in before.files)


def check_unchanged(before, after, may_change=()):
  """No file of a log directory has changed, come or gone.

  Locks may, and what a killed process was writing may be gone.

  Args:
    before: A `Snapshot`.
    after: A `Snapshot`.
    may_change: Names of files that may.
  """
  different = [
      path for path in sorted(before.files.keys() | after.files.keys())
      if before.files.get(path) != after.files.get(path)
      and path not in may_change and not _OF_A_REFUSAL.match(path)
      and not (snapshot.temporaries([path]) and path not in after.files)]
  return [Violation('changed', f'{path} is not as it was')
          for path in different]


def check_nothing_to_do(before, after):
  """A finished run that is started again leaves logs and checkpoints alone."""
  return check_unchanged(before, after, {
      path for path in (*before.files, *after.files)
      if _OF_A_START.match(path)})


def check_kept(before, after, resumed, damaged=()):
  """What was logged until a checkpoint is still there, byte by byte.

  Args:
    before: A `Snapshot` of before the start.
    after: A `Snapshot` of afterwards.
    resumed: Frames of the checkpoint that it resumed from.
    damaged: Names of the logs that had been damaged before: of these the last
      line may be gone.
  """
  found = []
  for name, frames_of_lines in (
      (snapshot.METRICS, lambda snap: [
          (line, entry and entry['frames'])
          for line, entry in logs.metrics(snap)]),
      (snapshot.EPISODES, lambda snap: list(logs.episodes(snap)))):
    expected = [line for line, frames in frames_of_lines(before)
                if frames is not None and frames <= resumed]
    actual = [line for line, _ in frames_of_lines(after)]
    if name in damaged:
      expected = expected[:-1]
    if actual[:len(expected)] != expected:
      found.append(Violation(
          'kept lines', f'{name} had {len(expected)} lines up to frame '
          f'{resumed}, which are not the first of its {len(actual)}'))
  return found


def check_leftovers(before, after):
  """What killed runs left half written is gone.

  Args:
    before: A `Snapshot` of before a successful start, None if the process ended
      by itself, so that nothing of its own may be left either.
    after: A `Snapshot` of afterwards.
  """
  left = snapshot.temporaries(after.files)
  if before is not None:
    left = {path for path in left
            if before.files.get(path) == after.files[path]}
  return [Violation('leftovers', path) for path in sorted(left)]


# -- What a run leaves ---------------------------------------------------------


def check_saved(after, completed):
  """No completed save is lost, and each has the frames of its name.

  Args:
    after: A `Snapshot`.
    completed: Frames of the newest save that was seen complete, None if none
      was.
  """
  found = [
      Violation('frames', f'ckpt-{number} has {frames} in it')
      for number, frames in after.whole.items() if number != frames]
  newest = max(after.whole, default=None)
  if completed is not None and (newest is None or newest < completed):
    found.append(Violation(
        'lost save', f'ckpt-{completed} was complete, the newest whole one is '
        f'{newest}'))
  return found


def check_count(after, most):
  """Old checkpoints are removed, so that they do not fill the disk.

  Args:
    after: A `Snapshot`.
    most: How many there may be.
  """
  count = len(snapshot.pairs(after.files))
  return [] if count <= most else [Violation(
      'checkpoints', f'{count} are kept, of at most {most}')]


def check_stopped(after):
  """A run that was stopped has saved all that it trained on."""
  newest, logged = max(after.whole, default=0), logs.last_frames(after)
  if newest != logged:
    return [Violation('not saved', f'stopped with ckpt-{newest} as the newest, '
                      f'and logged frame {logged}')]
  return []


def check_metrics(after, ended_by_itself):
  """Every line is whole, and frames increase from line to line."""
  found = []
  entries = list(logs.metrics(after))
  unreadable = [line for line, entry in entries if entry is None]
  if unreadable:
    found.append(Violation(
        'metrics', f'{len(unreadable)} lines cannot be read, such as '
        f'{unreadable[0][:80]}'))
  frames = [entry['frames'] for _, entry in entries if entry]
  for previous, current in zip(frames, frames[1:]):
    if current <= previous:
      found.append(Violation('metrics', f'{current} follows on {previous}'))
  rest = logs.lines(after.files.get(snapshot.METRICS, b''))[1]
  if ended_by_itself and rest:
    found.append(Violation('metrics', f'the last line is cut: {rest[:80]}'))
  return found


def check_line_of_checkpoint(after):
  """What the newest checkpoint was trained on is logged up to its frames."""
  newest = max(after.whole, default=0)
  frames = {entry['frames'] for _, entry in logs.metrics(after) if entry}
  if newest and newest not in frames:
    last = max((number for number in frames if number < newest), default=0)
    return [Violation('hole', f'ckpt-{newest} has no line in metrics.jsonl: '
                      f'{newest - last} frames are in no log')]
  return []


def check_covered(after):
  """Each line of metrics.jsonl tells of all frames since the one before.

  Frames per second times seconds is how many a line tells of. Its seconds are
  those since the line before it, or since the start for the first of a start.
  """
  found = []
  entries = [entry for _, entry in logs.metrics(after)
             if entry and entry.get('fps') is not None]
  previous = dict(frames=0, wall_time=0.)
  for entry in entries:
    frames = entry['frames'] - previous['frames']
    told = [entry['fps'] * seconds for seconds in (
        entry['wall_time'], entry['wall_time'] - previous['wall_time'])]
    if all(abs(number - frames) > .01 + 1e-6 * frames for number in told):
      found.append(Violation(
          'hole', f'the line of frame {entry["frames"]} tells of '
          f'{min(told, key=lambda number: abs(number - frames)):.1f} frames, '
          f'{frames} after the line before'))
    previous = entry
  return found


def check_episodes(after, ended_by_itself):
  """One header, whole rows, and frames that never decrease."""
  content = after.files.get(snapshot.EPISODES)
  if content is None:
    return []
  found = []
  lines, rest = logs.lines(content)
  if (ended_by_itself or lines) and lines[:1] != [logs.HEADER]:
    found.append(Violation('episodes', f'the first line is {lines[:1]}'))
  if logs.HEADER in lines[1:]:
    found.append(Violation('episodes', 'a second header'))
  rows = list(logs.episodes(after))
  unreadable = [line for line, frames in rows if frames is None]
  if unreadable:
    found.append(Violation(
        'episodes', f'{len(unreadable)} rows cannot be read, such as '
        f'{unreadable[0][:80]}'))
  frames = [number for _, number in rows if number is not None]
  if any(b < a for a, b in zip(frames, frames[1:])):
    found.append(Violation('episodes', 'frames decrease'))
  if ended_by_itself and rest:
    found.append(Violation('episodes', f'the last row is cut: {rest[:80]}'))
  return found


def check_saved_first(after):
  """Nothing is logged before a checkpoint is saved."""
  if logs.has_any(after) and not after.whole:
    return [Violation('first save', 'there are logs and no checkpoint')]
  return []
