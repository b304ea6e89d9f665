"""Outcomes of single questions, figures of whole runs, and the settings of a run: values, as stored and shown."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Kind = Literal["fidelity", "retrieval"]
RunKind = Annotated[
    Kind,
    "`fidelity`: stitched answers against full prefill of the same prompts. `retrieval`: search for the passages that "
    "support known answers.",
]
Source = Literal["rated", "logged", "given"]
State = Literal["queued", "running", "done", "cancelled", "failed"]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that answers depend on, as a run found them. `writer`: the fingerprint of the writer, empty for the
    plain model; `index`: that of tokenizer, encoder and chunk size. `kv_format`, `kv_compression`: the collection's;
    the latter is empty where KV of all tokens is kept. `digest`: of all settings that may change an answer;
    empty for runs of earlier versions."""

    version: Annotated[str, "Version of ragkv."]
    model: Annotated[str, "Name of the language model."]
    model_fingerprint: Annotated[str, "Fingerprint of the model's weights."]
    writer: Annotated[str, "Fingerprint of the writer; empty for the plain model."]
    kv_format: Annotated[str, "Format of stored KV."]
    policy: Annotated[str, "Policy that selects the tokens to recompute."]
    recompute_ratio: Annotated[float, "Share of the passages' tokens to recompute."]
    recompute_max_tokens: Annotated[int, "Maximum number of tokens to recompute."]
    block_size: Annotated[int, "Number of neighbouring tokens that are selected together."]
    top_k: Annotated[int, "Maximum number of passages."]
    hops: Annotated[int, "Number of retrieval hops."]
    reranker: Annotated[str | None, "The re-ranker; null without one."]
    passage_order: Annotated[str, "Order of passages in the prompt."]
    index: Annotated[str, "Fingerprint of tokenizer, encoder and chunk size."]
    kv_compression: Annotated[
        str,
        "Compression of stored KV: its method and the share of each chunk's tokens that is kept; empty for all tokens.",
    ] = ""
    sparse_ratio: Annotated[float, "Share of the passages' tokens that is read."] = 1.0
    digest: Annotated[
        str, "Digest of all settings that may change an answer; empty for evaluations of earlier versions."
    ] = ""


class Interval(msgspec.Struct, frozen=True):
    """The middle 95% of a figure over resamples of the questions."""

    low: Annotated[float, "Lower end."]
    high: Annotated[float, "Upper end."]


class FidelityFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Stitched answers beside full prefill of the same prompts, over `questions`. `skipped` could not be measured.

    gain_kept: the share of what the passages give full prefill, in likelihood of the known answer, that stitching
    keeps; null where they give it nothing. kl: nats a token of the known answer; kl_high: percent of questions above
    0.5. agree: percent whose answers are alike. f1, f1_full: percent, against known answers, of `with_answer`
    questions. Times are medians in milliseconds, planning included and retrieval not; speedup: full prefill's over the
    stitched one's, question by question. recomputed: share of the passages' tokens. passages_without_kv: in percent;
    they are computed as in full prefill.
    """

    questions: Annotated[int, "Number of measured questions."]
    skipped: Annotated[int, "Number of questions that could not be measured."]
    with_answer: Annotated[int, "Number of questions with a known answer."]
    gain_kept: Annotated[
        float | None,
        "Share that stitching keeps of the likelihood that passages add to the known answer under full prefill; "
        "null if they add nothing. Without a known answer, full prefill's own is used.",
    ]
    gain_kept_interval: Annotated[
        Interval | None, "95% interval of `gain_kept`; null where over 2.5% of the resamples have no value."
    ]
    kl: Annotated[float, "Mean KL divergence to full prefill, in nats per token of the known answer."]
    kl_interval: Annotated[Interval | None, "95% interval of `kl`."]
    kl_high: Annotated[float, "Percentage of questions with a KL divergence above 0.5."]
    agree: Annotated[
        float,
        "Percentage of questions whose stitched answer equals that of full prefill, apart from case, punctuation "
        "and articles.",
    ]
    f1: Annotated[
        float | None, "Mean F1 of stitched answers against known answers in percent; null without known answers."
    ]
    f1_full: Annotated[
        float | None, "Mean F1 of full prefill's answers against known answers in percent; null without known answers."
    ]
    ttft_ms: Annotated[
        float,
        "Median time to the first token of stitched prompts in milliseconds, including planning but not retrieval.",
    ]
    ttft_full_ms: Annotated[float, "Median time to the first token of full prefill in milliseconds."]
    speedup: Annotated[float, "Median ratio of the times to the first token, full prefill to stitched."]
    recomputed: Annotated[float, "Share of the passages' tokens that were recomputed."]
    passages_without_kv: Annotated[
        float, "Percentage of passages without usable KV; they are computed as in full prefill."
    ]


class RetrievalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Passages that support known answers, among the first that the search finds: percent over `questions`, as in
    `ragkv eval retrieval`. `skipped` could not be measured: most name no passage. search_ms: the median."""

    questions: Annotated[int, "Number of measured questions."]
    skipped: Annotated[int, "Number of questions that could not be measured."]
    recall_at_2: Annotated[float, "Percentage of a question's gold passages among the first 2, mean."]
    recall_at_5: Annotated[float, "Percentage of a question's gold passages among the first 5, mean."]
    recall_at_10: Annotated[float, "Percentage of a question's gold passages among the first 10, mean."]
    recall_at_5_interval: Annotated[Interval | None, "95% interval of `recall_at_5`."]
    all_at_5: Annotated[float, "Percentage of questions with every gold passage among the first 5."]
    mrr: Annotated[float, "Mean reciprocal rank of the first gold passage in percent."]
    search_ms: Annotated[float, "Median duration of a search in milliseconds."]


class FidelityOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One question: nll and kl in nats a token of the known answer, f1 in [0, 1]; of `passages` in the prompt, those
    without KV."""

    kl: Annotated[float, "KL divergence to full prefill, in nats per token of the known answer."]
    nll: Annotated[float, "Negative log-likelihood of the known answer in nats per token, stitched."]
    nll_full: Annotated[float, "Negative log-likelihood of the known answer in nats per token, full prefill."]
    nll_without: Annotated[float, "Negative log-likelihood of the known answer in nats per token, without any passage."]
    agree: Annotated[
        bool, "Whether the stitched answer equals that of full prefill, apart from case, punctuation and articles."
    ]
    f1: Annotated[float | None, "F1 of the stitched answer, from 0 to 1; null without a known answer."]
    f1_full: Annotated[float | None, "F1 of full prefill's answer, from 0 to 1; null without a known answer."]
    ttft_ms: Annotated[float, "Time to the first token of the stitched prompt in milliseconds."]
    ttft_full_ms: Annotated[float, "Time to the first token of full prefill in milliseconds."]
    recomputed_tokens: Annotated[int, "Number of recomputed tokens."]
    context_tokens: Annotated[int, "Number of tokens of the passages."]
    passages: Annotated[int, "Number of passages in the prompt."]
    passages_without_kv: Annotated[int, "Number of passages without usable KV."]


class RetrievalOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One question: `ranks` from 1 of its gold passages in what was found, null for one that was not."""

    ranks: Annotated[
        tuple[int | None, ...],
        "Rank of each gold passage, starting from 1; null for one that is not among the first 10.",
    ]
    search_ms: Annotated[float, "Duration of the search in milliseconds."]


class ComparedAnswers(msgspec.Struct, frozen=True):
    """The answers to one question."""

    stitched: Annotated[str, "Answer of the stitched prompt."]
    full: Annotated[str, "Answer of full prefill."]


class GivenPassage(msgspec.Struct, frozen=True):
    """A passage that came with a question."""

    text: Annotated[str, "Text of the passage.", Meta(min_length=1, max_length=20_000)]
    title: Annotated[str, "Title of the document.", Meta(max_length=500)] = ""


class GivenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that comes with a run, as a line of `ragkv eval fidelity --data`; other fields are ignored. `answers`:
    accepted ones, the first is measured. Sentences of `passages` that support it are to be found; or else texts of
    `gold`, word for word."""

    question: Annotated[str, "The question.", Meta(min_length=1, max_length=4_000)]
    answers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4_000)], ...],
        "Accepted answers; the first is measured.",
        Meta(max_length=20),
    ] = ()
    passages: Annotated[
        tuple[GivenPassage, ...],
        "Passages that the answer was made from. For `retrieval`, the search must find the sentences that support it.",
        Meta(max_length=100),
    ] = ()
    gold: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=20_000)], ...],
        "For `retrieval`, texts that the passages found must contain word for word.",
        Meta(max_length=100),
    ] = ()


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of an evaluation: `done` of `total` questions. Its figures are there once it has ended, of its kind
    alone."""

    id: Annotated[str, "Evaluation id."]
    kind: RunKind
    source: Annotated[Source, "Questions that are measured: `rated`, `logged` or `given`."]
    collection_id: str
    collection: Annotated[str, "Name of the collection."]
    state: Annotated[State, "State of the evaluation: `queued`, `running`, `done`, `cancelled` or `failed`."]
    total: Annotated[int, "Number of questions."]
    done: Annotated[int, "Number of questions that were measured or skipped."]
    settings: Annotated[RunSettings | None, "Settings that the evaluation runs with; null before it has begun."]
    fidelity: Annotated[FidelityFigures | None, "Figures of a `fidelity` evaluation that has ended."]
    retrieval: Annotated[RetrievalFigures | None, "Figures of a `retrieval` evaluation that has ended."]
    error: Annotated[str | None, "Reason why it ended early; null otherwise."]
    created_at: datetime
    ended_at: Annotated[datetime | None, "Time when it ended; null before that."]

    @property
    def is_open(self) -> bool:
        return self.state in ("queued", "running")


class EvaluationRunPage(msgspec.Struct, frozen=True):
    """A page of runs, newest first."""

    items: Annotated[list[EvaluationRun], "Evaluations, newest first."]
    next: str | None


class MeasuredQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a run. Its text, the known answer and the answers are null once the question is kept no longer."""

    ordinal: Annotated[int, "Number of the question in the evaluation, starting from 0."]
    question_id: Annotated[str | None, "Id of the question in the log; null for one that was given."]
    question: Annotated[str | None, "The question; null if it is no longer stored."]
    known_answer: Annotated[str | None, "First accepted answer; null without one."]
    answers: Annotated[
        ComparedAnswers | None,
        "Answers to the question; null before it was measured, for `retrieval`, or if they are no longer stored.",
    ]
    fidelity: Annotated[FidelityOutcome | None, "Outcome of a `fidelity` evaluation; null before it was measured."]
    retrieval: Annotated[RetrievalOutcome | None, "Outcome of a `retrieval` evaluation; null before it was measured."]
    error: Annotated[str | None, "Reason why the question was skipped; null otherwise."]


class EvaluationReport(msgspec.Struct, frozen=True):
    """A run with its questions, the worst first; those that are not measured yet last."""

    run: Annotated[EvaluationRun, "The evaluation."]
    questions: Annotated[list[MeasuredQuestion], "Its questions, worst first."]
