"""Statistics as clients see them: milliseconds, tokens, shares between 0 and 1."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ragkv.statistics.basis import Basis

Window = Literal["1h", "24h", "7d"]


class Percentiles(msgspec.Struct, frozen=True):
    """Milliseconds to the first token, retrieval included: half of the questions took at most `p50_ms`."""

    p50_ms: Annotated[float, Meta(examples=[182.4])]
    p95_ms: Annotated[float, Meta(examples=[411.0])]


class FullCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the same stitched questions would have taken with every prompt computed: an estimate.

    Engine's time grows with the tokens computed and with what they attend to; how fast is fitted to `runs` prompts of
    the last 7 days that were computed: questions with mode `full` or, without any, stitched ones for which all had to be
    recomputed. What a question found in the engine's own cache, it is taken to find there in full as well.
    `times_sooner`: this median over that of stitching.
    """

    p50_ms: Annotated[float, Meta(examples=[1210.7])]
    p95_ms: Annotated[float, Meta(examples=[1893.2])]
    times_sooner: Annotated[float, Meta(examples=[6.6])]
    basis: Basis
    runs: Annotated[int, Meta(examples=[12])]


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """Time to first token by mode, null without such questions. `hint`: what to do for an estimate that is missing."""

    stitched: Percentiles | None
    full: Percentiles | None
    stitched_in_full: FullCost | None
    hint: str | None


class TokenCounts(msgspec.Struct, frozen=True):
    """prompt = cached + stitched + recomputed + computed. `saved` did not run through the model: cached or stitched."""

    prompt: Annotated[int, Meta(examples=[104_312])] = 0
    cached: Annotated[int, Meta(examples=[2_816])] = 0
    stitched: Annotated[int, Meta(examples=[88_120])] = 0
    recomputed: Annotated[int, Meta(examples=[9_790])] = 0
    computed: Annotated[int, Meta(examples=[3_586])] = 0
    completion: Annotated[int, Meta(examples=[412])] = 0
    saved: Annotated[int, Meta(examples=[90_936])] = 0


class HitRate(msgspec.Struct, frozen=True, kw_only=True):
    """Of the stitched questions' prompts, the share that each tier gave, and the share that ran through the model.

    device: the engine's own prefix cache. host: KV files that lay in memory. disk: KV files that had to be read.
    recomputed: in place, by choice or for want of KV. computed: the question and what follows it, which no cache can have. `failed_chunks` had no usable KV.
    """

    device: Annotated[float, Meta(examples=[0.03])]
    host: Annotated[float, Meta(examples=[0.8])]
    disk: Annotated[float, Meta(examples=[0.04])]
    recomputed: Annotated[float, Meta(examples=[0.09])]
    computed: Annotated[float, Meta(examples=[0.04])]
    failed_chunks: Annotated[int, Meta(examples=[0])]


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the time series, `bucket_s` long. Milliseconds are medians, null without such questions."""

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
    """Documents that wait for a worker, that one reads now, and that failed within the window."""

    queued: int = 0
    running: int = 0
    failed: int = 0


class Questions(msgspec.Struct, frozen=True):
    """How many were answered."""

    total: Annotated[int, Meta(examples=[37])]
    stitched: Annotated[int, Meta(examples=[34])]
    full: Annotated[int, Meta(examples=[3])]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant's questions took between `since` and `until`."""

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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was answered. `in_full_ms`: an estimate of what full prefill would have cost, see `FullCost`."""

    id: str
    text: str
    collection: str
    mode: str
    ttft_ms: float
    in_full_ms: float | None
    tokens: TokenCounts
    created_at: datetime
