# The same commands as CI. `make train` and `make test` do all set-up on a fresh machine.
PYTHON ?= python3
# Optional parts to install and test as well, such as EXTRAS=torchrl,sb3.
EXTRAS ?=
# What PyTorch to install where one of them needs it.
TORCH  ?= torch
VENV   := .venv
BIN    := $(VENV)/bin
TASK   ?= gym/half-cheetah
extras  = $(if $(EXTRAS),$(COMMA)$(EXTRAS))
COMMA  := ,
torch   = $(if $(or $(findstring torchrl,$(EXTRAS)),$(findstring sb3,$(EXTRAS))),$(TORCH))
# Other extras, another stamp: what they need is installed then.
INSTALLED = $(VENV)/.installed$(subst $(COMMA),-,$(extras))

# dm_control's own environments load with MuJoCo 3 alone: tests against them, and against Playground's
# tasks, which need more libraries, have a home of their own.
PARITY  := .parity-venv
# In a variable, since a comma would end an argument of `call`.
for_parity = brax,robots
# What somebody has who installs the wheel.
NEWCOMER := .newcomer-venv
DURATIONS ?= 15
# Of cases and of long tests, those whose turn it is, others each day; empty: all of them.
TURN     ?= $(shell date +%-j)
export TURN
export WORLDLINE_TURN = $(TURN)
pytest   = $(BIN)/python -m pytest -n auto --dist loadfile --durations $(DURATIONS)
# Installs into an environment: quickly with uv, or as pip is set up here if uv cannot.
install  = $(1)/bin/python -m pip install --quiet uv && \
	{ $(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2) || \
	$(1)/bin/python -m pip install --quiet $(2); }

.PHONY: help train test fast part core nightly parity newcomer check format bench docs build clean

help:
	@echo "make train    install, then train $(TASK) and show the result"
	@echo "make test     install, then run the tests of today's turn (TURN= for all of them)"
	@echo "make nightly  every test there is, for hours"
	@echo "make parity   compare suite/* with dm_control, playground/* with Playground, on MuJoCo 3.17"
	@echo "make check    lint, format check and strict types"
	@echo "make bench    every published figure, against its peers (long)"
	@echo "make docs     the documentation, as a site in site/"
	@echo "make build    build the wheel, and install it in an environment of its own"
	@echo "make newcomer run the README and the tutorial with the wheel alone"

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(if $(torch),$(BIN)/python -m pip install --quiet $(torch))
	$(call install,$(VENV),--editable '.[dev$(extras)]')
	@# On Python 3.13 without its dependencies, one of which has no wheel there; nothing here needs it.
	$(BIN)/python -m pip install --quiet --no-deps 'dm-control>=1.0.50'
	@# gymnax asks for a Gymnasium of before; see docs/guides/gymnax.md.
	$(if $(findstring gymnax,$(EXTRAS)),$(BIN)/python -m pip install --quiet --no-deps 'gymnax>=1.0')
	@touch $@

train: $(INSTALLED)
	$(BIN)/worldline train $(TASK)

test: fast
	$(pytest) -m "slow and not exhaustive"

fast: $(INSTALLED)
	$(pytest) -m "not slow and not exhaustive"

# One part in PARTS of the engines' and tasks' exhaustive tests, another one each day.
PARTS ?= 288
PART  ?= $(shell expr $$(date +%j | sed 's/^0*//') % $(PARTS))
part: $(INSTALLED)
	WORLDLINE_PART=$(PART)/$(PARTS) $(pytest) -m "exhaustive and not slow"

# The fast tests without extras, in an environment of their own: of one file in FILES, others each day.
CORE        := .core-venv
CORE_PYTHON ?= $(PYTHON)
FILES       ?= 16
FILE        ?= $(shell expr $$(date +%j | sed 's/^0*//') % $(FILES))
core:
	WORLDLINE_FILES=$(FILE)/$(FILES) $(MAKE) fast VENV=$(CORE) PYTHON=$(CORE_PYTHON) EXTRAS=

nightly: TURN =
nightly: test parity
	$(MAKE) core FILES=1
	WORLDLINE_ELSEWHERE=1 $(MAKE) fast
	$(PARITY)/bin/python -m pytest -n auto --dist loadgroup -m exhaustive tests/parity
	$(PARITY)/bin/python -m pytest -n auto tests/physics/test_every_field.py -k "native or mjx"
	$(pytest) -m exhaustive
	$(BIN)/python tests/attack.py
	$(MAKE) newcomer WALK=--full

$(PARITY)/.installed: pyproject.toml
	$(PYTHON) -m venv $(PARITY)
	$(call install,$(PARITY),mujoco==3.17.0 dm-control==1.0.50 mujoco-mjx==3.17.0 flax \
		ml-collections pytest pytest-xdist hypothesis --editable '.[$(for_parity)]')
	@# Its code alone: no other simulators and learners, which the tests do not import.
	$(call install,$(PARITY),--no-deps playground==0.2.0)
	@touch $@

parity: $(PARITY)/.installed
	$(PARITY)/bin/python -m pytest -n auto --dist loadgroup --durations 10 -m "not exhaustive" \
		tests/parity

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/worldline bench step
	$(BIN)/worldline bench train

docs: $(INSTALLED)
	$(call install,$(VENV),--editable '.[docs]')
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/check_site.py site

build: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv --clear $(NEWCOMER)
	$(call install,$(NEWCOMER),dist/*.whl)

# The README and the first pages as somebody runs them who has the wheel alone; WALK=--full: with
# their own numbers of steps.
WALK ?=
newcomer: build
	PYTHONPATH=tests $(BIN)/python tests/newcomer/walk.py $(NEWCOMER)/bin/python $(WALK)

clean:
	rm -rf $(VENV) $(CORE) $(PARITY) $(NEWCOMER) dist site runs
