# From a fresh clone: `make demo` or `make test`. Needs Python 3.11+, make and a package index; installs into .venv only.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first interpreter that is new enough; `make PYTHON=... <target>` chooses another.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo $$candidate; break; fi; done)

# An environment that wants no compiled modules written would have each of the hundreds of processes of a test run compile all again.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
INSTALLED := .venv/.installed
# The seed of `make test-nightly`; printed, so that a run can be repeated with `make test-nightly SEED=...`.
SEED ?= $(shell date +%Y%m%d)
# `make reliability STANDBY=--standby`: with a second process of each tier.
STANDBY ?=
# Of `make outage`, in seconds; after 2,400 tasks stop (`lease.tasks_stop_after_real_s`).
OUTAGE_S ?= 1980
# What `make demo` hands to `topmast demo`, for example DEMO_FLAGS='--trace jobs.csv --json'.
DEMO_FLAGS ?=
# What the test targets hand to pytest, for example PYTEST_FLAGS='tests/house -x'.
PYTEST_FLAGS ?=
# In how many processes `make test` runs the tests, whole files each; 0 runs them in its own. More than processors: many tests wait.
TEST_WORKERS ?= 3

.PHONY: help
help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: install
install: $(INSTALLED) ## Make .venv and install Topmast and its tools into it

# The stamp is written last: an installation that broke off is done again, one that stands is not.
$(INSTALLED): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "Topmast needs Python 3.11 or newer, and none was found as python3.11 ... python3 or python." >&2; \
		echo "Install one, or say where it is: make PYTHON=/path/to/python3 $(or $(MAKECMDGOALS),install)" >&2; \
		exit 1; \
	fi
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
		|| $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	$(BIN)/python -m services.data_placement.kernels & $(BIN)/python -m services.runtime.kernels && wait $$!
	@touch $@

.PHONY: demo
demo: $(INSTALLED) ## Run the main job: a trace through three regions, and real training
	@$(BIN)/topmast demo $(DEMO_FLAGS)

# The closing line of pytest is the last line that is printed. What comes before it uses one processor each: two at a time.
.PHONY: test
test: $(INSTALLED) ## Lint, types, import arrows, stale code, and all tests
	@$(MAKE) --no-print-directory --jobs=2 lint types arrows protos-check client-check
	@$(BIN)/python -m pytest --numprocesses=$(TEST_WORKERS) --dist=loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

.PHONY: lint
lint: $(INSTALLED) ## Check style, the bans of the core (ruff), and what is unsafe (bandit, pip-audit)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'" >&2; exit 1; }
	@$(BIN)/bandit --quiet --configfile pyproject.toml --recursive services topmast topmast_server scripts
	@$(BIN)/python -m scripts.audit_dependencies

.PHONY: format
format: $(INSTALLED) ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: types
types: $(INSTALLED) ## Check types (mypy, strict)
	@$(BIN)/mypy

.PHONY: arrows
arrows: $(INSTALLED) ## Check who may import whom (import-linter)
	@$(BIN)/lint-imports --no-cache

.PHONY: protos
protos: $(INSTALLED) ## Generate topmast/v1 from protos/
	@$(BIN)/python -m scripts.generate_protos

.PHONY: protos-check
protos-check: $(INSTALLED) ## Fail when topmast/v1 is stale
	@$(BIN)/python -m scripts.generate_protos --check

.PHONY: client
client: $(INSTALLED) ## Generate the blocking client from the one for asyncio
	@$(BIN)/python -m scripts.generate_sync_client

.PHONY: client-check
client-check: $(INSTALLED) ## Fail when the blocking client is stale
	@$(BIN)/python -m scripts.generate_sync_client --check

.PHONY: chaos
chaos: $(INSTALLED) ## Long runs with kills and losses
	@$(BIN)/python -m pytest -m chaos $(PYTEST_FLAGS)

.PHONY: outage
outage: $(INSTALLED) ## Take the database and the schedulers away for OUTAGE_S seconds (half an hour and three minutes), and look at what ran
	@$(BIN)/python -m pytest tests/chaos/test_outages.py -m chaos --outage-s $(OUTAGE_S) $(PYTEST_FLAGS)

.PHONY: reliability
reliability: $(INSTALLED) ## Inject 200 faults into a live service (SEED=...), and write docs/reliability.md
	@$(BIN)/python -m scripts.results.reliability --seed $(SEED) $(STANDBY)

.PHONY: compose-test
compose-test: $(INSTALLED) ## Three regions in docker compose: one is cut off, lost, and comes back (needs Docker)
	@$(BIN)/python -m scripts.compose_test

.PHONY: test-nightly
test-nightly: $(INSTALLED) ## A long search for counterexamples, from a new seed each day
	@echo "seed $(SEED); repeat with: make test-nightly SEED=$(SEED)"
	@$(BIN)/python -m pytest -m "not chaos" --timeout=3600 \
		--hypothesis-profile=nightly --hypothesis-seed=$(SEED) --seed=$(SEED) $(PYTEST_FLAGS)

.PHONY: benchmarks
benchmarks: $(INSTALLED) ## Measure against the budgets; one JSON object per measurement
	@$(BIN)/python -m benchmarks

.PHONY: load
load: $(INSTALLED) ## Load a live service by clients on Ray; one JSON object per scenario, and half an hour of soak
	@$(BIN)/python -m benchmarks.load $(SCENARIOS)

.PHONY: results-mast
results-mast: $(INSTALLED) ## Compare MAST with its alternatives on the ITP trace, and write docs/results/mast.md
	@$(BIN)/python -m scripts.results.mast

.PHONY: results-hived
results-hived: $(INSTALLED) ## Show sharing safety on the Philly trace, and write docs/results/hived.md
	@$(BIN)/python -m scripts.results.hived

.PHONY: results-lyra
results-lyra: $(INSTALLED) ## Show Lyra on the Venus trace beside a real inference load, and write docs/results/lyra.md
	@$(BIN)/python -m scripts.results.lyra

.PHONY: results-tiresias
results-tiresias: $(INSTALLED) ## Compare Tiresias with other schedulers on two traces, and write docs/results/tiresias.md
	@$(BIN)/python -m scripts.results.tiresias

.PHONY: results-synergy
results-synergy: $(INSTALLED) ## Share out CPUs and memory on derived traces, and write docs/results/synergy.md
	@$(BIN)/python -m scripts.results.synergy

.PHONY: results-hot-region
results-hot-region: $(INSTALLED) ## A filled fleet with a hot region, over ten seeds, and write docs/results/hot-region.md
	@$(BIN)/python -m scripts.results.hot_region

.PHONY: results-tetris
results-tetris: $(INSTALLED) ## Place the tables of generated warehouses, and write docs/results/tetris.md
	@$(BIN)/python -m scripts.results.tetris

.PHONY: constraints
constraints: ## Pin the versions of a new, unconstrained installation
	@test -n "$(PYTHON)" || { echo "Topmast needs Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -m scripts.pin_versions

.PHONY: clean
clean: ## Remove .venv and everything that can be made again
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
