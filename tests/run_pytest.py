"""Runs pytest on the files named by the arguments, for Bazel."""

import sys

import pytest

if __name__ == '__main__':
  sys.exit(pytest.main(['-p', 'no:cacheprovider'] + sys.argv[1:]))
