#!/usr/bin/env bash
# Trains the shallow agent on Pong with settings for a small machine. Run again,
# it resumes. Arguments are passed on: launch/quickstart.sh --level_name=breakout
#
# LOGDIR is the parent of the runs' directories (default: ~/scalable_agent), each
# named after its level; --logdir names one outright.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_package

level=pong
previous=
for argument in "$@"; do
  case "$previous" in
    --level_name | -level_name) level="$argument" ;;
  esac
  case "$argument" in
    --level_name=* | -level_name=*) level="${argument#*=}" ;;
  esac
  previous="$argument"
done

exec "$python" -m scalable_agent.experiment \
  --flagfile="$root/launch/flags/small_machine.flags" \
  --logdir="${LOGDIR:-$HOME/scalable_agent}/${level//:/_}" \
  --level_name="$level" "$@"
