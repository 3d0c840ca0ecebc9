"""The libraries that TensorFlow opens before it registers an NVIDIA GPU.

If one is missing it registers none, and does not say which. It looks for some
where the Python packages that bring them do not put them: TensorFlow 2.21 does
not find libcusolver. A library that is loaded is found.
"""

import ctypes
import glob
import os
import shutil
import sys

# Of CUDA 12 and cuDNN 9, which TensorFlow 2.19 to 2.21 are built with. A
# library comes after those that it needs.
_PACKAGED = (
    'libcudart.so.12', 'libnvJitLink.so.12', 'libcublasLt.so.12',
    'libcublas.so.12', 'libcufft.so.11', 'libcusparse.so.12',
    'libcusolver.so.11', 'libcudnn.so.9')
_OF_THE_DRIVER = ('libcuda.so.1', 'libnvidia-ml.so.1')
# Any number: a container may have another GPU than the first.
_DEVICES = '/dev/nvidia[0-9]*'


def is_expected():
  """Whether there is an NVIDIA GPU that this process may use."""
  return not _are_hidden() and (
      bool(glob.glob(_DEVICES)) or shutil.which('nvidia-smi') is not None)


def visible():
  """Returns what CUDA_VISIBLE_DEVICES calls the GPUs there are, strings."""
  named = os.environ.get('CUDA_VISIBLE_DEVICES')
  if named is None:
    return [str(i) for i in range(len(glob.glob(_DEVICES)))]
  return [] if _are_hidden() else named.split(',')


def hide():
  """Hides all GPUs from this process, and from those it starts.

  Call before TensorFlow loads.
  """
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'


def _are_hidden():
  """Whether an environment variable hides all GPUs from this process."""
  return os.environ.get('CUDA_VISIBLE_DEVICES') in ('', '-1')


def load_libraries():
  """Loads what installed `nvidia-*` packages bring, if a GPU is expected.

  Call before TensorFlow looks for GPUs.
  """
  if not is_expected():
    return
  for name in _PACKAGED:
    # TensorFlow itself prefers them to those of the system, which may be older.
    paths = [path for folder in sys.path for path in glob.glob(os.path.join(
        glob.escape(folder), 'nvidia', '*', 'lib', name))]
    any(map(_is_found, [*paths, name]))


def explain():
  """Says why TensorFlow registers no GPU: a clause, such as what is missing."""
  if _are_hidden():
    return ('CUDA_VISIBLE_DEVICES='
            f'{os.environ["CUDA_VISIBLE_DEVICES"]} hides all')
  for names, advice in (
      (_OF_THE_DRIVER, 'NVIDIA\'s driver brings it; a container needs '
       '--gpus=all, or a runtime that does the same'),
      (_PACKAGED, 'pip install ".[gpu]" in the checkout brings it')):
    for name in names:
      if not _is_found(name):
        return f'the library {name} cannot be loaded ({advice})'
  return ('all libraries can be loaded, so look at what nvidia-smi says of the '
          'driver\'s version, which has to support CUDA 12')


def _is_found(name):
  """Loads a library by name or path; returns whether that worked."""
  try:
    ctypes.CDLL(name)
  except OSError:
    return False
  return True
