#!/usr/bin/env bash
# Measures on this machine what `bench/gpu.sh --pack` packed: run.sh [OPTION...] [PART...], as for bench/gpu.sh.
# KIT: where it is unpacked, once; later calls may start $KIT/run.sh and need nothing else. OUT: for report, picture and log.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHON=${PYTHON:-python3}
KIT=${KIT:-/tmp/ragkv-gpu} OUT=${OUT:-$PWD}
if [ ! -e "$KIT/run.sh" ]; then
  mkdir -p "$KIT"
  "$PYTHON" - "$here/kit.tar.xz" "$KIT" <<'PY' || exit 1
import sys, tarfile
with tarfile.open(sys.argv[1]) as packed:
    packed.extractall(sys.argv[2], filter="data")
PY
fi
export PYTHONPATH=$KIT/code:$KIT/site${PYTHONPATH:+:$PYTHONPATH}
# One rank and no network: nothing may look for an interface. FlashInfer is not packed, and vLLM would stop for want of it.
export VLLM_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_USE_DEEP_GEMM=0
export VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-INFO}
if [ -d "$KIT/site/vllm" ] && [ ! -e "$KIT/computes" ]; then
  "$PYTHON" -m bench.gpu.smoke 2>&1 | tee "$OUT/smoke.txt" && touch "$KIT/computes" || exit 1
fi
"$KIT/code/bench/gpu.sh" --json "$KIT/bench-gpu.json" --folder "${DATA:-/dev/shm/ragkv-gpu}" "$@" > "$OUT/log.txt" 2>&1
rc=$?
cp "$KIT"/bench-gpu.json "$KIT"/bench-gpu.svg "$OUT" 2> /dev/null
grep -vE '(INFO|WARNING) [0-9]' "$OUT/log.txt" | tail -150
exit $rc
