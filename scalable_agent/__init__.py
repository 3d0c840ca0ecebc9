"""IMPALA (Espeholt et al., 2018) for TensorFlow 2.

    scalable_agent.train(logdir, level_name='pong')   # see `library.train`
    policy = scalable_agent.load(logdir)              # see `library.load`

Importing the package imports nothing else: environment worker processes load
`scalable_agent.environments` without paying for TensorFlow.
"""

import importlib

__version__ = '0.1.0'

_IN_LIBRARY = ('load', 'train')


def __getattr__(name):
  if name in _IN_LIBRARY:
    return getattr(importlib.import_module('scalable_agent.library'), name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__():
  return sorted([*globals(), *_IN_LIBRARY])
