# One image for the API, the worker and the engine. TARGET=gpu takes vLLM's own CUDA wheel.
FROM python:3.11-slim
ARG TARGET=cpu
# g++ compiles what torch and triton make at run time; libnuma1 and libgomp1 are vLLM's on a CPU.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make g++ libnuma1 libgomp1 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY Makefile pyproject.toml README.md LICENSE requirements-*.txt ./
COPY ragkv ragkv
COPY ingest ingest
COPY api api
COPY workers workers
COPY migrations migrations
RUN make setup TARGET=$TARGET
ENV PATH=/app/.venv/bin:$PATH RAGKV_DATA_DIR=/data
RUN useradd --create-home ragkv && install --directory --owner ragkv --mode 0700 /data
USER ragkv
VOLUME /data
EXPOSE 8000
CMD ["ragkv", "serve", "--host", "0.0.0.0"]
