# Everything needs Python 3.11+ and make, nothing else. `make help` lists the targets.
# ARGS is handed on: make run ARGS="--port 9000", make test ARGS="-k resume".

VENV ?= .venv
ARGS ?=
UV_VERSION := 0.13.9
LOCK_FLAGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Byte code is written for what a start imports, and for no more: compiling all of it would take longer than the rest.
PIP_INSTALL := $(PIP) install --quiet --no-compile
INSTALL_SELF := $(PIP_INSTALL) --no-deps --no-index --no-build-isolation --editable .
COMPILE_STARTED := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c "import app.cli, app.bootstrap, app.store.sql"
SOURCES := app tests $(wildcard benchmarks)
COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make lock" $(LOCK_FLAGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run install dev-install test test-long check bench conformance lock upgrade format clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1	\2/p' Makefile | expand -t 14

run: install ## Serve the agent on 127.0.0.1:8000
	@exec $(BIN)/a2a serve $(ARGS)

install: $(VENV)/installed ## Create .venv with what the server needs

dev-install: $(VENV)/installed-dev ## Create .venv with what development needs

test: dev-install ## Run the tests
	$(BIN)/python -m pytest $(ARGS)

test-long: dev-install ## Run the tests that take minutes
	$(BIN)/python -m pytest -m long --timeout 3600 $(ARGS)

check: dev-install ## Format, lints, types, architecture and tests: what CI runs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m pytest $(ARGS)

conformance: dev-install ## Run the official conformance kit: TCK=checkout
	@test -n "$(TCK)" || { echo "Say where the kit is: make conformance TCK=/path/to/a2a-tck" >&2; exit 2; }
	$(BIN)/python -m tests.conformance $(TCK) $(ARGS)

bench: dev-install ## Measure
	$(BIN)/python -m benchmarks $(ARGS)

format: dev-install ## Format the code and fix what lints can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: dev-install ## Write both lock files anew from pyproject.toml, keeping versions that still fit
	$(PIP_INSTALL) uv==$(UV_VERSION)
	$(COMPILE) --group build --output-file requirements.lock
	$(COMPILE) --group dev --constraints requirements.lock --output-file requirements-dev.lock

upgrade: ## Write both lock files with the newest versions that fit
	$(MAKE) lock LOCK_FLAGS=--upgrade

clean: ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find app tests $(wildcard alembic benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: requirements.lock pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) --require-hashes --requirement requirements.lock
	$(INSTALL_SELF)
	@$(COMPILE_STARTED)
	@touch $@

$(VENV)/installed-dev: requirements.lock requirements-dev.lock pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) --require-hashes --requirement requirements-dev.lock
	$(INSTALL_SELF)
	@$(COMPILE_STARTED)
	@touch $(VENV)/installed $@

# The first Python that is new enough and can make environments; PYTHON=… to choose.
$(BIN)/python:
	@new=; for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		new=$$python; \
		"$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
		echo "Creating $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv --clear $(VENV) && exit 0; rm -rf $(VENV); exit 1; \
	done; \
	if [ -n "$$new" ]; then \
		echo "$$new lacks venv and ensurepip; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
	else \
		echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11" >&2; \
	fi; exit 1
