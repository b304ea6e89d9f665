"""A question, its limits, and the events of its answer: values that all parts of the service share."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

from ragkv.chunk import Passage
from ragkv.engine.protocol import GREEDY, Sampling
from ragkv.errors import Rejected, TooLarge
from ragkv.ids import new_id
from ragkv.settings import LEAST_READ, Mode
from ragkv.stitch.policies import BLOCK_SIZES, PolicyName
from ragkv.text import clean_question

PartKind = Literal["prefix", "passage", "question"]
Origin = Literal["cached", "stitched", "recomputed", "computed"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
KVSource = Literal["device", "host", "disk", "remote", "recomputed"]


LONG_CHARACTERS = 1_500
"""Questions have a few hundred characters. A framework's prompt with four passages has two thousand, and more."""
_LONG_MESSAGE = (
    "the message has {:,} characters: passages put into it are computed anew and disturb the search; ask the question "
    "alone, or set retrieval to false"
)
_LONG_INSTRUCTIONS = "the instructions have {:,} characters, which are computed anew for each question: keep them short, without passages"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the conversation before the question."""

    role: Literal["user", "assistant"]
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean_question(self.text))


@dataclass(frozen=True, slots=True)
class Question:
    """A question to one collection, its characters those of documents. What is None follows the settings.

    `history`: the conversation so far, oldest turn first. `document_ids`: passages come from these documents alone.
    `instructions`: what the answer is to observe; it stands with the question, and nothing is searched for it.
    `answer_cache`: whether an earlier answer may serve, and this one later, where the collection keeps answers.
    `sees_kept_question`: whether who asks may read the question of somebody else that a kept answer was given to.
    `relevance_threshold`: passages of less relevance are as if they had not been found. `sparse_ratio`: the share of
    the passages' tokens that is read, 1 for all. `retrieval`: False for an answer from the conversation alone. `id`: of
    its record and of its answer.
    """

    tenant_id: str
    collection_id: str
    text: str
    mode: Mode = "stitched"
    policy: PolicyName | None = None
    recompute_ratio: float | None = None
    block_size: int | None = None
    sparse_ratio: float | None = None
    top_k: int | None = None
    hops: int | None = None
    max_tokens: int | None = None
    history: tuple[Turn, ...] = ()
    document_ids: frozenset[str] | None = None
    relevance_threshold: float = 0.0
    instructions: str = ""
    sampling: Sampling = GREEDY
    retrieval: bool = True
    answer_cache: bool = True
    sees_kept_question: bool = False
    id: str = field(default_factory=new_id, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean_question(self.text))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the answer may be worse or later than it could be, for those who ask."""
        if not self.retrieval:
            return ()
        characters = ((len(self.text), _LONG_MESSAGE), (len(self.instructions), _LONG_INSTRUCTIONS))
        return tuple(text.format(number) for number, text in characters if number > LONG_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation: characters [start, end) of a document's text support characters [answer_start, answer_end) of the
    answer. `outdated`: the reason why the text is of an earlier file than the document's."""

    answer_start: int
    answer_end: int
    chunk_id: str
    document_id: str
    title: str
    page: int | None
    start: int
    end: int
    quote: str
    page_label: str | None = None  # answers that the cache kept before it was recorded have none
    outdated: str | None = None


@dataclass(frozen=True, slots=True)
class PassageKV:
    """The origin of a passage's keys and values.

    `disk` also stands for KV files of which the engine did not report the tier, `remote` for files that came from the
    object store for this question.
    """

    source: Annotated[
        KVSource,
        "`device`: the engine's own cache. `host`: a KV file in host memory. `disk`: a KV file on disk. `remote`: "
        "a KV file that came from the object store for this question. `recomputed`: computed again, by choice or "
        "because no KV was usable.",
    ]
    tokens: Annotated[int, "Number of tokens of the passage in the prompt."]
    recomputed_tokens: Annotated[
        int | None, "Number of these tokens that were computed again; null if the engine did not report it."
    ]


@dataclass(frozen=True, slots=True)
class PromptSpan:
    """The origin of tokens [start, end) of the prompt."""

    start: Annotated[int, "Offset of the first token in the prompt."]
    end: Annotated[int, "Offset after the last token in the prompt."]
    kind: Annotated[PartKind, "Part of the prompt: `prefix` (the instructions), `passage` or `question`."]
    origin: Annotated[Origin | None, "Origin of the tokens, as in `usage`; null if the engine did not report it."]
    passage: Annotated[int | None, "Index in `passages`; null for other parts."]


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of an answer, in milliseconds."""

    retrieve_ms: Annotated[float, "Duration of retrieval, or of the look-up in the answer cache."]
    plan_ms: Annotated[float, "Duration of building the prompt, waiting for stored KV and planning its use."]
    ttft_ms: Annotated[float, "Time from the arrival of the question to the first token, including retrieval."]
    engine_ttft_ms: Annotated[float, "Time from the hand-over to the engine to the first token."]
    kv_load_ms: Annotated[float, "Duration of loading stored KV."]
    recompute_ms: Annotated[float, "Duration of recomputing selected tokens."]
    total_ms: Annotated[float, "Time from the arrival of the question to the end of the answer."]

    @classmethod
    def without_model(cls, took_ms: float) -> "Timings":
        """Durations of an answer for which no token ran through the model."""
        return cls(took_ms, 0.0, took_ms, 0.0, 0.0, 0.0, took_ms)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. prompt = cached + stitched + recomputed + computed; `failed_chunks` had no usable KV."""

    prompt: int
    cached: int
    stitched: int
    recomputed: int
    computed: int
    completion: int
    failed_chunks: int


NOTHING_RAN = Usage(prompt=0, cached=0, stitched=0, recomputed=0, computed=0, completion=0, failed_chunks=0)


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The cache entry that an answer was taken from. `question`: None for those who may not read it."""

    question: Annotated[str | None, "The earlier question; null unless the API key has the scope `admin`."]
    similarity: Annotated[float, "Cosine similarity of the two questions."]
    age_s: Annotated[float, "Age of the cache entry in seconds."]


@dataclass(frozen=True, slots=True)
class Delta:
    """The next part of an answer."""

    text: Annotated[str, "Text to append to the answer."]


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer, last event of every stream. `passages` are in the order of the prompt. `kv` says of each where
    its KV came from, `prompt_spans` of each token of the prompt; both are empty for an answer that was kept from an
    earlier question. `omitted_passages`: those that were found and not read, best first: the window had no room for
    them, or the prompt is sparse. `id`: the question's. `prompt_positions`: of the passages, once they are in another
    order."""

    id: str
    text: str
    finish_reason: str
    citations: tuple[Citation, ...]
    passages: tuple[Passage, ...]
    timings: Timings
    usage: Usage
    kv: tuple[PassageKV, ...] = ()
    prompt_spans: tuple[PromptSpan, ...] = ()
    cached_answer: CachedAnswer | None = None
    omitted_passages: tuple[Passage, ...] = ()
    warnings: tuple[str, ...] = ()
    prompt_positions: tuple[int, ...] = ()

    def best_first(self) -> "Answer":
        """The answer as it is shown: its passages best first, with their positions in the prompt. Of equal ones the
        later comes first, as in the order that prompts have by default."""
        positions = sorted(range(len(self.passages)), key=lambda i: (self.passages[i].score, i), reverse=True)
        ranks = {position: rank for rank, position in enumerate(positions)}
        return replace(
            self,
            passages=tuple(self.passages[i] for i in positions),
            kv=tuple(self.kv[i] for i in positions) if self.kv else (),
            prompt_spans=tuple(
                span if span.passage is None else replace(span, passage=ranks[span.passage])
                for span in self.prompt_spans
            ),
            prompt_positions=tuple(positions),
        )

    @property
    def no_passages(self) -> bool:
        """Whether nothing was found, or looked for."""
        return not self.passages


QUESTION_CHARACTERS = 10_000
INSTRUCTIONS_CHARACTERS = 32_000
"""Instructions of one request, beside its question."""


def check_question(question: Question) -> None:
    """Check a question with its options. Raises TooLarge, or Rejected for an empty question and for options out of
    range."""
    check_question_text(question.text)
    check_instructions(question.instructions)
    if question.recompute_ratio is not None and not 0 <= question.recompute_ratio <= 1:
        raise Rejected("recompute_ratio must be between 0 and 1")
    if question.sparse_ratio is not None and not LEAST_READ <= question.sparse_ratio <= 1:
        raise Rejected(f"sparse_ratio must be between {LEAST_READ} and 1")
    if question.block_size is not None and question.block_size not in BLOCK_SIZES:
        raise Rejected(f"block_size must be between {BLOCK_SIZES[0]} and {BLOCK_SIZES[-1]}")


def check_question_text(question: str) -> None:
    """Check a question's text. Raises TooLarge for a question above the limit, Rejected for an empty one, and for
    one that is no text: a command's arguments may be any bytes."""
    if len(question) > QUESTION_CHARACTERS:
        raise TooLarge(
            f"the question has {len(question):,} characters, more than the {QUESTION_CHARACTERS:,} allowed: shorten it, or "
            "upload the text as a document and ask about that"
        )
    try:
        question.encode()
    except UnicodeEncodeError:
        raise Rejected("the question is not valid UTF-8") from None
    if not clean_question(question):
        raise Rejected("the question is empty: ask something")


def check_instructions(instructions: str) -> None:
    """Check a question's instructions. Raises TooLarge for instructions above the limit."""
    if len(instructions) > INSTRUCTIONS_CHARACTERS:
        raise TooLarge(
            f"the instructions have {len(instructions):,} characters, more than the {INSTRUCTIONS_CHARACTERS:,} allowed: "
            "shorten them, or upload the text as a document"
        )
