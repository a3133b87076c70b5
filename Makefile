# make help says what there is. Everything is built into .venv and the user's cache; nothing needs input.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup system compiled check format fix lint types layers test broad test-all soak pairs faults kills fuzz gpu compat lowest frameworks test-frameworks slurm dist vscode demo pictures bench golden docs man clean

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
	rsvg-convert=librsvg2-bin ssh-keygen=openssh-client bindfs=bindfs rsync=rsync
# Some tests start an ssh server or a registry of their own, a browser, podman, or a client of the debug adapter from npm.
# Whoever does not want these packages (two start a server, too, and one has 350 MB) sees them skipped.
ifdef CI
PROGRAMS += sshd=openssh-server chromium=chromium skopeo=skopeo podman=podman docker-registry=docker-registry mpirun=openmpi-bin
PROGRAMS += node=nodejs npm=npm zsh=zsh fish=fish groff=groff
endif

help: ## List all targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: system $(INSTALLED) ## Create .venv, install what is missing, build the native recorder and CRIU. Takes seconds the second time.
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
	export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	apt-get update -qq >&2; \
	apt-get install -y -qq --no-install-recommends "$${missing[@]}" >&2

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: resolving it together with the rest may bring gigabytes of CUDA packages.
$(INSTALLED): pyproject.toml | system $(VENV)/bin/python
	$(BIN)/python -c 'import torch, sys; sys.exit(not torch.__version__.startswith("2.13."))' 2>/dev/null \
		|| $(BIN)/pip install -q --no-compile $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==2.13.0'
	$(BIN)/pip install -q --no-compile -e '.[dev]'
	$(BIN)/pip install -q --no-compile --no-deps 'mlc-chakra==1.0.0'  # its dependencies bring JupyterLab, for a tool that no test uses
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib/python3.*/site-packages || true  # on all CPUs; templates fail
	@touch $@

check: format lint types layers test ## Run the gate: the next five targets, in this order.

format: $(INSTALLED) ## Check that every file is formatted.
	$(BIN)/ruff format --check .

lint: $(INSTALLED) ## Run ruff.
	$(BIN)/ruff check .

types: $(INSTALLED) ## Run mypy: --strict on the program; on the tests, that they call what is there.
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini

layers: $(INSTALLED) ## Check the layers: which package may import which (import-linter).
	$(BIN)/lint-imports

# Integration tests first, in their own order: what is short fills the end. One more than there are CPUs: tests also wait.
WORKERS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 1) + 1)))
TESTS := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Where Python is told to keep no bytecode, each of some thousand processes would compile the same modules anew.
compiled: setup
	@$(BIN)/python -m compileall -q prismdbg tui images tests/integration

# A test that passes only when it is run again is named in the last lines. It does not make the run fail, not in CI
# either: that machine is shared, and a bound that holds on a quiet one may be missed there. Mend it all the same.
test: compiled ## Run all tests except the broad ones, files in parallel. A skipped test names what this machine lacks.
	@$(TESTS) -m "not broad and not frameworks and not slurm" $(ARGS) || { code=$$?; [ $$code = 1 ] || exit $$code; \
		echo "=== some tests failed: these once more, with the machine to themselves; what passes now is unstable ==="; \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --name-unstable $(ARGS); }

broad: compiled ## Run the tests of `make test` on all other runtimes, recorders and programs (tests/broad.py).
	@$(TESTS) -m broad $(ARGS)

# Each in turn, also after one has failed: the last lines say which did.
test-all: ## Run `make test`, `make broad` and `make slurm`: the full matrices of this torch without a GPU, in a few hours.
	@$(MAKE) --keep-going --no-print-directory test broad slurm

soak: setup ## Record, capture and replay the main job N times (default 40); stop at the first failure.
	$(BIN)/python tests/soak.py $(or $(N),40)

pairs: setup ## Capture one rank twice at the same time, 20 times: one capture is refused, the other one is complete.
	CAPTURE_PAIRS=20 $(BIN)/python -m pytest -x -q tests/integration/record/test_chain_concurrent.py

faults: setup ## Inject N faults (default 200) into recorded jobs, which must end like bare ones. SEED repeats a choice.
	$(BIN)/python -m tests.faults $(or $(N),200) $(if $(SEED),--seed $(SEED))

kills: setup ## Kill N processes (default 100) at random moments: nothing complete is lost, and nothing is left over.
	$(BIN)/python tests/kills.py $(or $(N),100) $(if $(SEED),--seed $(SEED))

fuzz: N = 10000
fuzz: setup ## Give N hostile inputs (default 10,000) to every command that reads a capsule. ARGS="--seed S" repeats a choice.
	$(BIN)/python -m tests.fuzz $(N) $(ARGS)

# Not only in .venv: a machine with a GPU may have a torch of its own and no network (make gpu GPU_PYTHON=python3).
GPU_PYTHON ?= $(BIN)/python
gpu: ## Check and measure what needs one GPU, in less than ten minutes; writes docs/gpu-results.md.
	$(GPU_PYTHON) -m tests.gpu $(ARGS)

fix: $(INSTALLED) ## Format the files and apply the automatic fixes of ruff.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(INSTALLED) ## Write the frozen outputs in tests/golden again.
	$(BIN)/python -m pytest -q --update-golden tests/unit/cli/test_cli_golden.py tests/unit/script/test_script_reader.py \
		tests/integration/replay/test_wire_golden.py

compat: setup ## Test another torch (TORCH=2.14.1), also with another PYTHON, in a virtual environment under .compat. Needs gigabytes.
	$(BIN)/python tests/compat.py $(or $(TORCH),$(error say which: make compat TORCH=2.14.1)) --python $(PYTHON)

lowest: setup ## Run the unit tests with the lowest versions that pyproject.toml allows. ARGS are pytest's.
	@$(BIN)/python tests/lowest.py $(ARGS)

frameworks: setup ## Record, capture, replay and emulate the programs of examples/frameworks with the newest frameworks. Needs gigabytes.
	$(BIN)/python tests/frameworks/table.py

test-frameworks: frameworks ## Another name of `make frameworks`.

# Nothing of it is started on this machine: the tests run it in namespaces of their own.
slurm: compiled ## Test jobs of two nodes under a real Slurm (Debian: munge, slurmctld, slurmd), which it installs.
	@$(MAKE) --no-print-directory system PROGRAMS="munged=munge slurmctld=slurmctld slurmd=slurmd sbatch=slurm-client"
	@$(BIN)/python -m pytest tests/integration/slurm $(ARGS)

dist: setup ## Build an sdist and a wheel in ./dist, and test each in a new virtual environment, with and without a compiler.
	$(BIN)/python tests/dist.py

vscode: ## Pack the extension for Visual Studio Code into ./dist.
	@$(PYTHON) vscode/build.py dist

demo: setup ## Run the main job from end to end, in a few minutes.
	$(BIN)/python examples/demo/demo.py

pictures: setup ## Draw the pictures of the walkthroughs again (OF="nan hang": only these).
	$(BIN)/python examples/pictures.py $(OF)

bench: setup ## Measure the figures of docs/measurements.md.
	$(BIN)/python -m tests.bench

# --quiet would hide the warnings from --strict, too.
docs: $(INSTALLED) ## Build the documentation as a site in ./site and check every link and anchor. Needs the network only once.
	@$(BIN)/python -c 'import material' 2>/dev/null || $(BIN)/pip install -q -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html; the search needs a server: python3 -m http.server --directory site"

man: $(INSTALLED) ## Write a man page for each command into ./man: man -l man/prismdbg.1
	@$(BIN)/python docs/hooks/man_pages.py man

clean: ## Remove build results, but not .venv and not the cache.
	rm -rf dist demo-run site man .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
