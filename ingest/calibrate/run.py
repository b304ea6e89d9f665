"""One calibration, from a collection's chunks to the selected layers and their figures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ingest.calibrate.check import Checked, StitchedCase, check, mean_at_ratios
from ingest.calibrate.choose import choose, finalists, ratio_of
from ingest.calibrate.clozes import Cloze, clozes_of, contexts_of
from ingest.calibrate.cover import Case, Selecting, observe
from ingest.calibrate.reading import calibration_reader
from ingest.writer.corpus import chunks_of_collection
from ingest.writer.reading import Tail
from ragkv.calibration import Calibration
from ragkv.choosing import Choice
from ragkv.clock import utc_now
from ragkv.errors import Rejected
from ragkv.models import public_name
from ragkv.parts import Parts
from ragkv.span import Span
from ragkv.stitch.select import block_size_of, budget_of

LEAST_CONTEXTS = 12
MAX_ANSWER_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Plan:
    """A collection, the number of clozes to choose on and again of those to check on, and the KL to keep.

    choice: checked in place of the best one.
    """

    collection: str
    clozes: int
    target_kl: float
    seed: int
    choice: Choice | None = None


def calibrate(parts: Parts, plan: Plan, progress: Callable[[str, int], None]) -> Calibration:
    """Choose on one half of the collection's contexts, by cover and then by KL; check on the other. `progress` is told
    a phase and how many are done.

    Raises Rejected for settings that select nothing and for a collection that has too little text.
    """
    ratio = parts.recomputing.default(written=False).ratio
    if not 0 < ratio < 1:
        raise Rejected(f"RAGKV_RECOMPUTE_RATIO is {ratio:g}: nothing is left to choose")
    choosing, checking = _halves(parts, plan)
    reader = calibration_reader(parts)
    selection = _Selection(
        reader.num_prefix,
        ratio,
        parts.settings.block_size or block_size_of("question"),
        bool(parts.writer_fingerprint),
    )

    def counted(phase: str, cases: Sequence[Case]) -> Iterator[tuple[int, Case]]:
        for number, case in enumerate(cases):
            yield number, case
            progress(phase, number + 1)

    def searched() -> Choice:
        observed = [observe(reader, case, selection.of(case)) for _, case in counted("choosing", choosing)]
        kls: dict[Choice, list[float]] = {choice: [] for choice in finalists(observed, parts.layout.layers)}
        for _, case in counted("comparing", choosing):
            stitched = StitchedCase(reader, case, selection.of(case))
            for choice, values in kls.items():
                values.append(stitched.kl_by(choice))
        return choose(kls)

    choice = plan.choice or searched()
    checked = []
    for number, case in counted("checking", checking):
        one = check(StitchedCase(reader, case, selection.of(case)), choice, plan.seed + number)
        if parts.writer_fingerprint:
            with reader.plain_writing():
                plain = StitchedCase(reader, case, replace(selection, first_too=False).of(case))
            one = replace(one, plain_at_ratios={ratio: plain.kl_by(choice, ratio) for ratio in one.at_ratios})
        checked.append(one)
    return _calibration(parts, plan, choice, ratio, checked)


def _calibration(parts: Parts, plan: Plan, choice: Choice, ratio: float, checked: Sequence[Checked]) -> Calibration:
    ours, default, drawn = ([getattr(one, name) for one in checked] for name in ("choice", "default", "random"))
    return Calibration(
        model=public_name(parts.settings),
        model_fingerprint=parts.model_fingerprint,
        writer_fingerprint=parts.writer_fingerprint,
        made_at=utc_now(),
        collection=plan.collection,
        contexts=len(checked),
        seed=plan.seed,
        layers=choice.text,
        sink_aware=choice.sink_aware,
        ratio=ratio,
        kl=fmean(ours),
        default_kl=fmean(default),
        random_kl=fmean(drawn),
        to_default=ratio_of(ours, default),
        to_random=ratio_of(ours, drawn),
        target_kl=plan.target_kl,
        kl_at=mean_at_ratios([one.at_ratios for one in checked]),
        plain_kl_at=mean_at_ratios([one.plain_at_ratios for one in checked]),
    )


@dataclass(frozen=True, slots=True)
class _Selection:
    """Chunks of a case that the engine may select from: all chunks, or all but the first, which the plain model's KV is
    exact for."""

    prefix: int
    ratio: float
    block_size: int
    first_too: bool

    def of(self, case: Case) -> Selecting:
        spans, start = [], self.prefix
        for chunk in case.chunks:
            spans.append(Span(start, start + len(chunk)))
            start += len(chunk)
        return Selecting(
            tuple(spans if self.first_too else spans[1:]), self.block_size, budget_of(self.ratio, start - self.prefix)
        )


def _halves(parts: Parts, plan: Plan) -> tuple[list[Case], list[Case]]:
    """Cases to choose on and to check on, of contexts that share no chunk."""
    contexts = contexts_of(chunks_of_collection(plan.collection, parts))
    if len(contexts) < LEAST_CONTEXTS:
        raise Rejected(
            f"the collection has text for only {len(contexts)} contexts, but calibration needs {LEAST_CONTEXTS}: ingest more documents"
        )
    first, second = (clozes_of(contexts[half::2], plan.clozes, plan.seed + half) for half in (0, 1))
    if min(len(first), len(second)) < plan.clozes:
        raise Rejected(
            "the collection has too few sentences with names or numbers to ask about: choose another, or ingest more documents"
        )
    return [_case(cloze, parts) for cloze in first], [_case(cloze, parts) for cloze in second]


def _case(cloze: Cloze, parts: Parts) -> Case:
    answer = parts.prompts.answer_ids(cloze.answer)[:MAX_ANSWER_TOKENS]
    return Case(tuple(c.token_ids for c in cloze.chunks), Tail(parts.prompts.question_ids(cloze.question), answer))
