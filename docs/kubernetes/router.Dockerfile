# docker build --tag ragkv-router:0.1.17 --file docs/kubernetes/router.Dockerfile docs/kubernetes
# Packages are those of router.txt, whose hashes are checked. To pin the bytes of the base image too, build with
#   --build-arg BASE=python:3.11.14-slim-bookworm@$(docker buildx imagetools inspect python:3.11.14-slim-bookworm --format '{{.Manifest.Digest}}')
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE}
COPY router.txt /
RUN pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes --requirement /router.txt \
 && useradd --uid 10001 --create-home router
USER router
ENTRYPOINT ["vllm-router"]
