"""Statistics as clients see them: milliseconds, tokens, shares between 0 and 1."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ragkv.service.statistics.prefill_cost import Basis

Window = Literal["1h", "24h", "7d"]
Cached = Annotated[int, "Prompt tokens found in the engine's own prefix cache."]
Stitched = Annotated[int, "Prompt tokens whose stored KV was used."]
Recomputed = Annotated[
    int, "Prompt tokens of passages that were computed again, by choice or because their KV was not usable."
]
Computed = Annotated[int, "All other prompt tokens, such as those of the question."]


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles of the time to first token, in milliseconds, including retrieval."""

    p50_ms: Annotated[float, "Median in milliseconds.", Meta(examples=[182.4])]
    p95_ms: Annotated[float, "95th percentile in milliseconds.", Meta(examples=[411.0])]


class FullCost(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate of the time to first token of the stitched questions, had their prompts been computed in full.

    Engine time grows with the number of computed tokens and of the positions that they attend to. The rate is fitted to
    the fully computed prompts of the last 7 days: questions with mode `full` or, without any, stitched ones whose
    tokens were all recomputed. Prefixes that were found in the engine's cache are assumed to be found there in both
    cases.
    """

    p50_ms: Annotated[float, "Median in milliseconds.", Meta(examples=[1210.7])]
    p95_ms: Annotated[float, "95th percentile in milliseconds.", Meta(examples=[1893.2])]
    times_sooner: Annotated[
        float, "Ratio of this median to the median of the stitched questions.", Meta(examples=[6.6])
    ]
    basis: Annotated[
        Basis, "Prompts that the rate is fitted to: questions with mode `full`, or fully `recomputed` stitched ones."
    ]
    runs: Annotated[int, "Number of prompts that the rate is fitted to.", Meta(examples=[12])]


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """Time to first token by mode. A mode without questions is null."""

    stitched: Annotated[Percentiles | None, "Questions with mode `stitched`."]
    full: Annotated[Percentiles | None, "Questions with mode `full`."]
    stitched_in_full: Annotated[
        FullCost | None, "Estimate for the stitched questions, had their prompts been computed in full."
    ]
    hint: Annotated[str | None, "Advice if the estimate is missing; null otherwise."]


class TokenCounts(msgspec.Struct, frozen=True):
    """Token counts: `prompt` = `cached` + `stitched` + `recomputed` + `computed`."""

    prompt: Annotated[int, "Tokens of prompts.", Meta(examples=[104_312])] = 0
    cached: Annotated[Cached, Meta(examples=[2_816])] = 0
    stitched: Annotated[Stitched, Meta(examples=[88_120])] = 0
    recomputed: Annotated[Recomputed, Meta(examples=[9_790])] = 0
    computed: Annotated[Computed, Meta(examples=[3_586])] = 0
    completion: Annotated[int, "Tokens of answers.", Meta(examples=[412])] = 0
    saved: Annotated[
        int, "Prompt tokens that were not computed: the sum of `cached` and `stitched`.", Meta(examples=[90_936])
    ] = 0


class HitRate(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens of the stitched questions by origin, as shares from 0 to 1."""

    device: Annotated[float, "Share found in the engine's own prefix cache.", Meta(examples=[0.03])]
    host: Annotated[float, "Share from KV files in host memory.", Meta(examples=[0.8])]
    disk: Annotated[float, "Share from KV files on disk.", Meta(examples=[0.04])]
    remote: Annotated[
        float, "Share from KV files that came from the object store for the question.", Meta(examples=[0.0])
    ]
    recomputed: Annotated[float, "Share computed again, by choice or because no KV was usable.", Meta(examples=[0.09])]
    computed: Annotated[float, "Share of all other tokens, such as those of the question.", Meta(examples=[0.04])]
    failed_chunks: Annotated[int, "Number of chunks without usable KV.", Meta(examples=[0])]


class TierLoads(msgspec.Struct, frozen=True):
    """The time that placing stored KV took the stitched questions whose KV came from this tier or nearer ones."""

    tier: Annotated[str, "Farthest tier: `host`, `disk` or `remote`.", Meta(examples=["host"])]
    questions: Annotated[int, "Number of stitched questions.", Meta(examples=[34])]
    p50_ms: Annotated[float, "Median duration in milliseconds.", Meta(examples=[18.2])]
    p99_ms: Annotated[float, "99th percentile in milliseconds.", Meta(examples=[61.0])]


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One interval of the time series. Times are medians; null without questions of that mode."""

    start: Annotated[datetime, "Start of the interval."]
    questions: Annotated[int, "Number of answered questions."] = 0
    stitched_ms: Annotated[float | None, "Time to first token of stitched questions in milliseconds."] = None
    full_ms: Annotated[float | None, "Time to first token of questions with mode `full` in milliseconds."] = None
    stitched_in_full_ms: Annotated[
        float | None, "Estimated time to first token of the stitched questions with full prefill, in milliseconds."
    ] = None
    cached: Cached = 0
    stitched: Stitched = 0
    recomputed: Recomputed = 0
    computed: Computed = 0


class Jobs(msgspec.Struct, frozen=True):
    """Ingestion jobs by state."""

    queued: Annotated[int, "Documents waiting for a worker."] = 0
    running: Annotated[int, "Documents being ingested."] = 0
    failed: Annotated[int, "Documents that failed within the period."] = 0


class Questions(msgspec.Struct, frozen=True):
    """Number of answered questions by mode."""

    total: Annotated[int, "All answered questions.", Meta(examples=[37])]
    stitched: Annotated[int, "Questions answered with mode `stitched`.", Meta(examples=[34])]
    full: Annotated[int, "Questions answered with mode `full`.", Meta(examples=[3])]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a tenant's questions in a period."""

    window: Annotated[Window, "Period of the statistics."]
    since: Annotated[datetime, "Start of the period."]
    until: Annotated[datetime, "End of the period."]
    questions: Annotated[Questions, "Number of questions."]
    first_token: Annotated[FirstToken, "Time to first token."]
    tokens: Annotated[TokenCounts, "Token counts."]
    hit_rate: Annotated[HitRate | None, "Origin of prompt tokens; null without stitched questions."]
    jobs: Annotated[Jobs, "Ingestion jobs."]
    bucket_s: Annotated[int, "Length of an interval of the time series in seconds.", Meta(examples=[1800])]
    series: Annotated[list[Bucket], "Time series, oldest interval first."]


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
