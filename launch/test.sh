#!/usr/bin/env bash
# Installs what the tests need and runs them all, two files at a time. Arguments
# are passed on to pytest: launch/test.sh -n 0 tests/test_vtrace.py -k lambda
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_package test
cd "$root"
# A process that dies ends the tests: pytest-xdist may wait for ever for another.
exec "$python" -m pytest --numprocesses=2 --dist=loadfile \
  --no-loadscope-reorder --max-worker-restart=0 "${@:-tests}"
