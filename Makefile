# The same commands as CI. `make train` and `make test` do all set-up on a fresh machine.
PYTHON ?= python3
EXTRAS ?=
VENV   := .venv
BIN    := $(VENV)/bin
TASK   ?= gym/half-cheetah
extras  = $(if $(EXTRAS),$(COMMA)$(EXTRAS))
COMMA  := ,

.PHONY: help train test check format bench docs build clean

help:
	@echo "make train    install, then train $(TASK) and show the result"
	@echo "make test     install, then run every test"
	@echo "make check    lint, format check and strict types"
	@echo "make bench    every published figure, against its peers (long)"
	@echo "make docs     the documentation, as a site in site/"
	@echo "make build    build the wheel and smoke-test it in an environment of its own"

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev$(extras)]'
	@touch $@

train: $(VENV)/.installed
	$(BIN)/worldline train $(TASK)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not slow"
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed
	$(BIN)/worldline bench step
	$(BIN)/worldline bench train

docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

build: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --quiet --outdir dist
	$(PYTHON) -m venv --clear .build-venv
	.build-venv/bin/python -m pip install --quiet dist/*.whl
	.build-venv/bin/worldline list

clean:
	rm -rf $(VENV) .build-venv dist site runs
