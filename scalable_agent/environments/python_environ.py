"""Environment variables of Python programs that import what this one does.

    subprocess.Popen([sys.executable, '-m', module, own()], env=same_path())

Such a program then calls `restore`, or else what it starts imports the same:
perhaps a Python of another version, which cannot.
"""

import json
import os
import sys

_NAMES = ('PYTHONPATH', 'PYTHONSAFEPATH')


def same_path():
  """Returns the variables of this process, but with its `sys.path`, a dict."""
  path = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]
  return dict(
      os.environ, PYTHONPATH=os.pathsep.join(path), PYTHONSAFEPATH='1')


def own():
  """Returns for `restore` what `same_path` replaces, a string."""
  return json.dumps({name: os.environ.get(name) for name in _NAMES})


def restore(replaced):
  """Gives variables back to this process; see `own`."""
  for name, value in json.loads(replaced).items():
    if value is None:
      os.environ.pop(name, None)
    else:
      os.environ[name] = value
