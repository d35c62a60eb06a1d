#!/bin/sh
# Checks that this machine can set tfsparse up, before anything is downloaded or changed.
#
#   tools/preflight.sh [PYTHON]
#
# Prints the Python to use on standard output. When something is missing, it prints one message
# that names everything missing and how to get it on standard error, and exits with status 1.
set -eu
cd "$(dirname "$0")/.."

# .venv takes 2 GB; pip's downloads and the builds of Horovod and the op library as much again
# for a while; the rest is for data and checkpoints.
NEEDED_GB=6

problems=""
problem() {
  problems="$problems
  - $1"
}

# Runs, is 3.9 to 3.11, and is not inside a .venv or .venv-tf... that is going to be made.
fits() {
  "$1" -c '
import os, sys
inside = os.path.realpath(sys.prefix).startswith(os.path.realpath(".venv"))
sys.exit(inside or not (3, 9) <= sys.version_info[:2] <= (3, 11))' >/dev/null 2>&1
}

python=""
# A Python that was named is the only one that will do.
candidates="python3.11 python3.10 python3.9 python3"
if [ -n "${1:-}" ]; then candidates=$1; fi
for candidate in $candidates; do
  if fits "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  problem "no Python 3.9, 3.10 or 3.11, which tfsparse supports. Debian 12:
    apt-get install python3 python3-venv. Elsewhere: install one of them and name it with
    make PYTHON=/path/to/python3.11"
elif ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  problem "$python has no venv or ensurepip module:
    apt-get install python3-venv (or python$version-venv, when it is not the system's python3)"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '#include <string_view>\nint main() { return std::string_view("").size(); }\n' \
  >"$scratch/probe.cc"
# CXX may hold options too, so it is split at spaces.
if ! ${CXX:-g++} -std=c++17 "$scratch/probe.cc" -o "$scratch/probe" >/dev/null 2>&1; then
  problem "no working C++17 compiler (tried '${CXX:-g++}'):
    apt-get install g++, or name another with CXX=/path/to/compiler"
fi

if ! [ -w . ]; then
  problem "no permission to write to $PWD:
    make the checkout writable for $(id -un), or clone it elsewhere"
fi

free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
if [ "$free_kb" -lt $((NEEDED_GB * 1024 * 1024)) ]; then
  problem "too little disk space on the file system of $PWD:
    need $NEEDED_GB GB, have $(awk "BEGIN { printf \"%.1f\", $free_kb / 1048576 }") GB"
fi

if [ -n "$problems" ]; then
  printf 'tfsparse cannot be set up here (nothing was downloaded or changed):%s\n' "$problems" >&2
  exit 1
fi
command -v "$python"
