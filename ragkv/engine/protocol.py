"""The engine's interface to the rest of the service, whatever process it runs in."""

import asyncio
import math
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
from msgspec.structs import replace

from ragkv.chunk import Chunk
from ragkv.errors import TooLarge, Unavailable
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import Compression
from ragkv.span import Position, Span
from ragkv.stitch.plan import Name, StitchPlan

if TYPE_CHECKING:
    from ragkv.kv.key import KeyMaker  # which needs torch

WHOLE_VOCABULARY = -1
MAX_LOGPROBS = 1000
"""The most `logprobs` that every engine of the service allows: all but a thousandth of what a model deems likely."""
LOOKAHEAD = 16
"""Tokens that are decoded behind each chunk of a prefill whose compression looks ahead."""
MAX_CHUNKS = 4096
"""Chunks of one prefill."""

Batch = Sequence[tuple[str, Chunk]]
"""Chunks that run through the model together, each with the key of its KV."""


class EngineLost(Unavailable):
    """The engine ended under a request, or had not `taken` it: it was away. Another one may answer the same request."""

    def __init__(self, message: str, retry_after_s: float = 5.0, *, taken: bool = True) -> None:
        super().__init__(message, retry_after_s)
        self.taken = taken


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of each token: by default the likeliest, so that the same question gets the same answer.

    `schema`: the JSON Schema, as text, that the answer follows. `stop`: the answer ends before the first of these.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: str | None = None


GREEDY = Sampling()


def check_window(tokens: int, window: int) -> None:
    """Check that a model's window holds the tokens of a prompt and its answer. Raises TooLarge."""
    if tokens > window:
        raise TooLarge(
            f"the prompt and its answer need {tokens} tokens, but the model's window is {window}: "
            "shorten the question, or ask for fewer passages or a shorter answer"
        )


@dataclass(frozen=True, slots=True)
class Generate:
    """One prompt to continue.

    `salt` keeps KV of different tenants and cache variants apart in the engine's prefix cache: it is derived by the
    service and never taken from a client. Without a `plan` the prompt is computed in full. With `capture`, the queries
    of those positions come back in the report (un-rotated mean per layer and head). `logprobs`: how many of the
    likeliest tokens come back with each step, beside the one that was taken; without text for MAX_LOGPROBS of them, and
    for WHOLE_VOCABULARY, where the engine allows it.
    `allowed_token_ids`: the tokens to choose from, all if empty; log probabilities are those before this choice.
    Requests of one `session` share much KV: of several engines one should serve them.
    """

    token_ids: tuple[int, ...]
    salt: str
    plan: StitchPlan | None = None
    max_tokens: int = 128
    sampling: Sampling = GREEDY
    logprobs: int | None = None
    allowed_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    capture: Span | None = None
    session: str | None = None

    def check_fits(self, max_model_len: int) -> None:
        """Check the length of the request. Raises TooLarge if prompt and answer do not fit the model's window."""
        check_window(len(self.token_ids) + self.max_tokens, max_model_len)


class PrefillChunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A chunk whose KV is stored under `key`. behind: tokens that only a compression looks at, the last `decoded` of
    which the model decoded itself."""

    key: Name
    token_ids: Annotated[tuple[Position, ...], msgspec.Meta(min_length=1)]
    behind: tuple[Position, ...] = ()
    decoded: Position = 0


class Prefill(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kv_format": "format"}):
    """Chunks to run through the model once, each behind the prefix and unaware of the others. Their KV is stored under
    their keys, and the prefix's, where it is not, under its own.

    model, dtype, writer: fingerprint of the weights, dtype of the KV and fingerprint of the writer that the keys are
    made of; without a writer the plain model runs them. compression: keeps the KV of some tokens of each chunk alone;
    with `cue_ids` the model goes on from each chunk and these tokens, and what it says chooses. `is_urgent`: a question
    waits for it, so that it comes before other prefills.
    """

    prefix_key: Name
    prefix_ids: tuple[Position, ...]
    chunks: Annotated[tuple[PrefillChunk, ...], msgspec.Meta(max_length=MAX_CHUNKS)]
    kv_format: KVFormat = KVFormat.BF16
    model: Name = ""
    dtype: Name = ""
    writer: Name = ""
    compression: Compression | None = None
    cue_ids: tuple[Position, ...] = ()
    is_urgent: bool = False

    @classmethod
    def of(
        cls, batch: Batch, keys: "KeyMaker", cue_ids: tuple[Position, ...] = (), *, is_urgent: bool = False
    ) -> "Prefill":
        """The prefill of chunks, and of the prefix if it has no KV, as `keys` name it."""
        return cls(
            prefix_key=keys.prefix(),
            prefix_ids=keys.prefix_ids,
            chunks=tuple(PrefillChunk(key, tuple(chunk.token_ids)) for key, chunk in batch),
            kv_format=keys.kv_format,
            model=keys.model,
            dtype=keys.dtype,
            writer=keys.writer,
            compression=keys.compression,
            cue_ids=cue_ids,
            is_urgent=is_urgent,
        )


class QueryVectors(msgspec.Struct, frozen=True, array_like=True):
    """float32 [q_layers, q_heads, head_dim] as bytes. See `ragkv.engine.wire.pack_queries`."""

    shape: tuple[Position, Position, Position]
    content: bytes

    def __post_init__(self) -> None:
        if len(self.content) != 4 * math.prod(self.shape):
            raise ValueError("not as many numbers as the shape says")


class Report(msgspec.Struct):
    """Work of the engine on one prompt, in tokens and milliseconds. Its sender leaves `cached` and `computed` to
    `ragkv.engine.wire.report_of`.

    cached: found in the engine's own prefix cache; stitched: placed from KV files and not recomputed; recomputed: run
    through the model in place; computed: the rest, run by the ordinary step; lost: those of it that vLLM counts as
    found. `failed_keys`: KV that was missing or corrupt when the engine looked, each recomputed whole; `host_keys`: KV
    whose file lay in host memory. `fills`: how often the region was filled, more than once after a preemption.
    `recomputed_spans`: which tokens were recomputed, ascending, None if the engine did not say. `queries`: with
    `capture` only.

    `error`: of a prefill, why not all of its KV was stored; `no_room`: the disk is full.
    """

    cached: int = 0
    stitched: int = 0
    recomputed: int = 0
    computed: int = 0
    lost: int = 0
    fills: int = 0
    kv_load_ms: float = 0.0
    recompute_ms: float = 0.0
    failed_keys: tuple[str, ...] = ()
    host_keys: frozenset[str] = frozenset()
    recomputed_spans: tuple[Span, ...] | None = None
    queries: QueryVectors | None = None
    error: str = ""
    no_room: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A step of the answer. The last output has `finish_reason` and `report`."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...] = ()
    finish_reason: str | None = None
    report: Report | None = None


class KVEngine(Protocol):
    """Computes and stores KV."""

    async def prefill(self, prefill: Prefill) -> None:
        """Compute the chunks' KV and store it, beside what else the engine does. Ended by cancelling it: what is stored
        stays. Raises OutOfSpace for a full disk, and Unavailable, also where engine and keys do not fit together."""


class Engine(KVEngine, Protocol):
    """Continues prompts, stitching KV where a plan says so.

    `generate` raises TooLarge for a prompt that does not fit and Unavailable when the engine is away. Closing the
    iterator early stops the generation. `status` is "ok" or what is wrong, for everybody to read.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ready(self) -> bool: ...

    async def status(self) -> str: ...

    def generate(self, request: Generate) -> AsyncGenerator[Output, None]: ...


async def looked_ahead(engine: Engine, prefill: Prefill) -> Prefill:
    """The prefill with its cue, and what the engine decodes behind it, behind each chunk."""
    if not prefill.cue_ids:
        return prefill

    async def behind(chunk: PrefillChunk) -> PrefillChunk:
        ids = (*prefill.prefix_ids, *chunk.token_ids, *prefill.cue_ids)
        request = Generate(ids, uuid.uuid4().hex, max_tokens=LOOKAHEAD, ignore_eos=True)
        decoded = [token async for output in engine.generate(request) for token in output.token_ids]
        return replace(chunk, behind=(*prefill.cue_ids, *decoded), decoded=len(decoded))

    return replace(prefill, chunks=tuple(await asyncio.gather(*map(behind, prefill.chunks))), cue_ids=())
