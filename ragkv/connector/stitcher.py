"""vLLM's worker: stitching and recompute in place, in parts between which the engine can serve other requests."""

import math
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch

from ragkv.connector.capture import MeanQueries
from ragkv.connector.internals import ModelInternals
from ragkv.connector.metadata import KVSlice, StitchRequest
from ragkv.connector.select import Stitched, layers_looked_at, select_in_engine
from ragkv.engine.wire import WireReport
from ragkv.errors import Unsupported
from ragkv.kv.file import StoredKV, name_of_kept
from ragkv.kv.host import HostCache
from ragkv.kv.shard import Shard
from ragkv.span import Span, merge, split, total_tokens
from ragkv.stitch.plan import PlacedChunk

MAX_LAYERS_AT_ONCE = 10
MAX_SCRATCH_BYTES, MAX_DEVICE_SCRATCH_BYTES = 64 * 2**20, 256 * 2**20
"""On the CPU, and on an accelerator, where every copy is launched by itself: one of more layers takes fewer."""


@dataclass(slots=True)
class Fetched:
    """KV files read for one request, and the spans of those that could not be."""

    slices: list[KVSlice] = field(default_factory=list)
    lost: list[Span] = field(default_factory=list)
    failed_keys: list[str] = field(default_factory=list)
    host_keys: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class StepBudget:
    """Tokens that the model may still run in this step for stitches."""

    tokens: int = 0


class Stitcher:
    """Writes chunks' KV into vLLM's paged cache, rotated to their positions, and recomputes spans in place: each rank
    its heads.

    Ranks carry out the same requests in the same steps. Only `fetch` is each one's own affair.
    """

    def __init__(self, model: ModelInternals, store: HostCache, shard: Shard) -> None:
        """store: gives the shard's heads."""
        self._model = model
        self._store = store
        self._whole = shard.whole
        self._layout = shard.layout
        self.ranks = model.ranks
        assert len(model.layers) == self._whole.layers, "the engine runs another model than the one whose KV is kept"
        if any(layer.num_kv_heads != self._layout.kv_heads for layer in model.layers):
            raise Unsupported(
                "vLLM divides this model's KV heads among GPUs in another way: set RAGKV_TENSOR_PARALLEL_SIZE=1"
            )

    @property
    def block_size(self) -> int:
        """Tokens of one cache block."""
        return self._model.block_size

    def fetch(self, stitch: StitchRequest) -> Fetched:
        """Map and check the files of every chunk that is not recomputed whole. Needs no model: any thread may do it."""
        began = time.perf_counter()
        fetched = Fetched()
        for placed in stitch.filled_from:
            span = stitch.clip(placed.span)
            if placed.key is None:
                fetched.lost.append(span)
            else:
                self._fetch_chunk(placed, placed.key, span, fetched)
        fetched.seconds = time.perf_counter() - began
        return fetched

    def carry_out(
        self, stitch: StitchRequest, reading: Future[Fetched], room: StepBudget
    ) -> Generator[None, None, WireReport]:
        """Fill the region of the request, whose files every rank has read. A file that was missing or corrupt becomes a
        recompute of its span.

        Yields when the step's room is used up, and goes on when there is room again. Runs in inference mode.
        """
        with self.ranks.together():
            fetched = reading.result()
        self._agree_on(fetched)
        report = WireReport(fills=1, kv_load_ms=fetched.seconds * 1e3)
        block_ids = torch.tensor(stitch.block_ids, device=self._model.device)
        with self._timed(report, "kv_load_ms"), self.ranks.together():
            stitched = self._write(fetched.slices, layers_looked_at(self._layout, stitch), block_ids)
        spans = merge([*map(stitch.clip, stitch.plan.recompute), *fetched.lost])
        if stitch.plan.selection is not None:
            # What has no KV yet runs now, so that the policy sees no empty cache; it runs again with what is chosen,
            # whose fresh KV it may attend to.
            settled = WireReport()
            yield from self._recompute(stitch, spans, block_ids, settled, room)
            report.recompute_ms += settled.recompute_ms
            with self._timed(report, "recompute_ms"):
                selected = select_in_engine(self._model, self._layout, stitch, stitched, block_ids)
            spans = merge([*spans, *selected])
        yield from self._recompute(stitch, spans, block_ids, report, room)
        report.recomputed = total_tokens(spans)
        report.recomputed_spans = [(span.start, span.end) for span in spans]
        report.stitched = stitch.region.num_tokens - report.recomputed
        report.failed_keys = fetched.failed_keys
        report.host_keys = fetched.host_keys
        return report

    def recompute_whole(self, stitch: StitchRequest, room: StepBudget) -> Generator[None, None, WireReport]:
        """Run the whole region of the request through the model, over whatever a failed `carry_out` left in the cache,
        yielding like it.

        Exact: a position attends only to positions before it, which hold fresh KV by then, or lie before the region.
        """
        report = WireReport(fills=1, recomputed=stitch.region.num_tokens, failed_keys=stitch.keys)
        report.recomputed_spans = [(stitch.start, stitch.end)]
        block_ids = torch.tensor(stitch.block_ids, device=self._model.device)
        yield from self._recompute(stitch, [stitch.region], block_ids, report, room)
        return report

    def _agree_on(self, fetched: Fetched) -> None:
        """Give up the chunks that another rank could not read: what is lost to one is lost to all."""
        read = {kv_slice.span: kv_slice for kv_slice in fetched.slices}
        spans = sorted([*read, *fetched.lost], key=lambda span: span.start)
        on_all = dict(zip(spans, self.ranks.all_of([span in read for span in spans]), strict=True))
        given_up = [kv_slice for span, kv_slice in read.items() if not on_all[span]]
        fetched.slices = [kv_slice for kv_slice in fetched.slices if on_all[kv_slice.span]]
        fetched.lost += [kv_slice.span for kv_slice in given_up]
        fetched.failed_keys += [kv_slice.key for kv_slice in given_up]

    def _fetch_chunk(self, placed: PlacedChunk, key: str, span: Span, fetched: Fetched) -> None:
        in_memory = self._store.in_memory(key)  # before it is read
        kv = self._store.get(key, self._whole)
        if kv is None or (kv.num_tokens, _kept_by(kv)) != (placed.span.num_tokens, placed.kept):
            fetched.lost.append(span)
            fetched.failed_keys.append(key)
            return
        fetched.slices.append(KVSlice(key, span, span.start - placed.span.start, kv))
        if in_memory:
            fetched.host_keys.append(key)

    def _write(self, slices: Sequence[KVSlice], kept_layers: Sequence[int], block_ids: torch.Tensor) -> Stitched:
        """Write all layers. The rotated keys of `kept_layers` are returned: a selection would rotate them once more."""
        rotated_keys: dict[int, torch.Tensor] = {}
        if not slices:
            return Stitched(slices, rotated_keys)
        batch = self._model.batch([kv_slice.span for kv_slice in slices], block_ids)
        shape = (len(batch.positions), self._layout.kv_heads, self._layout.head_dim)
        # Several layers at a time, for fewer calls, within a bounded scratch.
        layer_bytes = math.prod(shape) * self._model.dtype.itemsize
        scratch_bytes = MAX_SCRATCH_BYTES if self._model.device.type == "cpu" else MAX_DEVICE_SCRATCH_BYTES
        step = max(1, min(MAX_LAYERS_AT_ONCE, scratch_bytes // layer_bytes))
        # One scratch for all layers: fresh pages for every layer would cost more than the copies themselves.
        scratch = [self._scratch(step, shape) for _ in "kv"]
        for first_layer in range(0, self._layout.layers, step):
            layers = slice(first_layer, min(first_layer + step, self._layout.layers))
            keys, values = (buffer[: layers.stop - first_layer] for buffer in scratch)
            if any(first_layer <= layer < layers.stop for layer in kept_layers):
                # Rotated in place, these keys are returned: the next layers must not overwrite them.
                keys = self._scratch(len(keys), shape)
            self._gather(slices, layers, keys, values)
            for index, layer in enumerate(self._model.layers[layers]):
                rotated = self._model.rotate(batch.positions, keys[index])
                self._model.write(layer, rotated, values[index], batch.slots)
                if first_layer + index in kept_layers:
                    rotated_keys[first_layer + index] = rotated
        return Stitched(slices, rotated_keys)

    def _scratch(self, layers: int, shape: Sequence[int]) -> torch.Tensor:
        return torch.empty(layers, *shape, dtype=self._model.dtype, device=self._model.device)

    def _gather(self, slices: Sequence[KVSlice], layers: slice, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write some layers of the slices, one behind the other, into two [layers, tokens, kv_heads, head_dim]."""
        row = 0
        for kv_slice in slices:
            rows = slice(row, row + kv_slice.span.num_tokens)
            kv_slice.kv.copy_into(keys[:, rows], values[:, rows], layers, kv_slice.offset)
            row = rows.stop

    def _recompute(
        self,
        stitch: StitchRequest,
        spans: Sequence[Span],
        block_ids: torch.Tensor,
        report: WireReport,
        room: StepBudget,
    ) -> Generator[None, None, None]:
        token_ids = torch.tensor(stitch.token_ids, device=self._model.device)
        capture = MeanQueries(self._model, self._layout, stitch.capture) if stitch.capture else None
        while spans:
            while not room.tokens:
                yield
            # Splitting changes nothing: a span attends only to what lies before its end, and that is done by then.
            part, spans = split(spans, min(room.tokens, self._model.max_tokens), self._model.max_sequences)
            batch = self._model.batch(part, block_ids)
            with self._timed(report, "recompute_ms"), capture.of(batch) if capture else nullcontext():
                self._model.forward(token_ids[batch.positions], batch, block_ids)
            room.tokens -= len(batch.positions)
        if capture is not None:
            capture.report(report)

    @contextmanager
    def _timed(self, report: WireReport, name: str) -> Iterator[None]:
        """Add to the report how long the block took on the device, in milliseconds."""
        self._model.synchronize()  # the step before may still run
        began = time.perf_counter()
        yield
        self._model.synchronize()
        setattr(report, name, getattr(report, name) + (time.perf_counter() - began) * 1e3)


def _kept_by(kv: StoredKV) -> str:
    """Names which of its chunk's tokens the KV is of: another file may have taken the planned one's place."""
    return "" if kv.kept is None else name_of_kept(kv.kept.tolist())
