# Expunge: `make help` lists what there is to do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

BROWSER := .venv-browser
FEDERATED := .venv-federated

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-all test-long test-browser test-federated lint types format clean bench bench-smoke paper

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# All is compiled: where PYTHONDONTWRITEBYTECODE is set, every command would else compile what it imports.
$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $@

$(BROWSER)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cli]' playwright pytest
	@touch $@

# Flower's database has no tables where its own path has a space: Alembic takes that for two paths.
$(FEDERATED)/.installed: pyproject.toml
	@case "$(abspath $(FEDERATED))" in *\ *) echo "Flower does not run under a path with a space. Name a place for its environment: make $(MAKECMDGOALS) FEDERATED=/tmp/flower"; exit 1;; esac
	$(PYTHON) -m venv $(FEDERATED)
	$(FEDERATED)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[federated,plot]' mypy pytest scipy-stubs
	@touch $@

demo: $(STAMP)  ## Set everything up, train models, delete people from them, write a report (under two minutes)
	$(BIN)/expunge demo

lint: $(STAMP)  ## Check style, formatting and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(STAMP)  ## Check types
	$(BIN)/mypy

# Each process computes with one thread: there are two of them, and the products are small.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

test: lint types  ## Set everything up and run all tests but the long ones and those of heavy extras
	$(PYTEST) -m "not long"

test-long: $(STAMP)  ## Run the long tests: exactness of every kind of learner, all negative controls, processes that are killed
	$(PYTEST) -m long

test-browser: $(BROWSER)/.installed  ## Look at the audit report in a real browser (needs Chromium)
	$(BROWSER)/bin/python -m pytest tests/browser -q

test-federated: $(FEDERATED)/.installed  ## Run clients and a server in Flower's simulation engine
	$(FEDERATED)/bin/python -m mypy --follow-imports=silent -p digits -p expunge.federated
	$(FEDERATED)/bin/python -m pytest tests/flower -q

test-all: test test-long test-browser test-federated  ## Run all tests, also those that need heavy extras, each in its own environment

docs: $(STAMP)  ## Write docs/commands.md from the help texts of the commands
	$(BIN)/python -m expunge.cli.reference > docs/commands.md

format: $(STAMP)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

paper: $(STAMP)  ## Reproduce the paper: one page, out/paper/index.html (half an hour on two cores; QUICK=1: five minutes, out/paper/quick)
	$(BIN)/python -m benchmarks.paper.reproduce $(if $(QUICK),--quick)

bench: $(STAMP)  ## Run every benchmark (about nine and a half hours); results go to out/
	$(BIN)/python benchmarks/all.py

bench-smoke: $(STAMP)  ## Run every benchmark with tiny sizes, to see that it works; results go to out/smoke
	$(BIN)/python benchmarks/all.py --smoke

clean:  ## Remove the environment and all results
	rm -rf $(VENV) $(BROWSER) $(FEDERATED) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
