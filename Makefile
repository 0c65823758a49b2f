# `make demo`, `make test` and `make docs` set everything up themselves: they need Python 3.11 or newer and make;
# `make docs` also npm, which fetches MathJax, so that the pages show formulas without a network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
MATHJAX := docs/_mathjax/mathjax/tex-svg-full.js

.PHONY: help demo check test coverage soak docs lint style types quick-tests all-tests benchmarks clean

help:
	@echo "make demo   redo the figures and tables of two published studies, briefly; demo/report.html"
	@echo "make check  style, types, layers, and the quick tests: about three minutes on two cores"
	@echo "make test   style, types, layers, and all tests"
	@echo "make coverage   all tests, and which lines of the source they run: half as long again as make test"
	@echo "make soak   random systems, long runs, kills, bit flips for hours; ONLY=systems,lambdas SEED=7 SCALE=0.1"
	@echo "make docs   the documentation, every example run: docs/_build/html/index.html"
	@echo "make benchmarks   measure against C and other solvers (an hour, on an idle machine); docs/benchmarks.md"
	@echo "make clean  remove what the above made"

$(STAMP): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) (about a minute the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	@echo "== running the demo"
	$(BIN)/dalembert reproduce --quick --out demo

# The type checker is one process, so the tests run beside it.
lint: style types

style: $(STAMP)
	@echo "== style, layers"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	@echo "== types"
	$(BIN)/pyright

check: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint quick-tests

test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint all-tests

quick-tests: $(STAMP)
	@echo "== quick tests"
	$(PYTEST) -m core

all-tests: $(STAMP)
	@echo "== tests"
	$(PYTEST)

coverage: $(STAMP)
	@echo "== tests, with the coverage of the source"
	$(PYTEST) --cov=dalembert --cov-report=term:skip-covered

soak: $(STAMP)
	$(BIN)/python tests/properties/soak.py $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) \
		$(if $(SCALE),--scale $(SCALE))

docs: $(VENV)/.docs $(MATHJAX)
	@echo "== building the documentation"
	$(BIN)/sphinx-build -W --keep-going -q -j auto docs docs/_build/html
	@echo "open docs/_build/html/index.html"

$(VENV)/.docs: pyproject.toml constraints.txt
	@echo "== setting up $(VENV) for the documentation (about a minute the first time)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

$(MATHJAX):
	@command -v npm >/dev/null || { echo "make docs fetches MathJax with npm, which is not here: install Node.js"; exit 1; }
	@echo "== fetching MathJax"
	mkdir -p $(@D)
	cd $(@D) && npm pack --silent mathjax@3.2.2
	cd $(@D) && tar -xzf mathjax-3.2.2.tgz --strip-components=2 package/es5/$(@F) && rm mathjax-3.2.2.tgz

benchmarks: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/dalembert bench --only size --json benchmarks/size.json
	$(BIN)/dalembert bench --only c,ensemble,naive,peers,compile,gradients,tag,sweep \
		--json benchmarks/results.json --merge benchmarks/gpu.json
	$(BIN)/python -m dalembert.lab.bench.report benchmarks/results.json benchmarks/size.json

clean:
	rm -rf $(VENV) demo docs/_build docs/_mathjax .pytest_cache .ruff_cache .hypothesis
