"""Says how many unrolls are sent at once."""

from scalable_agent.remote import wire

# A message has several unrolls, since it costs more than packing an Atari
# unroll. Messages that are larger than this are slower by the byte.
MAX_CALL_BYTES = 4 << 20


def max_unrolls_per_call(layout):
  """Returns how many unrolls may be sent at once, at least one.

  Args:
    layout: Of `unroll_layouts`.
  """
  return max(MAX_CALL_BYTES // wire.aligned(layout.num_bytes), 1)


def max_call_bytes(layout):
  """Returns the length of the largest message with unrolls of a layout."""
  return max_unrolls_per_call(layout) * wire.aligned(layout.num_bytes)
