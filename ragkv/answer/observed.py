"""Metrics and traces of a question: numbers and names, never its text."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ragkv.answer.origins import slowest_tier
from ragkv.answer.question import ORIGINS, Answer, Question
from ragkv.engine.protocol import Generate, Output, Report
from ragkv.errors import Corrupt, RagKVError, Unavailable
from ragkv.observe import metrics, traces

FAILURES = (Unavailable, Corrupt)
"""Faults of the service; every other error is one of the request."""


@contextmanager
def observed(question: Question) -> Iterator[Callable[[Answer], None]]:
    """Count a question when the block ends, for whatever reason. Call what this yields with the answer."""
    outcome: metrics.QuestionOutcome = "cancelled"

    def answered(answer: Answer) -> None:
        nonlocal outcome
        outcome = "answered"
        _count(question, answer)

    try:
        yield answered
    except Exception as error:
        refused = isinstance(error, RagKVError) and not isinstance(error, FAILURES)
        outcome = "refused" if refused else "failed"
        raise
    finally:
        metrics.asks.labels(question.mode, outcome).inc()


@contextmanager
def generation(request: Generate, model: str) -> Iterator[Callable[[Output], None]]:
    """A span of the generation in the block, in OpenTelemetry's names. Call what this yields with each output."""
    attributes: traces.Attributes = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": request.sampling.temperature,
        "gen_ai.request.stream": True,
        "ragkv.stitched": request.plan is not None,
    }
    span = traces.opened(f"text_completion {model}", attributes)
    began, first_s, tokens = time.perf_counter(), 0.0, 0

    def generated(output: Output) -> None:
        nonlocal first_s, tokens
        first_s = first_s or time.perf_counter() - began
        tokens += len(output.token_ids)
        if output.finish_reason:
            report = output.report or Report()
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": len(request.token_ids),
                    "gen_ai.usage.output_tokens": tokens,
                    "gen_ai.usage.cache_read.input_tokens": report.cached + report.stitched,
                    "gen_ai.response.finish_reasons": [output.finish_reason],
                    "gen_ai.response.time_to_first_chunk": first_s,
                    **{f"ragkv.tokens.{origin}": getattr(report, origin) for origin in ORIGINS},
                    "ragkv.kv_load_ms": report.kv_load_ms,
                    "ragkv.recompute_ms": report.recompute_ms,
                    "ragkv.failed_chunks": len(report.failed_keys),
                }
            )

    try:
        yield generated
    except Exception as error:
        traces.failed(span, type(error).__qualname__)
        raise
    finally:
        span.end()


def retrieval(question: Question, top_k: int, hops: int) -> AbstractContextManager[traces.Span]:
    """A span of the search in the block, in OpenTelemetry's names."""
    attributes: traces.Attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": question.collection_id,
        "ragkv.top_k": top_k,
        "ragkv.hops": hops,
    }
    return traces.span("retrieval", attributes)


def _count(question: Question, answer: Answer) -> None:
    took, usage, mode = answer.timings, answer.usage, question.mode
    metrics.ttft.labels(mode).observe(took.ttft_ms / 1e3)
    metrics.engine_ttft.labels(mode).observe(took.engine_ttft_ms / 1e3)
    metrics.retrieve.observe(took.retrieve_ms / 1e3)
    metrics.plan.observe(took.plan_ms / 1e3)
    metrics.answer_seconds.labels(mode).observe(took.total_ms / 1e3)
    if mode == "stitched":
        metrics.kv_load.labels(slowest_tier(answer.kv)).observe(took.kv_load_ms / 1e3)
        metrics.recompute.observe(took.recompute_ms / 1e3)
        for passage in answer.kv:
            metrics.kv_hits.labels(passage.source).inc()
    for origin in ORIGINS:
        metrics.prompt_tokens.labels(origin).inc(getattr(usage, origin))
    metrics.completion_tokens.inc(usage.completion)
    metrics.failed_chunks.inc(usage.failed_chunks)
