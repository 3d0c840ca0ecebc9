"""Where a `SequenceStore` keeps one value of every entry.

A column has a row for each entry. Rows are written in lanes from their starts
on, see `sequence_store`. Memory is taken at once, so that a run that lacks it
fails at its start, and not hours later.
"""

import numpy as np

from scalable_agent import frame_stacks


def _allocate(shape, dtype):
  array = np.empty(shape, dtype)
  array.fill(0)  # Zeros of `np.zeros` take no memory until they are written.
  return array


class Values:
  """A column of arrays."""

  def __init__(self, num_rows, shape, dtype):
    """Initializes the column; `shape` and `dtype` are those of one value."""
    self._values = _allocate((num_rows, *shape), dtype)

  def write(self, row, values, begin, end):
    """Writes some of an unroll's values to successive rows of a lane.

    Args:
      row: The first row, an int.
      values: Arrays [T+1, ...].
      begin: The first value to write. If it is above 0, and `row` is not the
        first of its lane, the row before holds the value before.
      end: The value after the last one to write.
    """
    self._values[row:row + end - begin] = values[begin:end]

  def read(self, rows):
    """Returns the values of sequences.

    Args:
      rows: int [K, N], of K sequences of N entries that follow each other.

    Returns:
      An array [K, N, ...].
    """
    return self._values[rows]


class StackedFrames:
  """A column of stacks of frames, in which each frame is once.

  The newest frame is enough of a stack that follows from the one in the row
  before. Others are kept whole: the first of each lane, which may be all that
  is left of its environment, those after a gap, and those with which a game
  begins.
  """

  def __init__(self, num_rows, lane_length, shape):
    """Initializes the column.

    Args:
      num_rows: How many rows there are.
      lane_length: How many of them a lane has.
      shape: Of a stack, [H, W, 4].
    """
    self._lane_length = lane_length
    self._newest = _allocate((num_rows, *shape[:2]), np.uint8)
    self._whole = [{} for _ in range(num_rows // lane_length)]

  def write(self, row, values, begin, end):
    """As `Values.write`, of uint8 [T+1, H, W, 4]."""
    lane, place = divmod(row, self._lane_length)
    whole = self._whole[lane]
    if place == 0:
      whole.clear()
    for i in range(begin, end):
      begins = i == 0 or place == 0
      if begins or not frame_stacks.follows(values[i - 1], values[i]):
        whole[place] = values[i].copy()
      place += 1
    self._newest[row:row + end - begin] = values[begin:end, ..., -1]

  def read(self, rows):
    """As `Values.read`; returns uint8 [K, N, H, W, 4]."""
    result = np.empty(
        rows.shape + self._newest.shape[1:], frame_stacks.NUMBER)
    for numbers, of_sequence in zip(result, rows.tolist()):
      number = self._number_before(of_sequence[0])
      for out, row in zip(numbers, of_sequence):
        self._number_at(row, number, out)
        number = out
    return frame_stacks.stacks(result)

  def _number_before(self, row):
    """Returns the stack before that of a row.

    Frames that are no longer in the row's own stack may be wrong.
    """
    number = np.zeros(self._newest.shape[1:], frame_stacks.NUMBER)
    first = row
    while row - first < frame_stacks.STACK - 1 and not self._is_whole(first):
      first -= 1
    for earlier in range(first, row):
      self._number_at(earlier, number, number)
    return number

  def _is_whole(self, row):
    lane, place = divmod(row, self._lane_length)
    return place in self._whole[lane]

  def _number_at(self, row, before, out):
    """Writes the stack at a row, given that before it, as numbers [H, W]."""
    lane, place = divmod(row, self._lane_length)
    whole = self._whole[lane].get(place)
    if whole is None:
      frame_stacks.shift(before, self._newest[row], out)
    else:
      out[:] = frame_stacks.pixels(whole)
