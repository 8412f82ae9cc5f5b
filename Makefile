# One command for everything; `make help` lists them. Needs Python 3.11 or newer, make and, for the tests, apt.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt
INPUTS := pyproject.toml constraints.txt
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test check coverage soak bench hooks clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(VENV)/.dev ## Make .venv with everything for development; quick when it is up to date

demo: $(VENV)/.run ## Set up what is needed and run the main job: record, kill, inspect, resume, finish
	@$(BIN)/turnlog demo

test: $(VENV)/.test ## Set up and run every test
	@sh tools/services.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q

check: $(VENV)/.dev ## Lint, format, types, layers and the gates of documents and decision records
	@$(BIN)/python -m tools.gates all

coverage: $(VENV)/.test ## Branch coverage of events, session, persistence and backends in the in-process tests
	@$(BIN)/python tools/coverage_floor.py --run --workers $(WORKERS)

soak: $(VENV)/.test ## The crash and fault lanes in their long forms; writes tests/faults/RESULTS.md
	@sh tools/services.sh
	@rm -f $(VENV)/fault-lanes.jsonl
	TURNLOG_SOAK=1 TURNLOG_FAULT_RESULTS=$(VENV)/fault-lanes.jsonl $(BIN)/python -m pytest -q tests/crash tests/faults
	$(BIN)/python -m tests.faults.table $(VENV)/fault-lanes.jsonl

bench: $(VENV)/.test ## Measure against the floor and the original; prints ratios from one run
	$(BIN)/python -m bench.run

hooks: ## Install the git hooks: the fast gates run before each commit
	git config core.hooksPath tools/hooks

clean: ## Remove everything that make created
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp file says which set of packages .venv holds; the bigger sets include the smaller ones.
$(BIN)/python:
	@sh tools/make_venv.sh $(PYTHON) $(VENV)

$(VENV)/.run: $(INPUTS) | $(BIN)/python
	$(PIP) -e '.[cli]'
	@touch $@

$(VENV)/.dev: $(INPUTS) | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.test: $(INPUTS) | $(BIN)/python
	$(PIP) -e '.[dev,interop]'
	@touch $@ $(VENV)/.dev $(VENV)/.run
