#!/usr/bin/env bash
# Runs the tests on the wheel, as users have it: installed, and away from its sources.
#
#   tools/test_wheel.sh VENV FOLDER [PYTEST ARGUMENTS]
#
# FOLDER gets the wheel, an environment of its own for it, and a copy of the checkout without the
# sources of the package, in which the tests run. The environment sees the packages of VENV but not
# the editable tfsparse there, for Python follows path files of an environment's own folder only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
checkout=$PWD
venv=$checkout/$1
folder=$checkout/$2
shift 2
unset PYTHONPATH

rm -rf "$folder/wheel" "$folder/env"
"$venv/bin/python" -m pip wheel --quiet --no-build-isolation --no-deps \
  --wheel-dir "$folder/wheel" .
"$venv/bin/python" -m venv --without-pip "$folder/env"
python=$folder/env/bin/python
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
"$venv/bin/python" -c "$packages" >"$("$python" -c "$packages")/stack.pth"
"$python" -m pip install --quiet --no-deps --ignore-installed "$folder"/wheel/*.whl
for command in "$venv"/bin/*; do # horovodrun, saved_model_cli, cmake, ninja
  [ -e "$folder/env/bin/$(basename "$command")" ] || ln -s "$command" "$folder/env/bin/"
done

# What the tests build in the copy (core_tests) stays, so that it is not compiled anew each time.
mkdir -p "$folder/copy"
find "$folder/copy" -mindepth 1 -maxdepth 1 -not -name build -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard -- ':!tfsparse' ':!keras_layers' |
  while IFS= read -r -d '' file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi # git also lists what was just deleted
  done | xargs -0 cp --parents --preserve=timestamps,mode --target-directory "$folder/copy"

export TFSPARSE_TEST_DATA="${TFSPARSE_TEST_DATA:-$checkout/../shared/data}"
export TFSPARSE_TEST_WHEEL=$folder/wheel
export PATH="$folder/env/bin:$PATH"
cd "$folder/copy"
# test_architecture.py looks at the sources; `make lint` runs it.
# The slowest are shown, because the whole should take less than 25 minutes on two cores.
# Two files at a time: most of a test is one thread, and tests of several ranks wait a lot.
exec python -m pytest --numprocesses 2 --dist loadfile --durations=25 \
  --ignore tests/test_architecture.py "$@"
