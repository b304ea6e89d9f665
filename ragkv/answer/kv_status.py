"""Where each passage's keys and values came from: read off the plan and the engine's report."""

from collections.abc import Iterable

from ragkv.answer.prompt import Prompt
from ragkv.answer.question import PassageKV
from ragkv.engine.protocol import Report
from ragkv.span import Span, total_tokens
from ragkv.stitch.plan import StitchPlan


def kv_of_passages(prompt: Prompt, plan: StitchPlan | None, report: Report) -> tuple[PassageKV, ...]:
    """One for each chunk of the prompt, in its order. Without a plan nothing is stitched."""
    keys = {chunk.span: chunk.key for chunk in plan.placed} if plan else {}
    return tuple(_kv_of(span, keys.get(span), plan, report) for span in prompt.chunks)


def tokens_from_disk(kv: Iterable[PassageKV]) -> int:
    """Tokens that were placed from files that had to be read from the disk."""
    return sum(one.tokens - (one.recomputed_tokens or 0) for one in kv if one.source == "disk")


def _kv_of(span: Span, key: str | None, plan: StitchPlan | None, report: Report) -> PassageKV:
    if span.end <= report.cached:
        return PassageKV("device", span.num_tokens, 0)
    if plan is None or key is None or key in report.failed_keys:
        return PassageKV("recomputed", span.num_tokens, span.num_tokens)
    redone = _recomputed(span, plan, report)
    if redone == span.num_tokens:
        return PassageKV("recomputed", span.num_tokens, redone)
    return PassageKV("host" if key in report.host_keys else "disk", span.num_tokens, redone)


def _recomputed(span: Span, plan: StitchPlan, report: Report) -> int | None:
    """None where the engine chose and did not say what."""
    planned = total_tokens(part.clipped_to(span) for part in plan.recompute)
    if planned == span.num_tokens:
        return planned
    if report.recomputed_spans is not None:
        return total_tokens(part.clipped_to(span) for part in report.recomputed_spans)
    return None if plan.selection else planned
