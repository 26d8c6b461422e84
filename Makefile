# One virtual environment, .venv, serves every target. A stamp file per set of packages makes a repeat start at once;
# a changed pyproject.toml, setup.py or lock installs again.
#
#   make setup      .venv with kvproof in it and nothing else; the other targets do this first
#   make check      set up, then `kvproof check` (no torch)
#   make explore    all behaviours of the quick scopes (docs/explore.md); ARGS='--scope fa1-host', or the whole catalogue by kvproof explore
#   make prove      set up with CrossHair and Z3 (no torch), then claims about the model for all sizes, without the deep ones (docs/prove.md); ARGS='--claim list', or everything by kvproof prove
#   make gpu        model and tensors side by side on the CPU, the quick runs (docs/gpu.md); ARGS='--device cuda' on a device
#   make test       set up with the test packages and torch, then the tests
#   make lint       ruff, mypy --strict, pyright, import-linter
#   make conform    real vLLM releases under test: their tests, and a short run of the newest (downloads wheels, no GPU)
#   make deep       the tests that are too long for CI; needs spin and gcc (apt-get install spin gcc)
#   make referee    core/ against an independent Promela model of the block pool (docs/referee.md); needs spin and gcc
#   make browser    the HTML reports in Debian's Chromium, which it installs if there is none (needs the rights to)
#   make coverage   the tests of core/ and of the laws with branch coverage; core/ must be covered completely
#   make wheel      source archive -> wheel from it -> empty environment -> `kvproof check --quick` there
#   make mutants    mutation score of core/ (docs/quality.md); ARGS='--count 500 --seed 1'
#   make bench      actions and replay operations per second
#   make format     let ruff rewrite the sources
#   make clean      remove .venv and everything built

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Which Python makes .venv: 3.11 or newer. `make check PYTHON=python3.12` takes another one.
PYTHON ?= $(firstword $(foreach p,python3.11 python3,$(shell command -v $(p) 2>/dev/null)))
# What pip is told about torch; for Python 3.12 for example TORCH=path/to/torch-2.11.0+cpu-cp312-….whl
TORCH ?= -r requirements/torch.txt
# Processes for the tests: a number, or auto for one per core.
WORKERS ?= auto
# More arguments for kvproof check or pytest, for example ARGS="--seed 7".
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := -c requirements/lock.txt
SETUP := pyproject.toml setup.py requirements/lock.txt
RUNTIME := $(VENV)/.installed-runtime
PROOFS := $(VENV)/.installed-proofs
TEST := $(VENV)/.installed-test
CONFORM := $(VENV)/.installed-conform
LINT := $(VENV)/.installed-lint
RELEASE := $(VENV)/.installed-release
BROWSER := $(VENV)/.installed-browser
TORCH_CHOICE := $(VENV)/.installed-torch

.PHONY: help setup check explore prove gpu test conform deep referee lint format browser chromium-there coverage mutants wheel bench clean python-matches torch-matches spin-there

help:
	@sed -n 's/^#   //p' Makefile

$(VENV)/pyvenv.cfg:
	@if [ -z "$(PYTHON)" ]; then echo "no python3.11 or python3 found; name one: make PYTHON=/path/to/python" >&2; exit 1; fi
	"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvproof needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another: make PYTHON=...")'
	"$(PYTHON)" -m venv $(VENV)

# A Python given on the command line must be the one that .venv has, or the caller would test something else than asked.
python-matches: $(VENV)/pyvenv.cfg
ifeq ($(origin PYTHON),command line)
	@have=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	want=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	if [ "$$have" != "$$want" ]; then echo ".venv has Python $$have, PYTHON is $$want: run make clean first" >&2; exit 1; fi
endif

# An environment keeps the torch that it was made with: a default never replaces a given one, and another one is refused.
torch-matches: | python-matches
ifneq ($(origin TORCH),file)
	@if [ -e $(TORCH_CHOICE) ] && [ "$$(cat $(TORCH_CHOICE))" != '$(TORCH)' ]; then
	  echo ".venv was made with TORCH='$$(cat $(TORCH_CHOICE))', not '$(TORCH)': run make clean first" >&2
	  exit 1
	fi
endif

$(RUNTIME): $(SETUP) | python-matches
	@echo "installing kvproof and its dependencies into $(VENV) (half a minute)"
	$(PIP) install $(LOCK) -e .
	touch $@

$(PROOFS): $(SETUP) $(RUNTIME)
	@echo "installing CrossHair and Z3 into $(VENV) (half a minute)"
	$(PIP) install $(LOCK) -e '.[proofs]'
	touch $@

# torch stands in the same command as the rest, so that no other torch can come in through a dependency. The choice is
# written down after it was installed, never before. The extra `proofs` is among the test packages.
$(TEST): $(SETUP) requirements/torch.txt | torch-matches
	@choice='$(TORCH)'
	if [ "$(origin TORCH)" = file ] && [ -e $(TORCH_CHOICE) ]; then choice=$$(cat $(TORCH_CHOICE)); fi
	echo "installing the test packages with torch from: $$choice"
	$(PIP) install $(LOCK) $$choice -e '.[test]'
	printf '%s\n' "$$choice" > $(TORCH_CHOICE)
	touch $@ $(RUNTIME) $(PROOFS)

$(CONFORM): $(SETUP) $(TEST)
	$(PIP) install $(LOCK) -e '.[vllm]'
	touch $@

$(LINT): $(SETUP) $(TEST)
	$(PIP) install $(LOCK) -e '.[lint]'
	touch $@

$(RELEASE): $(SETUP) $(RUNTIME)
	$(PIP) install $(LOCK) -e '.[release]'
	touch $@

$(BROWSER): $(SETUP) $(RUNTIME)
	$(PIP) install $(LOCK) -e '.[browser]'
	touch $@

setup: $(RUNTIME)
	@echo "ready: $(BIN)/kvproof"

check: $(RUNTIME)
	$(BIN)/kvproof check $(ARGS)

explore: $(RUNTIME)
	$(BIN)/kvproof explore $(or $(ARGS),--quick)

prove: $(PROOFS)
	$(BIN)/kvproof prove $(or $(ARGS),--quick)

gpu: $(TEST)
	$(BIN)/kvproof gpu $(or $(ARGS),--quick)

test: $(TEST)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

conform: $(CONFORM)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'vllm and not deep' --timeout 900 $(ARGS)
	$(BIN)/kvproof conform vllm --version 0.33.0 --quick

# Without the model checker nothing would be refereed: the tests would be skipped. So it is asked for before they begin.
spin-there:
	@for tool in spin gcc; do
	  command -v $$tool > /dev/null || { echo "$$tool is missing: apt-get install spin gcc" >&2; exit 1; }
	done

referee: spin-there $(TEST)
	$(BIN)/python -m pytest -n $(WORKERS) -m 'deep or not deep' --timeout 7200 $(ARGS) tests/referee

deep: spin-there $(CONFORM)
	$(BIN)/python -m pytest -n $(WORKERS) -m 'deep or vllm' --timeout 7200 $(ARGS)

# Playwright drives the system's browser: it downloads none of its own.
chromium-there:
	@command -v chromium > /dev/null && exit
	echo "installing Debian's chromium"
	apt-get install -y -qq chromium > /dev/null || { echo "chromium is missing: apt-get install chromium" >&2; exit 1; }

browser: chromium-there $(BROWSER)
	$(BIN)/python -m pytest -m browser $(ARGS) tests/browser

lint: $(LINT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p kvproof
	$(BIN)/mypy tests examples
	$(BIN)/pyright --pythonpath $(BIN)/python
	PYTHONPATH=tests/_path $(BIN)/lint-imports

format: $(LINT)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(TEST)
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report= $(ARGS) tests/core tests/spec/test_findings.py tests/spec/test_laws_*.py tests/spec/test_public_faults.py
	$(BIN)/coverage report --include='core/*' --fail-under=100

mutants: $(TEST)
	$(PIP) install $(LOCK) -e '.[mutation]'
	$(BIN)/python -m tests.mutation.run $(ARGS)

wheel: $(RELEASE)
	@rm -rf dist build/wheel
	mkdir -p build/wheel
	$(BIN)/python -m build --sdist --outdir dist . > build/wheel/sdist.log 2>&1 || { tail -30 build/wheel/sdist.log >&2; exit 1; }
	mkdir build/wheel/source
	tar -xzf dist/kvproof-*.tar.gz -C build/wheel/source --strip-components 1
	$(BIN)/python -m build --wheel --outdir dist build/wheel/source > build/wheel/wheel.log 2>&1 || { tail -30 build/wheel/wheel.log >&2; exit 1; }
	$(BIN)/python tests/wheel_contents.py dist/kvproof-*.tar.gz dist/kvproof-*.whl
	$(BIN)/python -m venv build/wheel/empty
	build/wheel/empty/bin/python -m pip --disable-pip-version-check --quiet install $(LOCK) dist/kvproof-*.whl
	here=$$PWD
	elsewhere=$$(mktemp -d)
	trap 'rm -rf "$$elsewhere"' EXIT
	cd "$$elsewhere"
	env -u PYTHONPATH "$$here/build/wheel/empty/bin/kvproof" --version
	env -u PYTHONPATH "$$here/build/wheel/empty/bin/kvproof" check --quick

bench: $(RUNTIME)
	$(BIN)/python benchmarks/throughput.py $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .coverage.*
