# `make demo` and `make test` set everything up themselves: they need Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint benchmarks clean

help:
	@echo "make demo   redo the figures and tables of two published studies, briefly; demo/report.html"
	@echo "make test   style, types, layers, and all tests"
	@echo "make benchmarks   measure against C and other solvers (ten minutes, on an idle machine); docs/benchmarks.md"
	@echo "make clean  remove what the above made"

$(STAMP): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) (about a minute the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	@echo "== running the demo"
	$(BIN)/dalembert reproduce --quick --out demo

lint: $(STAMP)
	@echo "== style, types, layers"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test: lint
	@echo "== tests"
	$(BIN)/python -m pytest -n auto

benchmarks: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/dalembert bench --json benchmarks/results.json --merge benchmarks/gpu.json
	$(BIN)/python -m dalembert.bench.report benchmarks/results.json

clean:
	rm -rf $(VENV) demo .pytest_cache .ruff_cache .hypothesis
