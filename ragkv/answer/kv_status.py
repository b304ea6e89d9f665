"""Where each passage's keys and values came from: read off the plan and the engine's report."""

from ragkv.answer.ask import PassageKV
from ragkv.answer.prompt import Prompt
from ragkv.engine.protocol import Report
from ragkv.span import Span, total_tokens
from ragkv.stitch.plan import StitchPlan


def kv_of_passages(prompt: Prompt, plan: StitchPlan | None, report: Report) -> tuple[PassageKV, ...]:
    """One for each chunk of the prompt, in its order. Without a plan nothing is stitched."""
    keys = {piece.span: piece.key for piece in plan.placed} if plan else {}
    lost = {span for span, key in keys.items() if key is None or key in report.failed_keys}
    return tuple(_kv_of(span, plan, report, is_lost=span not in keys or span in lost) for span in prompt.chunks)


def _kv_of(span: Span, plan: StitchPlan | None, report: Report, *, is_lost: bool) -> PassageKV:
    if span.end <= report.cached:
        return PassageKV("device", span.num_tokens, 0)
    redone = span.num_tokens if plan is None or is_lost else _recomputed(span, plan, report)
    return PassageKV("recomputed" if redone == span.num_tokens else "stored", span.num_tokens, redone)


def _recomputed(span: Span, plan: StitchPlan, report: Report) -> int | None:
    """None where the engine chose and did not say what."""
    planned = total_tokens(part.clipped_to(span) for part in plan.recompute)
    if planned == span.num_tokens:
        return planned
    if report.recomputed_spans is not None:
        return total_tokens(part.clipped_to(span) for part in report.recomputed_spans)
    return None if plan.late else planned
