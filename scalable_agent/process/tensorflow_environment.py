"""Environment variables that TensorFlow reads when it is loaded."""

import os
import platform


def prepare():
  """Sets them, except those that the user has set. Call before TensorFlow loads.

  The processes that this one starts inherit them.
  """
  # TensorFlow Probability is built on it; TensorFlow would load another Keras.
  os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  # By itself TensorFlow takes oneDNN's convolutions on CPUs with AVX-512 alone;
  # they are the faster ones with AVX2 too.
  if platform.machine() == 'x86_64':
    os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
