# One door for people and CI.  A fresh machine needs Python >= 3.11 (with venv and pip) and make; `make` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
STAGE := out/package
, := ,
LAYERS := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
MODULES := $(wildcard *.py) $(foreach layer,$(LAYERS),$(shell find $(layer) -name '*.py'))

# The first interpreter that runs, is new enough and can make a virtual environment (version managers leave shims that
# cannot run, and Debian ships a Python without ensurepip).  3.11 first: it is the version that the suite is run on most.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	"$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo "$$python" && break; done)
# Tests start hundreds of processes, each of which would translate the package again.
unexport PYTHONDONTWRITEBYTECODE
TESTFLAGS ?= -m "not slow" --hypothesis-profile=quick

.PHONY: help env demo test lint ruff types imports docstrings stage docs pictures notebooks bench gpu wheel lowest clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.ready ## make the virtual environment .venv with everything that the other targets need

# $(call install,EXTRAS) makes the environment, or adds to it; Python translates modules when they are imported first.
define install
@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with ensurepip found; name one: make env PYTHON=/path/to/python" >&2; exit 1; }
@echo "installing into $(VENV), which takes a minute or two"
"$(PYTHON)" -m venv $(VENV)
$(BIN)/python -m pip install -qq --no-compile -c constraints.txt -e '.[$(1)]'
@touch $@
endef

$(VENV)/.ready: pyproject.toml constraints.txt
	$(call install,torch$(,)jax$(,)plot$(,)report$(,)explore$(,)dev)

$(VENV)/.demo: pyproject.toml constraints.txt
	$(call install,torch)

demo: $(if $(wildcard $(VENV)/.ready),env,$(VENV)/.demo) ## plan, prove and run an allgather; leaves its files in out/demo
	$(BIN)/python examples/demo.py --output out/demo

test: env ## run the tests, doctests and documentation; TESTFLAGS= includes the slow ones and draws all examples
	$(BIN)/pytest -n auto --maxprocesses 2 --dist loadfile --no-loadscope-reorder $(TESTFLAGS)

lint: ruff types imports docstrings ## check style, formatting, types, import direction and docstrings

ruff: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The repository root is the package, so mypy, import-linter and mkdocstrings would not find `collopt` under its name:
# they look at a copy that has only what a wheel has.
stage:
	@rm -rf $(STAGE) && mkdir -p $(STAGE)/collopt
	@cp -R $(LAYERS) $(wildcard *.py) py.typed $(STAGE)/collopt

types: env stage
	cd $(STAGE) && MYPYPATH=. $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml \
		--cache-dir $(CURDIR)/.mypy_cache -p collopt

imports: env stage
	cd $(STAGE) && $(CURDIR)/$(BIN)/lint-imports --no-logo --config $(CURDIR)/pyproject.toml

docstrings: env
	@echo "numpydoc lint of $(words $(MODULES)) modules"
	@$(BIN)/numpydoc lint --config . $(MODULES)

docs: $(VENV)/.docs stage ## build the documentation into site/, refusing broken links
	$(BIN)/mkdocs build --strict

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[docs]'
	@touch $@

pictures: env ## draw the pictures of the documentation again
	$(BIN)/python tests/redraw_pictures.py
	$(BIN)/python tests/redraw_screens.py

notebooks: env ## run the notebooks of the documentation again
	$(BIN)/python tests/notebooks.py

bench: env ## run the benchmarks
	$(BIN)/python benchmarks/run.py

gpu: env ## run all that one CUDA device can show; with MSCCL++'s executor where its package is installed
	$(BIN)/python benchmarks/one_gpu.py

wheel: env ## build wheel and sdist into dist/, and use the wheel in an environment without the checkout
	.ci/wheel $(BIN)/python

lowest: pyproject.toml constraints-lowest.txt ## run the tests with the lowest versions that pyproject.toml allows
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with ensurepip found; name one: make lowest PYTHON=/path" >&2; exit 1; }
	"$(PYTHON)" -m venv out/lowest
	out/lowest/bin/python -m pip install -qq -c constraints-lowest.txt -e '.[torch,jax,plot,report,explore,dev]'
	NUMBA_CACHE_DIR=$(CURDIR)/out/lowest/kernels out/lowest/bin/pytest -n auto --maxprocesses 2 --dist loadfile $(TESTFLAGS)

clean: ## remove what the other targets made, except .venv
	rm -rf out site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
