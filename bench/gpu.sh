#!/usr/bin/env bash
# What ragkv does on this machine's GPU: bench/gpu.sh [PART...], within 10 minutes, without network, models or documents.
# bench/gpu.sh --pack FOLDER: pack it for a machine without vLLM, to carry there.
# PYTHON: one that has vLLM; by itself that of .venv (make setup TARGET=gpu), or else python3.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  [ -x .venv/bin/python ] && PYTHON=.venv/bin/python
fi
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
export VLLM_LOGGING_LEVEL="${VLLM_LOGGING_LEVEL:-ERROR}" TRANSFORMERS_VERBOSITY="${TRANSFORMERS_VERBOSITY:-error}" PYTHONWARNINGS="${PYTHONWARNINGS:-ignore}"
if [ "${1:-}" = --pack ]; then exec "$PYTHON" -m bench.gpu.pack "${@:2}"; fi
exec "$PYTHON" -m bench.gpu "$@"
