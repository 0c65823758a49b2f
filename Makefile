# `make demo` and `make test` set everything up themselves: they need Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint clean

help:
	@echo "make demo   run the knife edge and the rotating CVT by all methods; table and figure in demo/"
	@echo "make test   style, types, layers, and all tests"
	@echo "make clean  remove what the above made"

$(STAMP): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) (about a minute the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	@echo "== running the demo"
	$(BIN)/python -m dalembert.demo demo

lint: $(STAMP)
	@echo "== style, types, layers"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test: lint
	@echo "== tests"
	$(BIN)/python -m pytest -n auto

clean:
	rm -rf $(VENV) demo .pytest_cache .ruff_cache .hypothesis
