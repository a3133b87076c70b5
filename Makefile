# make help says what there is. Everything is built into .venv and the user's cache; nothing needs input.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup system compiled check format fix lint types layers test broad soak pairs faults kills fuzz compat dist demo pictures bench golden docs clean

PYTHON ?= python3
# Where pip finds a CPU build of torch, if its own configuration does not lead there.
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

# program=package: what must be there, and the Debian package that brings it
PROGRAMS := g++=g++ dockerd=docker.io mmdebstrap=mmdebstrap ip=iproute2 nft=nftables tmux=tmux zstd=zstd \
	rsvg-convert=librsvg2-bin ssh-keygen=openssh-client bindfs=bindfs

help: ## Say what each target does.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: system $(INSTALLED) ## Make .venv, install what is missing, build the native recorder and CRIU. Quick when done.
	@$(BIN)/prismdbg setup

system:
	@export PATH="$$PATH:/usr/sbin:/sbin"; missing=(); \
	for pair in $(PROGRAMS); do command -v "$${pair%%=*}" >/dev/null || missing+=("$${pair#*=}"); done; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv); \
	$(PYTHON) -c 'import os, sysconfig as s; open(os.path.join(s.get_paths()["include"], "Python.h"))' 2>/dev/null \
		|| missing+=(python3-dev); \
	if [ $${#missing[@]} = 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "missing: $${missing[*]} (as root on Debian: apt-get install $${missing[*]}); going on without" >&2; exit 0; fi; \
	echo "installing with apt-get: $${missing[*]}" >&2; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq >&2; \
	apt-get install -y -qq --no-install-recommends "$${missing[@]}" >&2

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: resolving it together with the rest may bring gigabytes of CUDA packages.
$(INSTALLED): pyproject.toml | system $(VENV)/bin/python
	$(BIN)/python -c 'import torch, sys; sys.exit(not torch.__version__.startswith("2.13."))' 2>/dev/null \
		|| $(BIN)/pip install -q $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==2.13.0'
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

check: format lint types layers test ## The gate: all of the following, in this order.

format: $(INSTALLED) ## Is every file formatted?
	$(BIN)/ruff format --check .

lint: $(INSTALLED) ## ruff.
	$(BIN)/ruff check .

types: $(INSTALLED) ## mypy --strict.
	$(BIN)/mypy

layers: $(INSTALLED) ## May every import be? (import-linter)
	$(BIN)/lint-imports

# Integration tests first, in their own order: what is short fills the end.
TESTS := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Where Python is told to keep no bytecode, each of some thousand processes would compile the same modules anew.
compiled: setup
	@$(BIN)/python -m compileall -q prismdbg tui images tests/integration

test: compiled ## All tests but the broad ones, files side by side; what a test lacks on this machine is its reason for being skipped.
	@$(TESTS) -m "not broad" $(ARGS) || { code=$$?; [ $$code = 1 ] || exit $$code; \
		echo "=== some tests failed: these once more, with the machine to themselves; what passes now is unstable, mend it ==="; \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(ARGS); }

broad: compiled ## What a test of `make test` says once, on every other runtime, recorder and program (tests/broad.py).
	@$(TESTS) -m broad $(ARGS)

soak: setup ## The main job N times in a row, by default 40: record, capture, replay; ends at the first failure.
	$(BIN)/python tests/soak.py $(or $(N),40)

pairs: setup ## 20 pairs of captures of one rank at the same time: one is refused, the other one's capsule is whole.
	CAPTURE_PAIRS=20 $(BIN)/python -m pytest -x -q tests/integration/record/test_chain_concurrent.py

faults: setup ## N faults, by default 200, injected into recorded jobs: they end as bare ones. SEED repeats a choice.
	$(BIN)/python -m tests.faults $(or $(N),200) $(if $(SEED),--seed $(SEED))

kills: setup ## N processes killed at random moments, by default 100, in containers, too: nothing complete is lost, nothing is left behind.
	$(BIN)/python tests/kills.py $(or $(N),100) $(if $(SEED),--seed $(SEED))

fuzz: N = 10000
fuzz: setup ## N hostile inputs, by default 10,000, to every command that reads a capsule (ARGS="--seed S": the same again).
	$(BIN)/python -m tests.fuzz $(N) $(ARGS)

fix: $(INSTALLED) ## Format, and mend what ruff can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(INSTALLED) ## Write the frozen outputs in tests/golden again.
	$(BIN)/python -m pytest -q --update-golden tests/unit/cli/test_cli_golden.py tests/unit/script/test_script_reader.py \
		tests/integration/replay/test_wire_golden.py

compat: setup ## Another torch (TORCH=2.14.1) in a venv of its own under .compat: the tour, the chain, the demo. Gigabytes.
	$(BIN)/python tests/compat.py $(or $(TORCH),$(error say which: make compat TORCH=2.14.1))

dist: setup ## An sdist and a wheel in ./dist, each tried in a fresh venv, without a compiler and with one.
	$(BIN)/python tests/dist.py

demo: setup ## The main job from end to end, in a few minutes.
	$(BIN)/python examples/demo/demo.py

pictures: setup ## The walkthroughs' pictures anew (OF="nan hang": only these).
	$(BIN)/python examples/pictures.py $(OF)

bench: setup ## Measure what the README quotes.
	$(BIN)/python -m tests.bench

# --quiet would hide the warnings from --strict, too.
docs: $(INSTALLED) ## The documentation as a site in ./site; every link and anchor is checked. Needs no network when done once.
	@$(BIN)/python -c 'import material' 2>/dev/null || $(BIN)/pip install -q -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html; the search needs a server: python3 -m http.server --directory site"

clean: ## Remove what was built here, but not .venv and not the cache.
	rm -rf dist demo-run site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
