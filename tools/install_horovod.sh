#!/usr/bin/env bash
# Builds Horovod against the TensorFlow in a virtual environment of this checkout and installs it
# there, unless that is done.
#
#   tools/install_horovod.sh VENV CONSTRAINTS JOBS
#
# Gloo is built in. MPI is too when HOROVOD_WITH_MPI=1 is set and an MPI is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$1
constraints=$2
jobs=$3
python=$venv/bin/python

works_with_this_tensorflow() {
  "$python" -c '
import json, pathlib, sys
import horovod, tensorflow
built_for = json.loads((pathlib.Path(horovod.__file__).parent / "metadata.json").read_text())
import horovod.tensorflow
sys.exit(built_for["tensorflow"] != tensorflow.__version__)' >/dev/null 2>&1
}

if works_with_this_tensorflow; then
  exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Horovod's CMake files split TensorFlow's paths at spaces; they get to see a link without any.
venv="$PWD/$venv"
if [[ "$venv" == *" "* ]]; then
  ln -s "$venv" "$scratch/venv"
  venv="$scratch/venv"
fi

if [ -z "${HOROVOD_WITH_MPI:-}" ]; then
  export HOROVOD_WITHOUT_MPI=1
fi
export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITH_GLOO=1
# Without MAKEFLAGS Horovod compiles eight files at a time, whatever the machine.
export MAKEFLAGS="-j$jobs" PATH="$venv/bin:$PATH"

# No cache: pip does not know that a Horovod wheel fits one TensorFlow only.
"$venv/bin/python" -m pip wheel --no-cache-dir --no-build-isolation --no-deps \
  --constraint "$constraints" --wheel-dir "$scratch" horovod
"$python" -m pip install --no-deps --force-reinstall --no-index --find-links "$scratch" horovod

if ! works_with_this_tensorflow; then
  echo "Horovod was built but does not load: $python -c 'import horovod.tensorflow' says why." >&2
  exit 1
fi
