# Two commands do everything, set-up included: `make demo` and `make test`. `make help` lists the rest.
# Set PYTHON to choose the interpreter, and PIP_* variables (pip's own) to choose where packages come from.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NOTEBOOK ?= notebooks/01-first-compile.ipynb
# Two workers with one thread each keep two cores busier than one worker with two threads.
PYTEST_ARGS ?= -n 2
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-nightly test-typescript coverage lint lint-python lint-typescript lab types explorer \
  explorer-figures labextension wheel audit release clean-install bench bench-gpu versions backends-table faults opdb \
  notebooks docs table clean distclean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 22

$(VENV)/bin/python:
	@$(PYTHON) scripts/check_machine.py
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch goes first and alone, so that the build named in constraints.txt is the one that is taken. What holds
# for the rest is kept in .torch: constraints.txt, but for Triton if this build of torch requires one itself.
OWN_TRITON := import importlib.metadata as m; print(*(r for r in m.requires("torch") if r.startswith("triton")))
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	@echo "Installing torch (a few hundred MB the first time)"
	@$(PIP_INSTALL) "$$(grep '^torch==' constraints.txt)" numpy
	@own=$$($(BIN)/python -c '$(OWN_TRITON)') && \
	  if [ -n "$$own" ]; then grep -v '^triton==' constraints.txt; else cat constraints.txt; fi > $@

$(VENV)/.jupyter: pyproject.toml $(VENV)/.torch
	@echo "Installing nbcompile and Jupyter"
	@HATCH_BUILD_NO_HOOKS=1 $(PIP_INSTALL) -c $(VENV)/.torch -e '.[jupyter]'
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.torch
	@echo "Installing nbcompile, Jupyter and the test tools"
	@HATCH_BUILD_NO_HOOKS=1 $(PIP_INSTALL) -c $(VENV)/.torch -e '.[jupyter,test]'
	@touch $@ $(VENV)/.jupyter

# The explorer, built by Node: the system's if it is new enough, else one from PyPI in .venv.
FRONTEND := $(BIN)/python scripts/frontend.py
NODE_MODULES := labextension/node_modules/.package-lock.json
TYPES := labextension/src/record/generated/classes.ts
EXPLORER := nbcompile/view/static/explorer.css
LABEXTENSION := labextension/dist/install.json
SCRIPTS := $(wildcard labextension/*.json labextension/*.cjs) $(shell find labextension/src labextension/style labextension/schema \
  -type f -not -path '*/generated/*' 2>/dev/null)

$(VENV)/.node: scripts/frontend.py | $(VENV)/bin/python
	@$(FRONTEND) tools
	@touch $@

$(NODE_MODULES): labextension/package-lock.json | $(VENV)/.node
	@$(FRONTEND) packages

out/schemas/.made: $(wildcard nbcompile/record/*.py nbcompile/record/*/*.py nbcompile/view/*.py nbcompile/view/*/*.py) scripts/schemas.py \
  | $(VENV)/.jupyter
	@$(BIN)/python scripts/frontend.py schemas
	@touch $@

# Most changes to those files leave a schema, and so its time, as it was: then nothing more is due.
SCHEMAS := $(patsubst %,out/schemas/%.schema.json,record scene)
$(SCHEMAS): out/schemas/.made ;

$(TYPES): $(SCHEMAS) labextension/scripts/types.mjs $(NODE_MODULES)
	@$(FRONTEND) types

$(EXPLORER): $(SCRIPTS) $(TYPES) $(addprefix labextension/scripts/,bundle.mjs notices.mjs plotly-parts.json)
	@$(FRONTEND) explorer

$(LABEXTENSION): $(SCRIPTS) $(TYPES)
	@$(FRONTEND) labextension

# JupyterLab finds the extension through a link, so that what is built anew is there after a reload.
LINK := $(VENV)/share/jupyter/labextensions/nbcompile
$(VENV)/.linked: $(LABEXTENSION)
	@rm -rf $(LINK) && mkdir -p $(dir $(LINK)) && ln -s $(CURDIR)/labextension/dist $(LINK)
	@touch $@

types: $(TYPES)  ## TypeScript types of the record

explorer: $(EXPLORER)  ## the explorer for pages and widgets, into nbcompile/view/static/

labextension: $(VENV)/.linked  ## the JupyterLab extension, linked into .venv

setup: $(VENV)/.test $(EXPLORER) $(VENV)/.linked  ## .venv with nbcompile, Jupyter, the test tools and the explorer, and no more

demo: $(VENV)/.jupyter $(EXPLORER)  ## run notebooks/01-first-compile.ipynb and leave it, a page and its explorer in out/
	@$(BIN)/python scripts/check_machine.py
	@$(BIN)/python scripts/demo.py $(NOTEBOOK)

lint: lint-python lint-typescript  ## ruff, mypy, tsc and eslint

lint-python: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-typescript: $(TYPES)
	$(FRONTEND) run check
	$(FRONTEND) run lint

test-typescript: $(TYPES)
	$(FRONTEND) run test

# In turns of two jobs: pip beside npm, then the linters and vitest beside the builds, then pytest.
test:  ## everything CI runs: the linters, vitest, pytest
	@$(MAKE) --no-print-directory -j2 $(VENV)/.test $(NODE_MODULES)
	@$(BIN)/python scripts/check_machine.py --browser
	@$(MAKE) --no-print-directory -j2 -Otarget lint test-typescript $(EXPLORER) $(VENV)/.linked
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest $(PYTEST_ARGS)

test-nightly:  ## the same, and the tests marked nightly: more of what `make test` has one of each kind of
	@$(MAKE) --no-print-directory test PYTEST_ARGS="$(PYTEST_ARGS) --nightly"

COVERAGE := $(BIN)/python -m coverage
coverage: $(VENV)/.test $(EXPLORER) $(VENV)/.linked  ## how much of the code the tests reach, at least 90% of lines; slower than `make test`
	@rm -rf out/coverage && mkdir -p out/coverage
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(COVERAGE) run -m pytest $(PYTEST_ARGS); status=$$?; \
	  $(COVERAGE) combine -q && $(COVERAGE) report && exit $$status

lab: $(VENV)/.jupyter $(EXPLORER) $(VENV)/.linked  ## open JupyterLab on the notebooks
	@$(BIN)/python scripts/check_machine.py
	$(BIN)/python -m jupyterlab --notebook-dir=notebooks $(LAB_ARGS)

explorer-figures: $(EXPLORER)  ## measure the explorer in a browser, into docs/explorer-figures.md
	$(BIN)/python scripts/explorer/figures.py > docs/explorer-figures.md

wheel: $(EXPLORER) $(LABEXTENSION)  ## a wheel with the explorer and the extension in it, into dist/
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --wheel-dir dist .

audit: $(VENV)/.test $(NODE_MODULES)  ## known faults of our dependencies, and doubtful places in our code: SECURITY.md
	$(BIN)/python scripts/audit.py $(ARGS)

release: $(VENV)/.test $(EXPLORER) $(LABEXTENSION)  ## build, check and tag a release; without ARGS=--tag nothing is tagged, and never pushed
	$(BIN)/python scripts/release.py $(ARGS)

clean-install: $(EXPLORER) $(LABEXTENSION)  ## the wheel as a user installs it: in new environments, in a browser, without a compiler
	$(BIN)/python scripts/clean_install.py $(ARGS)

bench: $(VENV)/.test  ## time nbcompile beside Inductor and eager
	$(BIN)/python scripts/bench.py $(BENCH_ARGS)

# On the GPU machine there may be nothing but a python3 with torch and Triton: then that one is used.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
GPU_PARTS := kernels.py linear_cross_entropy.py edits.py models.py "corpus.py run"

bench-gpu:  ## on a machine with a GPU: hold the GPU path to its goals, and print one table
	@for part in $(GPU_PARTS); do $(GPU_PYTHON) scripts/gpu/$$part --no-table $(BENCH_ARGS) || exit; done
	@$(GPU_PYTHON) scripts/gpu/table.py

versions: $(VENV)/.test $(EXPLORER) $(LABEXTENSION)  ## every version of torch, Triton and Python that is allowed, into README.md
	@$(BIN)/python -m pip install -qq uv
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/versions.py $(ARGS)

backends-table: $(VENV)/.test  ## every backend on twelve programs, into docs/backends.md
	$(BIN)/python scripts/backends_table.py $(BENCH_ARGS)

faults: $(VENV)/.test  ## provoke every fault of scripts/faults so often as its table says, into docs/faults.md
	@rm -f out/faults.jsonl
	$(BIN)/python scripts/faults/run.py --out out/faults.jsonl --write docs/faults.md $(ARGS)

opdb: $(VENV)/.test  ## run torch's own op database through nbcompile
	$(BIN)/python scripts/opdb.py $(OPDB_ARGS)

notebooks: $(VENV)/.test  ## write notebooks/*.ipynb anew from notebooks/*.py; ARGS="--run 06" runs one
	$(BIN)/python scripts/notebooks.py $(ARGS)
	$(BIN)/python scripts/badges.py

$(VENV)/.docs: pyproject.toml $(VENV)/.torch
	@echo "Installing nbcompile, Jupyter and what builds the documentation"
	@HATCH_BUILD_NO_HOOKS=1 $(PIP_INSTALL) -c $(VENV)/.torch -e '.[docs]'
	@touch $@ $(VENV)/.jupyter

docs: $(VENV)/.docs  ## build the documentation into out/docs, its examples run anew where the code has changed
	@$(BIN)/python scripts/check_machine.py
	@$(BIN)/python scripts/docs.py $(ARGS)

table: $(VENV)/.test  ## run the benchmark and put its figures into README.md
	@mkdir -p out
	$(BIN)/python scripts/bench.py --markdown $(BENCH_ARGS) > out/bench.md
	$(BIN)/python scripts/readme_table.py out/bench.md

clean:  ## remove what the other commands left, but for .venv and node_modules
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache
	rm -rf labextension/lib labextension/dist labextension/src/record/generated nbcompile/view/static
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean  ## remove .venv and node_modules as well
	rm -rf $(VENV) labextension/node_modules
