"""Outcomes of single questions, figures of whole runs, and the settings of a run: values, as stored and shown."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Kind = Literal["fidelity", "retrieval"]
Source = Literal["rated", "logged", "given"]
State = Literal["queued", "running", "done", "cancelled", "failed"]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that answers depend on, as a run found them. `writer`: the fingerprint of the writer, empty for the
    plain model; `index`: that of tokenizer, encoder and chunk size. `kv_format`, `kv_compression`: the collection's;
    the latter is empty where KV of all tokens is kept. `digest`: of all settings that may change an answer;
    empty for runs of earlier versions."""

    version: str
    model: str
    model_fingerprint: str
    writer: str
    kv_format: str
    policy: str
    recompute_ratio: float
    recompute_max_tokens: int
    block_size: int
    top_k: int
    hops: int
    reranker: str | None
    passage_order: str
    index: str
    kv_compression: str = ""
    sparse_ratio: float = 1.0
    digest: str = ""


class Interval(msgspec.Struct, frozen=True):
    """The middle 95% of a figure over resamples of the questions."""

    low: float
    high: float


class FidelityFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Stitched answers beside full prefill of the same prompts, over `questions`. `skipped` could not be measured.

    gain_kept: the share of what the passages give full prefill, in likelihood of the known answer, that stitching
    keeps; null where they give it nothing. kl: nats a token of the known answer; kl_high: percent of questions above
    0.5. agree: percent whose answers are alike. f1, f1_full: percent, against known answers, of `with_answer`
    questions. Times are medians in milliseconds, planning included and retrieval not; speedup: full prefill's over the
    stitched one's, question by question. recomputed: share of the passages' tokens. passages_without_kv: in percent;
    they are computed as in full prefill.
    """

    questions: int
    skipped: int
    with_answer: int
    gain_kept: float | None
    gain_kept_interval: Interval | None
    kl: float
    kl_interval: Interval | None
    kl_high: float
    agree: float
    f1: float | None
    f1_full: float | None
    ttft_ms: float
    ttft_full_ms: float
    speedup: float
    recomputed: float
    passages_without_kv: float


class RetrievalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Passages that support known answers, among the first that the search finds: percent over `questions`, as in
    `ragkv eval retrieval`. `skipped` could not be measured: most name no passage. search_ms: the median."""

    questions: int
    skipped: int
    recall_at_2: float
    recall_at_5: float
    recall_at_10: float
    recall_at_5_interval: Interval | None
    all_at_5: float
    mrr: float
    search_ms: float


class FidelityOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One question: nll and kl in nats a token of the known answer, f1 in [0, 1]; of `passages` in the prompt, those
    without KV."""

    kl: float
    nll: float
    nll_full: float
    nll_without: float
    agree: bool
    f1: float | None
    f1_full: float | None
    ttft_ms: float
    ttft_full_ms: float
    recomputed_tokens: int
    context_tokens: int
    passages: int
    passages_without_kv: int


class RetrievalOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One question: `ranks` from 1 of its gold passages in what was found, null for one that was not."""

    ranks: tuple[int | None, ...]
    search_ms: float


class ComparedAnswers(msgspec.Struct, frozen=True):
    """The answers to one question."""

    stitched: str
    full: str


class GivenPassage(msgspec.Struct, frozen=True):
    """A passage that came with a question."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    title: Annotated[str, Meta(max_length=500)] = ""


class GivenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that comes with a run, as a line of `ragkv eval fidelity --data`; other fields are ignored. `answers`:
    accepted ones, the first is measured. Sentences of `passages` that support it are to be found; or else texts of
    `gold`, word for word."""

    question: Annotated[str, Meta(min_length=1, max_length=4_000)]
    answers: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=4_000)], ...], Meta(max_length=20)] = ()
    passages: Annotated[tuple[GivenPassage, ...], Meta(max_length=100)] = ()
    gold: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=20_000)], ...], Meta(max_length=100)] = ()


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of an evaluation: `done` of `total` questions. Its figures are there once it has ended, of its kind
    alone."""

    id: str
    kind: Kind
    source: Source
    collection_id: str
    collection: str
    state: State
    total: int
    done: int
    settings: RunSettings | None
    fidelity: FidelityFigures | None
    retrieval: RetrievalFigures | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.state in ("queued", "running")


class EvaluationRunPage(msgspec.Struct, frozen=True):
    """A page of runs, newest first."""

    items: list[EvaluationRun]
    next: str | None


class MeasuredQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a run. Its text, the known answer and the answers are null once the question is kept no longer."""

    ordinal: int
    question_id: str | None
    question: str | None
    known_answer: str | None
    answers: ComparedAnswers | None
    fidelity: FidelityOutcome | None
    retrieval: RetrievalOutcome | None
    error: str | None


class EvaluationReport(msgspec.Struct, frozen=True):
    """A run with its questions, the worst first; those that are not measured yet last."""

    run: EvaluationRun
    questions: list[MeasuredQuestion]
