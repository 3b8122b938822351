# Everything runs from .venv, which these targets make and keep current.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help install run test test-long check format lock bench clean

help: ## Say what each target does
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

.venv/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment; install its venv package (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: requirements.lock pyproject.toml | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/installed-dev: requirements-dev.lock .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

install: .venv/installed ## Make .venv and install what the server needs

run: .venv/installed ## Serve the agent on 127.0.0.1:8000
	@exec $(BIN)/a2a serve

test: .venv/installed-dev ## Run the tests
	$(BIN)/python -m pytest

test-long: .venv/installed-dev ## Run the tests that take minutes
	$(BIN)/python -m pytest -m long --timeout 3600

check: .venv/installed-dev ## Everything that must hold before a change lands: format, lint, types, imports, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(MAKE) --no-print-directory test

format: .venv/installed-dev ## Format the code and sort its imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: .venv/installed-dev ## Resolve the dependencies anew
	$(UV_COMPILE) --upgrade --extra build pyproject.toml -o requirements.lock
	$(UV_COMPILE) --upgrade --extra build --extra dev --constraint requirements.lock pyproject.toml -o requirements-dev.lock

bench: .venv/installed-dev ## Compare with the official SDK on this machine
	$(BIN)/python -m benchmarks

clean: ## Remove .venv and what tools left behind
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
