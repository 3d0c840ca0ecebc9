"""What the process that others are forked from imports, see `preloaded`."""

from tests import preloaded

preloaded.load()
