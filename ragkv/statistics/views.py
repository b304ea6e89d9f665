"""Statistics as clients see them: milliseconds, tokens, shares between 0 and 1."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ragkv.statistics.prefill_cost import Basis

Window = Literal["1h", "24h", "7d"]


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles of the time to first token, in milliseconds, including retrieval."""

    p50_ms: Annotated[float, Meta(examples=[182.4])]
    p95_ms: Annotated[float, Meta(examples=[411.0])]


class FullCost(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate of the time to first token of the stitched questions, had their prompts been computed in full.

    Engine time grows with the number of computed tokens and of the positions that they attend to. The rate is fitted to
    the fully computed prompts of the last 7 days: questions with mode `full` or, without any, stitched ones whose
    tokens were all recomputed. Prefixes that were found in the engine's cache are assumed to be found there in both
    cases.
    """

    p50_ms: Annotated[float, Meta(examples=[1210.7])]
    p95_ms: Annotated[float, Meta(examples=[1893.2])]
    times_sooner: Annotated[float, Meta(examples=[6.6])]
    basis: Basis
    runs: Annotated[int, Meta(examples=[12])]


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """Time to first token by mode. A mode without questions is null."""

    stitched: Percentiles | None
    full: Percentiles | None
    stitched_in_full: FullCost | None
    hint: str | None


class TokenCounts(msgspec.Struct, frozen=True):
    """Token counts: `prompt` = `cached` + `stitched` + `recomputed` + `computed`."""

    prompt: Annotated[int, Meta(examples=[104_312])] = 0
    cached: Annotated[int, Meta(examples=[2_816])] = 0
    stitched: Annotated[int, Meta(examples=[88_120])] = 0
    recomputed: Annotated[int, Meta(examples=[9_790])] = 0
    computed: Annotated[int, Meta(examples=[3_586])] = 0
    completion: Annotated[int, Meta(examples=[412])] = 0
    saved: Annotated[int, Meta(examples=[90_936])] = 0


class HitRate(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens of the stitched questions by origin, as shares from 0 to 1."""

    device: Annotated[float, Meta(examples=[0.03])]
    host: Annotated[float, Meta(examples=[0.8])]
    disk: Annotated[float, Meta(examples=[0.04])]
    remote: Annotated[float, Meta(examples=[0.0])]
    recomputed: Annotated[float, Meta(examples=[0.09])]
    computed: Annotated[float, Meta(examples=[0.04])]
    failed_chunks: Annotated[int, Meta(examples=[0])]


class TierLoads(msgspec.Struct, frozen=True):
    """The time that placing stored KV took the stitched questions whose KV came from this tier or nearer ones."""

    tier: Annotated[str, Meta(examples=["host"])]
    questions: Annotated[int, Meta(examples=[34])]
    p50_ms: Annotated[float, Meta(examples=[18.2])]
    p99_ms: Annotated[float, Meta(examples=[61.0])]


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One interval of the time series. Times are medians; null without questions of that mode."""

    start: datetime
    questions: int = 0
    stitched_ms: float | None = None
    full_ms: float | None = None
    stitched_in_full_ms: float | None = None
    cached: int = 0
    stitched: int = 0
    recomputed: int = 0
    computed: int = 0


class Jobs(msgspec.Struct, frozen=True):
    """Ingestion jobs by state."""

    queued: int = 0
    running: int = 0
    failed: int = 0


class Questions(msgspec.Struct, frozen=True):
    """Number of answered questions by mode."""

    total: Annotated[int, Meta(examples=[37])]
    stitched: Annotated[int, Meta(examples=[34])]
    full: Annotated[int, Meta(examples=[3])]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a tenant's questions in a period."""

    window: Window
    since: datetime
    until: datetime
    questions: Questions
    first_token: FirstToken
    tokens: TokenCounts
    hit_rate: HitRate | None
    jobs: Jobs
    bucket_s: Annotated[int, Meta(examples=[1800])]
    series: list[Bucket]


class AskedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An answered question. `in_full_ms`: the estimated time to first token with full prefill, see `FullCost`."""

    id: str
    text: str
    collection: str
    mode: str
    ttft_ms: float
    in_full_ms: float | None
    tokens: TokenCounts
    created_at: datetime
