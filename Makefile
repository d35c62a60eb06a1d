# A fresh Debian or Ubuntu with Python 3.9 to 3.11, g++, make and git is all this needs.

# Set these on the command line: make test STACK=tf216.
STACK := tf215
PYTHON :=
JOBS := $(shell nproc)
DATA :=
TESTS :=
SANITIZERS := address undefined thread

# A stack is a TensorFlow and what goes with it; each has an environment of its own.
VENV_tf215 := .venv
VENV_tf216 := .venv-tf216
VENV := $(or $(VENV_$(STACK)),$(error STACK must be tf215 or tf216. Received: STACK=$(STACK)))
ifeq ($(STACK),tf216)
  TF_KERAS := tf-keras
  export TF_USE_LEGACY_KERAS := 1
else
  unexport TF_USE_LEGACY_KERAS
endif

PY := $(VENV)/bin/python
IN_VENV := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
CONSTRAINTS := tools/constraints-$(STACK).txt
# Options given to make are not meant for what pip builds.
PIP_INSTALL := env -u MAKEFLAGS -u MFLAGS $(PY) -m pip install --constraint $(CONSTRAINTS)
FIND_CXX := find custom_ops tests -regex '.*\.\(h\|cc\|cu\|cuh\)' -print0

# Each step of the setup leaves a stamp when it is complete, so that the next call of make goes on
# where an earlier one stopped.
STAMPS := $(VENV)/.stamps

# Each has an environment of its own, for what it needs may not stand beside what tfsparse needs.
RIVALS := $(patsubst tools/requirements-bench-%.txt,%,$(wildcard tools/requirements-bench-*.txt))

.PHONY: help venv train test bench $(RIVALS:%=bench-%) lint format sanitize clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | expand -t 12

venv: $(STAMPS)/tfsparse ## set .venv up and build the op library (STACK=tf216: .venv-tf216)
	@$(PY) setup.py --quiet build_ext --inplace

train: venv ## train DeepFM on MovieLens-100K on two ranks (DATA=folder: on files you have)
	$(PY) examples/movielens_data.py $(if $(DATA),--data "$(DATA)")
	$(IN_VENV) horovodrun -np 2 python examples/deepfm_movielens.py \
	    --data "$(or $(DATA),.data/ml-100k)"

test: venv ## test the built wheel, away from its sources (TESTS=what to run; STACK=)
	env -u MAKEFLAGS -u MFLAGS tools/test_wheel.sh $(VENV) build/wheel-$(STACK) $(TESTS)

bench: venv $(RIVALS:%=bench-%) ## compare with others and write tests/bench/RESULTS.md
	$(PY) -m tests.bench.run

$(RIVALS:%=bench-%): bench-%: .venv-bench/%/.complete

lint: $(STAMPS)/tfsparse ## check style and the shape of the tree
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(FIND_CXX) | xargs -0 -r $(VENV)/bin/clang-format --dry-run -Werror
	$(PY) -m pytest -q tests/test_architecture.py

format: $(STAMPS)/tfsparse ## apply the style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(FIND_CXX) | xargs -0 -r $(VENV)/bin/clang-format -i

sanitize: $(STAMPS)/build-tools ## run core_tests with sanitizers (SANITIZERS=address,undefined: one build)
	@set -e; for sanitizer in $(SANITIZERS); do \
	  echo "core_tests, $$sanitizer sanitizer"; \
	  build="build/sanitize-$$sanitizer"; \
	  $(IN_VENV) cmake -G Ninja -S custom_ops -B "$$build" -DTFS_BUILD_OPS=OFF \
	      -DTFS_BUILD_TESTS=ON -DTFS_SANITIZE=$$sanitizer >/dev/null; \
	  $(IN_VENV) cmake --build "$$build" -j $(JOBS); \
	  "$$build/core_tests"; \
	done

clean: ## remove what was built, but not .venv* and .data
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache tfsparse/ops/_tfsparse_ops*.so
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

# An environment that an interrupted call left without pip, or one of another Python, is made anew.
$(STAMPS)/venv:
	@python="$$(tools/preflight.sh "$(PYTHON)")" && { \
	  $(PY) -c 'import sys, pip; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null \
	  || { echo "Making $(VENV) with $$python"; "$$python" -m venv --clear $(VENV); }; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build-tools: $(STAMPS)/venv $(CONSTRAINTS)
	$(PIP_INSTALL) setuptools wheel packaging cloudpickle psutil pyyaml cmake ninja
	@touch $@

$(STAMPS)/tensorflow: $(STAMPS)/build-tools
	$(PIP_INSTALL) tensorflow $(TF_KERAS) numpy
	@touch $@

$(STAMPS)/horovod: $(STAMPS)/tensorflow tools/install_horovod.sh
	tools/install_horovod.sh $(VENV) $(CONSTRAINTS) $(JOBS)
	@touch $@

$(STAMPS)/tfsparse: $(STAMPS)/horovod setup.py pyproject.toml
	$(PIP_INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@

# Made anew when its list changes, with the Python of .venv.
RIVAL_STAMPS := $(RIVALS:%=.venv-bench/%/.complete)
$(RIVAL_STAMPS): .venv-bench/%/.complete: tools/requirements-bench-%.txt | $(STAMPS)/venv
	@echo "Making .venv-bench/$*"
	@$(PY) -m venv --clear .venv-bench/$*
	@env -u MAKEFLAGS -u MFLAGS .venv-bench/$*/bin/python -m pip install --requirement $< || { \
	  echo "error: pip could not install the rival $* from $<;" \
	      "make bench needs every rival, and shows no ratio without one" >&2; exit 1; }
	@touch $@
