"""vLLM's scheduler and worker: metadata between the connector's halves: requests to the worker, reports back."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from ragkv.engine.protocol import Prefill, Report
from ragkv.kv.file import StoredKV
from ragkv.span import Span, merge, tokens_within
from ragkv.stitch.plan import PlacedChunk, StitchPlan


@dataclass(frozen=True, slots=True)
class StitchRequest:
    """A promise to begin to keep in this step: the positions `region` of one request must hold KV before it runs.

    What lies before them is in vLLM's cache already, made in the same way (StitchPlan.cache_variant). `token_ids` are
    the prompt's.
    """

    request_id: str
    plan: StitchPlan
    region: Span
    block_ids: list[int]
    token_ids: list[int]
    capture: Span | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The KV files that the region would be filled from: not those of chunks that are recomputed whole."""
        return tuple(chunk.key for chunk in self.filled_from if chunk.key)

    @property
    def filled_from(self) -> list[PlacedChunk]:
        """The chunks of which KV would be written."""
        recomputed = merge(self.plan.recompute)
        parts = ((chunk, self.clip(chunk.span)) for chunk in self.plan.placed)
        return [chunk for chunk, part in parts if tokens_within(recomputed, part) < part.num_tokens]

    @property
    def lacks_context(self) -> bool:
        """Whether a recompute of the region would look at positions before it that have no KV. Filling them would write
        over blocks that running answers read."""
        return self.plan.narrow and self.region.start > 0

    def near(self, spans: Sequence[Span], window: int) -> tuple[Span, ...] | None:
        """The positions of which layers with this window need KV, None for all: of a narrow plan those that are seen
        from `spans`, which are recomputed, and from the first position behind the region."""
        if not self.plan.narrow:
            return None
        running = [*spans, Span(self.region.end, self.region.end + 1)]
        return merge(Span(max(0, span.start - window + 1), span.end) for span in running)

    def clip(self, span: Span) -> Span:
        """The part of `span` that is to be stitched."""
        return span.clipped_to(self.region)


@dataclass(frozen=True, slots=True)
class PrefillRequest:
    """Chunks to prefill and to store, from this step on."""

    request_id: str
    prefill: Prefill


@dataclass(frozen=True, slots=True)
class KVSlice:
    """The part of one chunk's KV that goes to [span): rows [offset, offset + span) of the file of `key`."""

    key: str
    span: Span
    offset: int
    kv: StoredKV


@dataclass
class StitchMetadata(KVConnectorMetadata):
    """The stitches and prefills to begin in one step. room: tokens that the model may run for stitches in it; is_idle:
    the step serves nothing else. prefill_room: tokens of chunks that may be prefilled in it."""

    requests: list[StitchRequest]
    room: int
    is_idle: bool
    prefills: list[PrefillRequest] = field(default_factory=list)
    prefill_room: int = 0


@dataclass
class StitchReports(KVConnectorWorkerMetadata):
    """Reports of the worker on what it finished in one step, by request id. times: milliseconds by names in a report,
    which may come in a later step. failed: those that vLLM has to compute itself. prefilled: reports on prefills.
    prefills_s: seconds that prefills took in the step.

    All ranks finish the same requests in the same step; the first one's reports stand for all.
    """

    by_request: dict[str, Report] = field(default_factory=dict)
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    prefilled: dict[str, Report] = field(default_factory=dict)
    prefills_s: float = 0.0

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, StitchReports)
        return StitchReports(
            other.by_request | self.by_request,
            other.times | self.times,
            self.failed | other.failed,
            other.prefilled | self.prefilled,
            max(self.prefills_s, other.prefills_s),
        )
