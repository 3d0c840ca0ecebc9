#!/usr/bin/env bash
# Installs what the tests need and runs them all, four files at a time.
# Arguments are passed on to pytest:
#   launch/test.sh -n 0 tests/test_vtrace.py -k lambda
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_package test
cd "$root"
# All processes of the tests import the same modules.
unset PYTHONDONTWRITEBYTECODE
# More workers than cores, since tests wait for processes and for clocks.
# A process that dies ends the tests: pytest-xdist may wait for ever for another.
exec "$python" -m pytest --numprocesses=4 --dist=loadfile \
  --no-loadscope-reorder --max-worker-restart=0 "${@:-tests}"
