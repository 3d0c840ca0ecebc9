#!/usr/bin/env bash
# Installs what the tests need and runs them all. Arguments are passed on to
# pytest: launch/test.sh tests/test_vtrace.py -k lambda
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_package test
cd "$root"
exec "$python" -m pytest "${@:-tests}"
