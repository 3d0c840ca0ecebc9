"""Says errors in one line."""


class Failure(RuntimeError):
  """Why a run cannot go on; the message is one line."""


def one_line(error):
  """Returns all of an exception's message in one line."""
  return ' '.join(str(error).split())


def first_line(error):
  """Returns the first line of an exception's message, or else its type."""
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  return (str(error).strip().splitlines() or [type(error).__name__])[0]
