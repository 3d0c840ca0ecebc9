#!/usr/bin/env python3
"""Runs `scalable_agent.sweeps.atari57_experts` of this checkout.

The package need not be installed: the program and the processes it starts find
it on PYTHONPATH.
"""

import os
import pathlib
import sys

_ROOT = str(pathlib.Path(__file__).resolve().parents[1])

path = [_ROOT] + os.environ.get('PYTHONPATH', '').split(os.pathsep)
os.execve(
    sys.executable,
    [sys.executable, '-m', 'scalable_agent.sweeps.atari57_experts',
     *sys.argv[1:]],
    dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, path))))
