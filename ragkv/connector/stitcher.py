"""vLLM's worker: stitching and recompute in place, in parts between which the engine can serve other requests."""

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

import torch

from ragkv.connector.internals import InPlaceBatch, ModelInternals
from ragkv.connector.latent import Queries
from ragkv.connector.metadata import KVSlice, StitchRequest
from ragkv.connector.select import Stitched, layers_looked_at, select_in_engine
from ragkv.connector.staging import Staging
from ragkv.engine.protocol import Report
from ragkv.engine.wire import pack_queries
from ragkv.errors import Unsupported
from ragkv.ids import batched, runs
from ragkv.kv.file import name_of_kept, part_of
from ragkv.kv.host import HostCache
from ragkv.kv.layout import Layout, Shard
from ragkv.kv.pieces import FilePart
from ragkv.span import Span, merge, split, total_tokens

FILES_AT_ONCE = 4
"""Files of one prompt that are read at the same time: from the disk, and for a GPU from the page cache."""
MAX_LAYERS_AT_ONCE = 10
MAX_SCRATCH_BYTES, MAX_DEVICE_SCRATCH_BYTES = 64 * 2**20, 128 * 2**20


@dataclass(frozen=True, slots=True)
class Portion:
    """Amounts that are written at a time: tokens of several chunks, layers of these, and bytes of their keys (values
    are as many). readers: threads that read their files."""

    tokens: int
    layers: int
    num_bytes: int
    readers: int = 1

    @classmethod
    def on(cls, device: torch.device, layout: Layout, token_bytes: int) -> "Portion":
        """On a CPU a few layers of all chunks, so that the scratch stays in its caches. On an accelerator, where every
        copy is launched by itself, all layers of a few chunks, whose files it takes faster than one thread reads them.
        token_bytes: of one layer's keys of a token."""
        if device.type == "cpu":
            return cls(sys.maxsize, MAX_LAYERS_AT_ONCE, MAX_SCRATCH_BYTES)
        tokens = MAX_DEVICE_SCRATCH_BYTES // (layout.layers * token_bytes)
        return cls(tokens, layout.layers, MAX_DEVICE_SCRATCH_BYTES, FILES_AT_ONCE)


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
    """Tokens that the model may still run in this step for stitches. is_idle: the step serves nothing else."""

    tokens: int = 0
    is_idle: bool = True


class Stopwatch:
    """Times of the parts of a stitch on the device, in milliseconds, by the names that its report has for them. Nothing
    waits for an accelerator, which has work ahead, until they are read."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_host: dict[str, float] = {}
        self._on_device: list[tuple[str, torch.Event, torch.Event]] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Time the block as part of `name`."""
        if self._device.type == "cpu":
            began = time.perf_counter()
            yield
            self._on_host[name] = self._on_host.get(name, 0.0) + (time.perf_counter() - began) * 1e3
            return
        start, end = (torch.Event(self._device, enable_timing=True) for _ in "ab")
        start.record()
        yield
        end.record()
        self._on_device.append((name, start, end))

    @property
    def may_run(self) -> bool:
        """Whether what was timed may still be under way, on an accelerator."""
        return bool(self._on_device)

    def times(self) -> dict[str, float]:
        """Wait for what was timed. Returns its times."""
        times = dict(self._on_host)
        for name, start, end in self._on_device:
            end.synchronize()
            times[name] = times.get(name, 0.0) + start.elapsed_time(end)
        return times


class Stitcher:
    """Writes chunks' KV into vLLM's paged cache, rotated to their positions, and recomputes spans in place: each rank
    its heads.

    Ranks carry out the same requests in the same steps. Only `fetch` is each one's own affair. room: of the step that
    runs.
    """

    def __init__(self, model: ModelInternals, store: HostCache, shard: Shard) -> None:
        """store: gives the shard's heads."""
        self._model = model
        self._store = store
        self._whole = shard.whole
        self._layout = shard.layout
        self.ranks, self.block_size = model.ranks, model.block_size
        self.room = StepBudget()
        self._token_bytes = self._layout.kv_heads * self._layout.head_dim * model.dtype.itemsize
        self.portion = Portion.on(model.device, self._layout, self._token_bytes)
        if model.device.type == "cuda":
            copies = torch.cuda.Stream(model.device)  # type: ignore[no-untyped-call]
            of_keys = self.portion.num_bytes
            of_values = of_keys * self._layout.value_dim // self._layout.head_dim
            self._staging = Staging(model.dtype, model.device, (of_keys, of_values), copies)
        else:
            self._staging = Staging(model.dtype, model.device)
        self._readers = ThreadPoolExecutor(FILES_AT_ONCE, "KV to the device")
        windows = {layer: model.window_of(layer) for layer in range(len(model.layers))}
        self._windows = {layer: window for layer, window in windows.items() if window}
        assert len(model.layers) == self._whole.layers, "the engine runs another model than the one whose KV is kept"
        if any(layer.num_kv_heads != self._layout.kv_heads for layer in model.layers):
            raise Unsupported(
                "vLLM divides this model's KV heads among GPUs in another way: set RAGKV_TENSOR_PARALLEL_SIZE=1"
            )

    def watch(self) -> Stopwatch:
        """Times a stitch."""
        return Stopwatch(self._model.device)

    def fetch(self, stitch: StitchRequest) -> Fetched:
        """Map and check the files of every chunk that is not recomputed whole. Needs no model: any thread may do it."""
        began = time.perf_counter()
        fetched = Fetched()
        on_disk = [key for placed in stitch.filled_from if (key := placed.key) and not self._store.in_memory(key)]
        # Threads of this prompt alone: a file that hangs holds up no other prompt's. What is in memory needs none.
        with ThreadPoolExecutor(FILES_AT_ONCE, "KV file") as files:
            from_disk = dict(zip(on_disk, files.map(self._store.get, on_disk, repeat(self._whole)), strict=True))
        for placed in stitch.filled_from:
            span = stitch.clip(placed.span)
            if placed.key is None:
                fetched.lost.append(span)
                continue
            in_memory = placed.key not in from_disk
            kv = self._store.get(placed.key, self._whole, in_memory=True) if in_memory else from_disk[placed.key]
            # Another file may have taken the place of the planned one, with KV of other tokens of the chunk.
            tokens_name = "" if kv is None or kv.kept is None else name_of_kept(kv.kept.tolist())
            if kv is None or (kv.num_tokens, tokens_name) != (placed.span.num_tokens, placed.kept):
                fetched.lost.append(span)
                fetched.failed_keys.append(placed.key)
                continue
            fetched.slices.append(KVSlice(placed.key, span, span.start - placed.span.start, kv))
            if in_memory:
                fetched.host_keys.append(placed.key)
        fetched.seconds = time.perf_counter() - began
        return fetched

    def carry_out(
        self, stitch: StitchRequest, reading: Future[Fetched], watch: Stopwatch
    ) -> Generator[None, None, Report]:
        """Fill the region of the request, whose files every rank has read. A file that was missing or corrupt becomes a
        recompute of its span; where that lacks its context, nothing is filled.

        Yields when the step's room is used up, and goes on when there is room again. Runs in inference mode.
        """
        with self.ranks.together():
            fetched = reading.result()
        self._agree_on(fetched)
        if fetched.lost and stitch.lacks_context:
            return Report(fills=1, failed_keys=tuple(fetched.failed_keys), recomputed_spans=())
        report = Report(fills=1, kv_load_ms=fetched.seconds * 1e3)
        block_ids = self._model.sent(torch.tensor(stitch.block_ids))
        looked_at = layers_looked_at(self._model, stitch)
        spans = merge([*map(stitch.clip, stitch.plan.recompute), *fetched.lost])
        near = stitch.near(spans, max(self._windows.values(), default=1))
        stitched = yield from self.write(fetched.slices, looked_at, block_ids, watch, near)
        if stitch.plan.selection is not None:
            # What has no KV yet runs now, so that the policy sees no empty cache; it runs again with what is chosen,
            # whose fresh KV it may attend to.
            yield from self._recompute(stitch, spans, block_ids, Report(), watch)
            with watch.of("recompute_ms"):
                selected = select_in_engine(self._model, stitch, stitched)
            spans = merge([*spans, *selected])
        yield from self._recompute(stitch, spans, block_ids, report, watch)
        report.recomputed = total_tokens(spans)
        report.recomputed_spans = spans
        report.stitched = stitch.region.num_tokens - report.recomputed
        report.failed_keys, report.host_keys = tuple(fetched.failed_keys), frozenset(fetched.host_keys)
        return report

    def recompute_whole(self, stitch: StitchRequest, watch: Stopwatch) -> Generator[None, None, Report]:
        """Run the whole region of the request through the model, over whatever a failed `carry_out` left in the cache,
        yielding like it.

        Exact: a position attends only to positions before it, which hold fresh KV by then, or lie before the region.
        """
        report = Report(fills=1, recomputed=stitch.region.num_tokens, failed_keys=stitch.keys)
        report.recomputed_spans = (stitch.region,)
        block_ids = self._model.sent(torch.tensor(stitch.block_ids))
        yield from self._recompute(stitch, [stitch.region], block_ids, report, watch)
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

    def write(
        self,
        slices: Sequence[KVSlice],
        kept_layers: Sequence[int],
        block_ids: torch.Tensor,
        watch: Stopwatch,
        near: Sequence[Span] | None = None,
    ) -> Generator[None, None, Stitched]:
        """Write all layers, yielding between two parts if the step serves others too. The rotated keys of `kept_layers`
        are returned: a selection would rotate them once more. near: the positions of layers with a window that are
        written, if not all."""
        shape = (total_tokens(kv_slice.span for kv_slice in slices), self._layout.kv_heads, self._layout.head_dim)
        rotated = {
            layer: torch.empty(shape, dtype=self._model.dtype, device=self._model.device) for layer in kept_layers
        }
        layers = range(self._layout.layers)
        written: list[tuple[Sequence[int], Sequence[KVSlice]]] = [(layers, slices)]
        if near is not None:
            seeing_all = [layer for layer in layers if layer not in self._windows]
            parts = ((kv_slice, kv_slice.span.clipped_to(span)) for kv_slice in slices for span in near)
            seen = [
                replace(kv_slice, span=part, offset=kv_slice.offset + part.start - kv_slice.span.start)
                for kv_slice, part in parts
                if part.num_tokens
            ]
            written = [(seeing_all, slices), (list(self._windows), seen)]
        portions = ((of_layers, part) for of_layers, of_them in written if of_layers for part in self._parts(of_them))
        row = 0
        for number, (of_layers, part) in enumerate(portions):
            if number and not self.room.is_idle:
                yield
            with watch.of("kv_load_ms"), self.ranks.together():
                self._write_part(part, of_layers, {layer: keys[row:] for layer, keys in rotated.items()}, block_ids)
            row += total_tokens(kv_slice.span for kv_slice in part)
        return Stitched(slices, rotated)

    def _parts(self, slices: Sequence[KVSlice]) -> Iterator[Sequence[KVSlice]]:
        """The slices, so many at a time as a portion may hold tokens; one at least."""
        part: list[KVSlice] = []
        tokens = 0
        for kv_slice in slices:
            tokens += kv_slice.span.num_tokens
            if part and tokens > self.portion.tokens:
                yield part
                part, tokens = [], kv_slice.span.num_tokens
            part.append(kv_slice)
        if part:
            yield part

    def _write_part(
        self,
        slices: Sequence[KVSlice],
        of_layers: Sequence[int],
        kept: Mapping[int, torch.Tensor],
        block_ids: torch.Tensor,
    ) -> None:
        """Write some layers, ascending, of some slices. kept: where rotated keys go by layer, [tokens, kv_heads,
        head_dim] or more of them."""
        batch = self._model.batch([kv_slice.span for kv_slice in slices], block_ids)
        tokens = len(batch.positions)
        step = max(1, min(self.portion.layers, self.portion.num_bytes // (tokens * self._token_bytes)))
        all_layers = self._model.layers
        for layers in (part for run in runs(of_layers) for part in batched(run, step)):
            of_file = slice(layers[0], layers[-1] + 1)
            shape = (len(layers), tokens, self._layout.kv_heads)
            of_keys, of_values = (*shape, self._layout.head_dim), (*shape, self._layout.value_dim)
            with self._staging.pair(of_keys, of_values) as (keys, values):
                self._fill(keys, values, slices, of_file)
                self._model.rotate(layers, batch.positions, keys)
                for index, layer in enumerate(layers):
                    self._model.write(all_layers[layer], keys[index], values[index], batch.slots)
                    if layer in kept:
                        kept[layer][:tokens] = keys[index]

    def _fill(self, keys: torch.Tensor, values: torch.Tensor, slices: Sequence[KVSlice], layers: slice) -> None:
        """Copy some layers of the slices into the buffers, one behind the other."""
        in_memory, in_files, row = list[Callable[[], None]](), list[Callable[[], None]](), 0
        for kv_slice in slices:
            rows = slice(row, row + kv_slice.span.num_tokens)
            row = rows.stop
            is_read = self.portion.readers > 1 and isinstance(part_of(kv_slice.kv), FilePart)
            copy = partial(kv_slice.kv.copy_into, keys[:, rows], values[:, rows], layers, kv_slice.offset)
            (in_files if is_read else in_memory).append(copy)

        def read(copy: Callable[[], None]) -> None:
            with torch.inference_mode(), self._staging.beside():
                copy()

        with self._staging.copying(wait=bool(in_files)):
            reading = [self._readers.submit(read, copy) for copy in in_files]
            try:
                for fill in in_memory:
                    fill()
            finally:
                wait(reading)  # also if one fails: the buffers are used again
            for done in reading:
                done.result()

    def _recompute(
        self, stitch: StitchRequest, spans: Sequence[Span], block_ids: torch.Tensor, report: Report, watch: Stopwatch
    ) -> Generator[None, None, None]:
        capture = _MeanQueries(self._model, self._layout, stitch.capture) if stitch.capture else None
        while spans:
            while not self.room.tokens:
                yield
            # Splitting changes nothing: a span attends only to what lies before its end, and that is done by then.
            part, spans = split(spans, min(self.room.tokens, self._model.max_tokens), self._model.max_sequences)
            batch = self._model.batch(part, block_ids)
            token_ids = [token for span in part for token in stitch.token_ids[span.start : span.end]]
            with watch.of("recompute_ms"), capture.of(batch) if capture else nullcontext():
                self._model.forward(token_ids, batch, block_ids)
            self.room.tokens -= len(batch.positions)
        if capture is not None:
            capture.report(report)


class _MeanQueries:
    """The mean un-rotated query of one span in each layer that the Q-Cache keeps, while its tokens run through the
    model, over the batches that hold parts of it. layout: of this rank's heads."""

    def __init__(self, model: ModelInternals, layout: Layout, span: Span) -> None:
        self._model = model
        self._span = span
        self._layers = layout.q_layers
        self._sum = torch.zeros(len(layout.q_layers), layout.q_heads, layout.head_dim, device=model.device)
        self._count = 0

    @contextmanager
    def of(self, batch: InPlaceBatch) -> Iterator[None]:
        """Capture from the forward that runs in this block."""
        inside = ((batch.positions >= self._span.start) & (batch.positions < self._span.end)).nonzero()[:, 0]
        positions = batch.positions[inside]

        def on_layer(layer: int, queries: Queries, _keys: torch.Tensor, _values: torch.Tensor) -> None:
            if layer in self._layers and len(inside):
                unrotated = self._model.unrotate(layer, positions, queries[inside])
                self._sum[layer - self._layers.start] += unrotated.sum(0)

        with self._model.attention_hook(on_layer):
            yield
        self._count += len(inside)

    def report(self, report: Report) -> None:
        """Put what all ranks saw into the report."""
        report.queries = pack_queries(self._model.ranks.concatenated(self._sum, 1) / max(self._count, 1))
