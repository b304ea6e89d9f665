# docker build --tag ragkv-router:0.1.17 --file docs/kubernetes/router.Dockerfile docs/kubernetes
FROM python:3.11.14-slim-bookworm
RUN pip install --no-cache-dir vllm-router==0.1.17 && useradd --uid 10001 --create-home router
USER router
ENTRYPOINT ["vllm-router"]
