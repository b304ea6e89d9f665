"""Counters and histograms of this process for Prometheus. Gauges of the whole service: `ragkv.service.health.gauges`.

Every name is explained in docs/OPERATIONS.md. Labels are few and known beforehand: never a tenant, a key or a path.
"""

from http import HTTPStatus
from typing import Literal

from prometheus_client import REGISTRY as LIBRARIES
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

_CACHE_USE = "vllm:kv_cache_usage_perc"
MEDIA_TYPE = "text/plain; version=0.0.4"
QuestionOutcome = Literal["answered", "cancelled", "refused", "failed"]
"""Outcome of a question. refused: it could not be answered as it was asked; failed: the service could not answer it."""
PromotionOutcome = Literal["in_time", "late", "not_awaited", "failed"]
"""Outcome of loading a KV file from the object store for one question. late: it had not come by the deadline;
not_awaited: computing it was estimated to be sooner."""

# The moment when each counter was made: as many lines again, of no use.
disable_created_metrics()  # type: ignore[no-untyped-call]
OURS = CollectorRegistry()
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _counter(name: str, what: str, *labels: str) -> Counter:
    return Counter(name, what, labels, registry=OURS)


def _seconds(name: str, what: str, *labels: str) -> Histogram:
    return Histogram(name, what, labels, registry=OURS, buckets=_SECONDS)


_requests = _counter("ragkv_http_requests", "HTTP requests that were answered.", "method", "route", "status")
_request_seconds = _seconds(
    "ragkv_http_request_seconds", "Time from a request to the end of its response.", "method", "route"
)
in_flight = Gauge("ragkv_http_requests_in_flight", "HTTP requests that are being answered.", registry=OURS)
_throttled = _counter("ragkv_http_requests_throttled", "HTTP requests that were answered with 429.")
unchecked = _counter("ragkv_http_requests_unchecked", "Requests let through uncounted while Redis was unavailable.")

questions_waiting = Gauge(
    "ragkv_questions_waiting", "Questions that wait for others of their tenant to end.", registry=OURS
)
_refused = _counter("ragkv_questions_refused", "Questions refused because too many of their tenant's ran.", "reason")
asks = _counter("ragkv_asks", "Questions, by outcome.", "mode", "outcome")
ttft = _seconds("ragkv_ttft_seconds", "Time from a question to the first token of its answer.", "mode")
engine_ttft = _seconds("ragkv_engine_ttft_seconds", "The engine's part of the time to the first token.", "mode")
retrieve = _seconds("ragkv_retrieve_seconds", "Retrieval, for one question.")
plan = _seconds("ragkv_plan_seconds", "Prompt and stitch plan, for one question.")
kv_load = _seconds(
    "ragkv_kv_load_seconds", "Placing stored KV, for one stitched question, by its farthest tier.", "tier"
)
kv_hits = _counter("ragkv_kv_hits", "Passages of stitched questions, by the tier that their KV came from.", "tier")
recompute = _seconds("ragkv_recompute_seconds", "Recomputing in place, for one stitched question.")
answer_seconds = _seconds("ragkv_answer_seconds", "Time from a question to the end of its answer.", "mode")
prompt_tokens = _counter("ragkv_prompt_tokens", "Tokens of prompts, by the origin of their KV.", "origin")
completion_tokens = _counter("ragkv_completion_tokens", "Tokens of answers.")
failed_chunks = _counter("ragkv_failed_chunks", "Chunks recomputed because their KV was missing or damaged.")
engine_restarts = _counter("ragkv_engine_restarts", "Restarts of the engine in this process after it was lost.")
kv_loads = _seconds("ragkv_kv_remote_load_seconds", "Loading one KV file from the object store to disk.")
kv_loaded_bytes = _counter("ragkv_kv_remote_loaded_bytes", "Bytes of KV loaded from the object store.")
kv_load_failures = _counter("ragkv_kv_remote_load_failures", "Loads from the object store that failed.", "reason")
_kv_promotions = _counter("ragkv_kv_promotions", "KV files that a question needed from the object store.", "outcome")
kv_computed = _counter("ragkv_kv_computed", "KV that a question needed before ingestion had computed it.", "outcome")
kv_wait = _seconds("ragkv_kv_wait_seconds", "Waiting for KV from the object store, for one question.")
kv_wasted = _counter(
    "ragkv_kv_wasted_loads", "KV files loaded from the object store that were removed before an answer used them."
)
answer_cache = _counter("ragkv_answer_cache", "Look-ups in the answer cache.", "result")


def requested(method: str, route: str, status: int, seconds: float) -> None:
    """An HTTP request was answered. `route` is the template, never the path."""
    method = method if method in _METHODS else "OTHER"
    _requests.labels(method, route, str(status)).inc()
    _request_seconds.labels(method, route).observe(seconds)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        _throttled.inc()


def question_refused(reason: Literal["full", "late"]) -> None:
    """A question was refused: full: too many waited already; late: it waited for too long."""
    _refused.labels(reason).inc()


def kv_promoted(outcome: PromotionOutcome) -> None:
    """A question needed a KV file from the object store."""
    _kv_promotions.labels(outcome).inc()


def engine_cache_use() -> float | None:
    """The share of the engine's own KV cache that prompts hold now, between 0 and 1, as vLLM says it.

    None until the engine reports it, and for an engine in another process.
    """
    return next(
        (sample.value for family in LIBRARIES.collect() for sample in family.samples if sample.name == _CACHE_USE), None
    )
