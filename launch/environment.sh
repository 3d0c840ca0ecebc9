# Sourced by the other scripts: makes or reuses a virtual environment with the
# package and leaves its interpreter in $python.
#
#   install_package [EXTRA ...]
#
# VENV   directory of the virtual environment (default: .venv of the checkout)
# PYTHON interpreter that makes it (default: python3)

# With CDPATH, cd would print where it goes.
root="$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="${VENV:-$root/.venv}"
# Absolute, since a script may change to another directory.
[[ "$venv" == /* ]] || venv="$PWD/$venv"
python="$venv/bin/python"

fail() {
  echo "Error: $*" >&2
  exit 1
}

install_package() {
  local extras stamp
  extras="$(IFS=,; echo "$*")"
  stamp="$venv/.installed-${extras:-base}"
  if [[ ! -x "$python" ]]; then
    local base="${PYTHON:-python3}"
    command -v "$base" >/dev/null || fail "$base is not installed."
    "$base" -c \
      'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
      fail "$("$base" --version) cannot run this: TensorFlow is there for Python" \
        "3.10 to 3.13. Name one in the variable PYTHON."
    echo "Making the virtual environment $venv" >&2
    if ! "$base" -m venv "$venv"; then
      rm -f "$python"  # It has no pip; the next start makes it again.
      fail "$base cannot make virtual environments (Debian: apt install" \
        "python3-venv)."
    fi
  fi
  # The checkout is installed as links, so only new requirements matter.
  if [[ ! "$stamp" -nt "$root/setup.py" ]]; then
    echo "Installing the package and what it needs (minutes, the first time)" >&2
    # It has none if Ctrl-C came while the environment was made.
    "$python" -m pip --version >/dev/null 2>&1 ||
      "$python" -m ensurepip >/dev/null 2>&1 ||
      fail "there is no pip in $venv. Remove that directory, and start again."
    "$python" -m pip install --quiet --disable-pip-version-check \
      --editable "$root${extras:+[$extras]}" || fail "pip could not install."
    touch "$stamp"
  fi
}
