# Two commands need nothing but Python 3.11: `make train` and `make test`. `make help` lists the rest.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# What `make train` runs; `make train TRAIN_ARGS="..."` runs another training.
TRAIN_ARGS ?= --total-steps 100_000
# Arguments for pytest: `make test TEST_ARGS="tests/envs -k minefield"`.
TEST_ARGS ?=
# Test processes. Each runs one thread of torch, so more of them than cores only get in each other's way.
WORKERS ?= auto

# Only errors of pip are shown: its warnings speak of the machine's own settings.
INSTALL := -m pip --disable-pip-version-check install -qq --no-compile

PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest
# A file's tests stay together: they share what its fixtures trained or built.
PARALLEL := -n $(WORKERS) --maxprocesses=8 --dist=loadfile

# Libraries whose own requirements do not fit beside the others; each gets .venvs/<name>.
INTEGRATIONS := rllib
# The extras that requirements.lock covers.
LOCKED := dev,docs,envs,export,plot,sb3,skrl,tianshou,torchrl,sweep,video

.DEFAULT_GOAL := help
.PHONY: help train test slow test-browser fuzz test-integrations check lint format-check types format docs lock clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-18s %s\n", $$1, $$2 }'

train: $(READY)  ## train the default task and say where its curves are
	$(BIN)/python -m entity_encoder.agents train $(TRAIN_ARGS)

test: $(READY)  ## run the test suite
	$(PYTEST) $(PARALLEL) $(TEST_ARGS)

slow: $(READY)  ## run the proofs that take minutes
	$(PYTEST) $(PARALLEL) -m "slow and not integration" $(TEST_ARGS)

test-browser: $(READY)  ## open TensorBoard in a headless browser (apt-get install chromium)
	$(PYTEST) -m slow tests/agents/test_browser.py $(TEST_ARGS)

fuzz: $(READY)  ## run every property test on 10,000 new examples
	HYPOTHESIS_PROFILE=nightly $(PYTEST) $(PARALLEL) -m "hypothesis and not integration" --timeout=0 $(TEST_ARGS)

test-integrations: $(INTEGRATIONS:%=test-integration-%)  ## test the libraries that need their own environment

check: lint format-check types  ## lint, formatting and types

lint: $(READY)
	$(BIN)/ruff check

format-check: $(READY)
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/mypy

format: $(READY)  ## apply the formatter and the fixes that the linter knows
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

docs: $(READY)  ## build the pages into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The environment is made once; a changed lock or pyproject is installed into it again.
$(READY): requirements.lock pyproject.toml setup.py
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11, or name another with make PYTHON=python3.12"; exit 1; }
	@echo "== making $(VENV) from requirements.lock (once; a few minutes)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -r requirements.lock
	@# pip would compile on one core; a few files are templates in no valid Python
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	$(BIN)/python $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.PRECIOUS: .venvs/%/.ready
.venvs/%/.ready: requirements.lock pyproject.toml setup.py
	@echo "== making .venvs/$* for the extra [$*]"
	$(PYTHON) -m venv .venvs/$*
	grep '^torch==' requirements.lock > .venvs/$*/constraints.txt
	.venvs/$*/bin/python $(INSTALL) -c .venvs/$*/constraints.txt torch
	.venvs/$*/bin/python $(INSTALL) -c .venvs/$*/constraints.txt -e ".[dev,$*]"
	@touch $@

.PHONY: $(INTEGRATIONS:%=test-integration-%)
$(INTEGRATIONS:%=test-integration-%): test-integration-%: .venvs/%/.ready
	OMP_NUM_THREADS=1 .venvs/$*/bin/python -m pytest -m integration tests/entity_encoder/integrations/test_$*.py $(TEST_ARGS)

# To move a version: edit its line in requirements.lock (torch) or pyproject.toml (a bound), then `make lock`.
lock:  ## write requirements.lock anew from pyproject's bounds; torch stays at the locked version
	rm -rf .venvs/lock
	$(PYTHON) -m venv .venvs/lock
	grep '^torch==' requirements.lock > .venvs/lock/constraints.txt
	.venvs/lock/bin/python $(INSTALL) -c .venvs/lock/constraints.txt torch
	.venvs/lock/bin/python $(INSTALL) -c .venvs/lock/constraints.txt -e ".[$(LOCKED)]"
	{ grep '^#' requirements.lock; \
	  .venvs/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip --exclude wheel \
	  | sed 's/+cpu$$//'; } > .venvs/lock/requirements.lock
	mv .venvs/lock/requirements.lock requirements.lock
	rm -rf .venvs/lock

clean:  ## remove the environments and everything built
	rm -rf $(VENV) .venvs build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
