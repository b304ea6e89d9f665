"""Where every token of a prompt came from, span by span: read off the plan and the engine's report."""

from collections.abc import Iterator

from ragkv.answer.prompt import Prompt
from ragkv.answer.question import Origin, PartKind, PromptSpan
from ragkv.engine.protocol import Report
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.plan import StitchPlan

_Part = tuple[Span, PartKind, int | None]
_Came = tuple[Span, Origin | None]


def prompt_spans(prompt: Prompt, plan: StitchPlan | None, report: Report) -> tuple[PromptSpan, ...]:
    """The whole prompt in order, cut where its parts and where origins change.

    The engine's cache covers a prompt from its start, the stitched region follows, the rest is computed. What the
    report does not settle has no origin.
    """
    came = tuple(_origins(len(prompt.token_ids), plan, report))
    return tuple(
        PromptSpan(shared.start, shared.end, kind, origin, passage)
        for part, kind, passage in _parts(prompt)
        for span, origin in came
        if (shared := span.clipped_to(part)).num_tokens
    )


def _parts(prompt: Prompt) -> Iterator[_Part]:
    yield prompt.prefix, "prefix", None
    for index, span in enumerate(prompt.chunks):
        yield span, "passage", index
    yield prompt.question, "question", None


def _origins(num_tokens: int, plan: StitchPlan | None, report: Report) -> Iterator[_Came]:
    """Ascending spans that tile [0, num_tokens)."""
    region = Span(report.cached, report.cached + report.stitched + report.recomputed)
    if region.end + report.computed != num_tokens:  # no report, or that of another prompt
        yield Span(0, num_tokens), None
        return
    yield Span(0, region.start), "cached"
    yield from _stitched(region, _recomputed(region, plan, report))
    yield Span(region.end, num_tokens), "computed"


def _stitched(region: Span, recomputed: tuple[Span, ...] | None) -> Iterator[_Came]:
    if recomputed is None:
        yield region, None
        return
    position = region.start
    for span in recomputed:
        yield Span(position, span.start), "stitched"
        yield span, "recomputed"
        position = span.end
    yield Span(position, region.end), "stitched"


def _recomputed(region: Span, plan: StitchPlan | None, report: Report) -> tuple[Span, ...] | None:
    """What was recomputed of the stitched region: what the engine said or, where it had no choice, what was planned."""
    spans = report.recomputed_spans
    if spans is None:
        if plan is None or plan.selection is not None:
            return None
        failed = [chunk.span for chunk in plan.placed if chunk.key in report.failed_keys]
        spans = (*plan.recompute, *failed)
    inside = merge(span.clipped_to(region) for span in spans)
    return inside if total_tokens(inside) == report.recomputed else None
