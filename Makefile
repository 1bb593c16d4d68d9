# Every command of the project. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-tree check unit test test-oldest soak bench tables plots pictures lint format reference docs kit lock clean java archive servers
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# What a caller may set: make test SEED=7 ARGS='-k session', make soak EXAMPLES=5000 SOAK=300, make bench QUICK=1 RECORD=1
# Many tests wait for processes and servers, so there are more workers than cores.
WORKERS ?= 5
EXAMPLES ?= 2000
KILLS ?= 100
FAULTS ?= 300
FUZZ ?= 600
SQL ?= 100000
SOAK ?= 7200
SCHEDULES ?= 100000
ARGS ?=
QUICK ?=
RECORD ?=
# Every test whose schedules follow CATCHMENT_SCHEDULES (tests/schedules.py).
SCHEDULED = $(shell grep -lE '^from schedules import .*(share|SCHEDULES)' tests/*.py)
# Tests start hundreds of processes, which would all compile what they import: compiled files are kept,
# even where the environment asks for none.
test soak unit: export PYTHONDONTWRITEBYTECODE =
# A change is judged by the same examples every time; the soak draws new ones, and prints its seed.
NOW := $(shell date +%s)
test: SEED ?= 1
soak: SEED ?= $(NOW)
SEEDS = --randomly-seed=$(SEED) --hypothesis-seed=$(SEED)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## only the environment (.venv), from requirements.lock

$(READY): requirements.lock pyproject.toml src/catchment/native/kernels.c
	@scripts/setup $(VENV)
	@touch $@

java:
	@scripts/check-java

# Spark starts some dozens of times in tests: sooner, with an archive of its classes.
archive: $(READY) java
	@$(BIN)/python -m catchment.spark.class_archive

# Kafka, PostgreSQL, Mosquitto and a browser, for tests against real ones; what cannot be had is said.
servers:
	@scripts/servers

demo: $(READY) java ## stream ten million events through a hundred queries on Spark, against Spark itself
	@$(BIN)/catchment demo $(ARGS)

demo-tree: $(READY) ## run a tree of nodes here, kill a site on the way, and show that nothing is lost
	@$(BIN)/catchment demo-tree $(ARGS)

test: $(READY) java archive servers ## all tests but those marked soak, and doctests, in an order drawn by SEED (SEED=, ARGS=)
	$(BIN)/pytest -n $(WORKERS) $(SEEDS) $(ARGS)

# Another Spark is some hundreds of megabytes, and Delta and Iceberg come from Maven Central.
test-oldest: $(READY) java ## tests on the oldest Spark that works, with Delta, Iceberg and a client without Java
	@scripts/test-oldest

# What needs neither Spark nor a server and starts no process, with fewer examples; types are checked beside it.
check: ## the fast lane: linters, types, unit and property tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint unit

unit: $(READY)
	CATCHMENT_EXAMPLES=10 CATCHMENT_SCHEDULES=160 $(BIN)/pytest -q -n 2 -m 'not spark and not servers and not slow' --randomly-seed=1 --hypothesis-seed=1 $(ARGS)

soak: $(READY) java archive servers ## many more examples, kills, faults and schedules, and two hours of running (EXAMPLES=, KILLS=, SCHEDULES=, SQL=, SOAK=, SEED=)
	CATCHMENT_EXAMPLES=$(EXAMPLES) CATCHMENT_SHRINK=1 $(BIN)/pytest -n $(WORKERS) -m hypothesis --timeout=0 $(SEEDS) $(ARGS)
	CATCHMENT_KILLS=$(KILLS) CATCHMENT_SEED=$(SEED) CATCHMENT_SOAK=0 $(BIN)/pytest tests/test_spark_kills.py -s --timeout=0
	CATCHMENT_FAULTS=$(FAULTS) CATCHMENT_SEED=$(SEED) $(BIN)/pytest tests/test_tree_chaos.py -s --timeout=0
	CATCHMENT_FUZZ_SECONDS=$(FUZZ) CATCHMENT_SEED=$(SEED) $(BIN)/pytest tests/test_transport_fuzz.py -s --timeout=0
	CATCHMENT_SCHEDULES=$(SCHEDULES) CATCHMENT_FIRST_SCHEDULE=$(SEED) $(BIN)/pytest -n $(WORKERS) $(SCHEDULED) --timeout=0
	CATCHMENT_SQL=$(SQL) $(BIN)/pytest -n $(WORKERS) tests/test_sql_random.py --timeout=0 $(SEEDS)
	CATCHMENT_TRANSCRIPTS=all $(BIN)/pytest tests/test_transcripts.py --timeout=0
	CATCHMENT_SOAK=$(SOAK) $(BIN)/pytest -m soak -s --timeout=0

# One suite that misses a bar does not keep the others from being measured.
bench: $(READY) ## measure every figure the documents state (QUICK=1 for a short run, RECORD=1 to keep it)
	@suites=$$($(BIN)/python -c 'from benchmarks import SUITES; print(*SUITES)') || exit; \
	missed=0; for suite in $$suites; do \
		$(BIN)/catchment bench $$suite $(if $(QUICK),--quick) $(if $(RECORD),--record) $(ARGS) || missed=1; \
	done; exit $$missed

tables: $(READY) ## write recorded figures into README.md and docs
	@$(BIN)/python -m benchmarks.tables

plots: $(READY) ## draw what count windows and flushing cost, into docs
	@$(BIN)/catchment bench count --plots docs/count $(ARGS)
	@$(BIN)/catchment bench flush --plots docs $(ARGS)

pictures: $(READY) servers ## the pictures of the page in the documents, taken in Chromium
	PYTHONPATH=tests $(BIN)/python scripts/screenshots.py $(ARGS)

lint: $(READY) ## ruff, formatting, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put imports and formatting right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY) ## write docs/reference from the code
	@$(BIN)/python scripts/reference.py

docs: reference tables ## the site of all documents, into build/site, its links checked
	@$(BIN)/python scripts/site.py
	@echo "open build/site/index.html"

kit: $(READY) ## check the files of kit/ with their own tools (ARGS=--fetch builds those written in Go)
	@$(BIN)/python scripts/kit.py $(ARGS)

# Hashes pin every platform's files; without index addresses any mirror may serve them.
lock: $(READY) ## write requirements.lock anew from pyproject.toml (ARGS=--upgrade)
	$(BIN)/uv pip compile --quiet --universal --extra dev pyproject.toml --output-file requirements.lock \
		--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(ARGS)

clean: ## remove what was built, but not .venv
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
