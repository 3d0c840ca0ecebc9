"""When an agent that is trained is evaluated."""


def is_due(frames, evaluated_frames, period):
  """Returns whether training has reached another multiple of the period.

  Args:
    frames: Environment frames that the newest weights were trained on.
    evaluated_frames: Those of the last weights that were evaluated, 0 for none.
    period: `evaluate_every_frames`, more than 0.
  """
  return frames // period > evaluated_frames // period
