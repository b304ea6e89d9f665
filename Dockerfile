# One image for the API, the worker and the engine. TARGET=gpu takes vLLM's own CUDA wheel.
# Base images are named by exact version. To pin the bytes too, build with
#   --build-arg BASE=python:3.11.14-slim-bookworm@$(docker buildx imagetools inspect python:3.11.14-slim-bookworm --format '{{.Manifest.Digest}}')
ARG TARGET=cpu
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
ARG TARGET
RUN apt-get update && apt-get install --yes --no-install-recommends make
WORKDIR /app
COPY Makefile pyproject.toml README.md LICENSE requirements-*.txt ./
COPY ragkv ragkv
COPY ingest ingest
COPY bench bench
COPY api api
COPY workers workers
COPY migrations migrations
# The runtime list alone, and in the end without what installed it.
RUN make setup TARGET=${TARGET} DEV= \
 && .venv/bin/python -m pip uninstall --quiet --yes uv hatchling editables trove-classifiers tomlkit pip \
 && rm .venv/torch.txt .venv/rest.txt

# libnuma1 and libgomp1 are vLLM's on a CPU.
FROM ${BASE} AS runtime
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libnuma1 libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home ragkv \
 && install --directory --owner ragkv --mode 0700 /data

# No compiler: the engine runs eagerly, and what vLLM would hand to torch.compile runs as it is written.
FROM runtime AS cpu
ENV TORCHDYNAMO_DISABLE=1

# Triton compiles the launchers of its kernels when they are first used.
FROM runtime AS gpu
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

FROM ${TARGET}
COPY --from=build /app /app
WORKDIR /app
# Whatever is written goes to /data, or to /tmp: the rest may be read-only.
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 RAGKV_DATA_DIR=/data HF_HOME=/data/huggingface \
    XDG_CACHE_HOME=/data/cache VLLM_CACHE_ROOT=/data/cache/vllm VLLM_CONFIG_ROOT=/data/cache/vllm-config \
    TORCHINDUCTOR_CACHE_DIR=/data/cache/inductor TRITON_CACHE_DIR=/data/cache/triton VLLM_NO_USAGE_STATS=1
USER ragkv
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=180s \
  CMD ["python", "-c", "import urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:8000/readyz')"]
CMD ["ragkv", "serve", "--host", "0.0.0.0"]
