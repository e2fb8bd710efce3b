# `make demo` and `make test` need nothing but Python 3.11+ and make: they set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
DEV := .venv/.dev

# Tests, benchmarks and studies on real data: folders named as in the catalog, under TRANSCF_DATA.
ifneq ($(wildcard ../shared/datasets),)
export TRANSCF_DATA ?= $(abspath ../shared/datasets)
endif

.PHONY: demo demo-serve test coverage fuzz browser docs docs-tables notebooks dist setup lint bench bench-baselines clean \
	study-paper-core study-paper-grid study-paper-baselines study-full-ranking study-times \
	study-mixture study-translations study-defaults
.DEFAULT_GOAL := demo

$(CORE): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(DEV): $(CORE)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(CORE)  ## Set up, then train and recommend on built-in data.
	$(BIN)/transcf demo

SERVE := .venv/.serve
$(SERVE): $(CORE)
	$(BIN)/python -m pip install --quiet --editable '.[serve]'
	@touch $@

demo-serve: $(SERVE)  ## Set up, then serve a model of generated data with generated titles on loopback.
	$(BIN)/transcf serve --demo

test: lint  ## Set up, then lint, check types and run the tests.
	$(BIN)/python -m pytest -n 2 --dist loadfile

coverage: $(DEV)  ## The tests once more, slower, with the share of lines that they run.
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term:skip-covered

fuzz: $(DEV)  ## 100,000 hostile cases, new ones each time, in bounded memory; says what came of them.
	TRANSCF_FUZZ=100000 $(BIN)/python -m pytest tests/hostile -p no:xdist --capture=sys

browser:  ## A browser for the tests of pages: Debian's Chromium, unless there is one.
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium; } || \
			echo "apt-get could not install Chromium: tests that open pages are skipped."; \
	else \
		echo "Install Chromium by hand (apt-get and root are needed here): tests that open pages are skipped."; \
	fi

DOCS := .venv/.docs
$(DOCS): $(CORE)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

docs: $(DOCS)  ## Build the documentation into site/; warnings are errors.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebooks: $(DEV)  ## Run the notebooks of the documentation; a failing cell is an error.
	@for notebook in docs/notebooks/*.ipynb; do $(BIN)/jupyter execute $$notebook || exit 1; done

dist: $(DEV)  ## Build sdist and wheel, then test the wheel in clean environments of every Python that is here.
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python tools/check_wheel.py

docs-tables: $(DEV)  ## Write the tables of README and docs from docs/results.
	$(BIN)/python docs/tables.py

setup: $(DEV)  ## Create .venv with everything for development.

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)  ## Every benchmark, one table each.
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# RecBole wants older libraries than ours: the peer has an environment of its own.
.venv-recbole: benchmarks/_recbole_peer.py
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet recbole==1.2.1 torch==2.13.0 'setuptools<81' 'numpy<2' 'scipy<1.13' 'pandas<2.2'
	@touch $@

bench-baselines: $(DEV) .venv-recbole  ## The baselines' speed against implicit, RecBole and exact solvers.
	$(BIN)/python benchmarks/baselines.py --recbole-python .venv-recbole/bin/python

study-paper-core: $(CORE)  ## TransCF by the paper's protocol, five seeds, next to the paper's figures.
	$(BIN)/transcf study paper-core

study-paper-grid: $(DEV)  ## Settings around the presets `paper`, on validation data.
	$(BIN)/transcf study paper-grid

study-paper-baselines: $(DEV)  ## The paper's seven baselines by its protocol, five seeds, next to its figures.
	$(BIN)/transcf study paper-baselines

study-full-ranking: $(DEV)  ## Full ranking in time order, all with the same budget, without and with times.
	$(BIN)/transcf study full-ranking

study-times: $(CORE)  ## What weights of events and trend give to EASE, ItemKNN and TransCF on MovieTweetings.
	$(BIN)/transcf study times

study-mixture: $(CORE)  ## The mixture with its defaults, and without translations, three seeds.
	$(BIN)/transcf study mixture

study-translations: $(CORE)  ## Every variant of TransCF, and the mixture, three seeds.
	$(BIN)/transcf study translations

study-defaults: $(CORE)  ## How TransCF's defaults were chosen, on validation data.
	$(BIN)/transcf study defaults

clean:
	rm -rf .venv .venv-recbole .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist site
	find . -name __pycache__ -prune -exec rm -rf {} +
