"""The origin of each prompt token and of each passage's KV, read from the plan and the engine's report."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from ragkv.answer.prompt import Prompt
from ragkv.answer.question import KVSource, Origin, PartKind, PassageKV, PromptSpan
from ragkv.engine.protocol import Report
from ragkv.span import Span, merge, tokens_within, total_tokens
from ragkv.stitch.plan import StitchPlan

FARTHEST_FIRST: tuple[KVSource, ...] = ("remote", "disk", "host")
_Part = tuple[Span, PartKind, int | None]
_Came = tuple[Span, Origin | None]


def kv_of_passages(
    prompt: Prompt, plan: StitchPlan | None, report: Report, promoted: Collection[str] = ()
) -> tuple[PassageKV, ...]:
    """One for each chunk of the prompt, in its order. Without a plan nothing is stitched.

    promoted: keys whose files came from the object store for this question.
    """
    keys = {chunk.span: chunk.key for chunk in plan.placed} if plan else {}
    return tuple(_kv_of(span, keys.get(span), plan, report, promoted) for span in prompt.chunks)


def tokens_by_tier(kv: Iterable[PassageKV], stitched: int) -> Counter[KVSource]:
    """Tokens that were placed from each tier, of all the stitched ones. What is too many is the beginning of the first
    passages: the engine had it in its cache."""
    loaded = [
        (part.source, part.tokens - (part.recomputed_tokens or 0)) for part in kv if part.source in FARTHEST_FIRST
    ]
    cached = max(sum(tokens for _, tokens in loaded) - stitched, 0)
    placed: Counter[KVSource] = Counter()
    for source, tokens in loaded:
        placed[source] += max(tokens - cached, 0)
        cached = max(cached - tokens, 0)
    return placed


def slowest_tier(kv: Iterable[PassageKV]) -> KVSource:
    """The farthest tier that any passage's KV came from; `device` where nothing had to be loaded."""
    sources = {passage.source for passage in kv}
    return next((tier for tier in FARTHEST_FIRST if tier in sources), "device")


def prompt_spans(prompt: Prompt, plan: StitchPlan | None, report: Report) -> tuple[PromptSpan, ...]:
    """The whole prompt in order, cut where its parts and where origins change.

    The engine's cache covers a prompt from its start, the stitched region follows, the rest is computed. What the
    report does not settle has no origin.
    """
    passages: list[_Part] = [(span, "passage", index) for index, span in enumerate(prompt.chunks)]
    parts: list[_Part] = [(prompt.prefix, "prefix", None), *passages, (prompt.question, "question", None)]
    came = tuple(_origins_of(len(prompt.token_ids), plan, report))
    cut: list[PromptSpan] = []
    ahead = 0  # the first of `came` that reaches into the part: both tile the prompt
    for part, kind, passage in parts:
        for span, origin in came[ahead:]:
            if (shared := span.clipped_to(part)).num_tokens:
                cut.append(PromptSpan(shared.start, shared.end, kind, origin, passage))
            if span.end > part.end:
                break
            ahead += 1
    return tuple(cut)


def _kv_of(
    span: Span, key: str | None, plan: StitchPlan | None, report: Report, promoted: Collection[str]
) -> PassageKV:
    if span.end <= report.cached:
        return PassageKV("device", span.num_tokens, 0)
    if plan is None or key is None or key in report.failed_keys:
        return PassageKV("recomputed", span.num_tokens, span.num_tokens)
    redone: int | None = tokens_within(plan.recompute, span)
    if redone != span.num_tokens and report.recomputed_spans is not None:
        redone = tokens_within(report.recomputed_spans, span)
    elif redone != span.num_tokens and plan.selection:
        redone = None  # the engine chose, and did not say what
    if redone == span.num_tokens:
        return PassageKV("recomputed", span.num_tokens, redone)
    local: KVSource = "host" if key in report.host_keys else "disk"
    return PassageKV("remote" if key in promoted else local, span.num_tokens, redone)


def _origins_of(num_tokens: int, plan: StitchPlan | None, report: Report) -> Iterator[_Came]:
    """Ascending spans that tile [0, num_tokens)."""
    region = Span(report.cached, report.cached + report.stitched + report.recomputed)
    if region.end + report.computed != num_tokens:  # no report, or that of another prompt
        yield Span(0, num_tokens), None
        return
    yield Span(0, region.start), "cached"
    spans = report.recomputed_spans
    if spans is None and plan is not None and plan.selection is None:  # the engine had no choice: as planned
        spans = (*plan.recompute, *(chunk.span for chunk in plan.placed if chunk.key in report.failed_keys))
    recomputed = merge(span.clipped_to(region) for span in spans or ())
    if spans is None or total_tokens(recomputed) != report.recomputed:
        yield region, None
    else:
        position = region.start
        for span in recomputed:
            yield Span(position, span.start), "stitched"
            yield span, "recomputed"
            position = span.end
        yield Span(position, region.end), "stitched"
    yield Span(region.end, num_tokens), "computed"
