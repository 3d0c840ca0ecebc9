#!/usr/bin/env bash
# Tries the package with every Python that it is for: installs it into a virtual
# environment of its own, and trains on CartPole for ten updates. Arguments are
# interpreters (default: python3.10 to python3.13).
#
#   launch/pythons.sh ~/.pyenv/versions/3.1[0-3].*/bin/python3
#
# Prints a line for each. Ends with 1 if one does not work; its output is shown.
set -uo pipefail
root="$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
(($#)) || set -- python3.10 python3.11 python3.12 python3.13

directory="$(mktemp -d)"
trap 'rm -rf "$directory" "$directory.log"' EXIT

try() { # try INTERPRETER
  rm -rf "$directory"/*
  # pip leaves a folder build in what it installs, and later installs what is there,
  # also if the checkout has it no more.
  mkdir "$directory/source" &&
    cp -r "$root"/{setup.py,README.md,LICENSE,scalable_agent} \
      "$directory/source" &&
    "$1" -m venv "$directory/venv" &&
    "$directory/venv/bin/python" -m pip install --quiet \
      --disable-pip-version-check --no-cache-dir "$directory/source" &&
    cd "$directory" && # Where the checkout's own files are not imported.
    venv/bin/python -m scalable_agent.experiment --logdir=run \
      --level_name=gym:CartPole-v1 --num_actors=4 --batch_size=4 \
      --total_environment_frames=800 &&
    grep -q '"frames": 800,' run/metrics.jsonl
}

status=0
for python in "$@"; do
  version="$("$python" --version 2>&1)" || version="$python"
  if (try "$python") >"$directory.log" 2>&1; then
    echo "$version works"
  else
    echo "$version does not work:"
    tail -n 20 "$directory.log"
    status=1
  fi
done
exit "$status"
