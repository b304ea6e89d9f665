"""vLLM's worker: prefill of chunks for KV files, beside the engine's steps.

Chunks run through the engine's own model behind the prefix, several at once and apart from its paged cache
(`ModelInternals.prefill_apart`), so they take no blocks from answers. Keys are taken before they are rotated, by the
very kernel that rotates them when they are stitched: a chunk read back where it was prefilled is the engine's own KV,
bit for bit. Files are written by threads while the next chunks run.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from ragkv.connector.adapter import Adapter
from ragkv.connector.internals import ModelInternals, PrefixKV
from ragkv.connector.latent import Queries
from ragkv.connector.metadata import PrefillRequest
from ragkv.connector.rotation import Rotary
from ragkv.engine.protocol import PrefillChunk, Report
from ragkv.errors import OutOfSpace, Rejected
from ragkv.files_io import trouble_of
from ragkv.ids import batched
from ragkv.kv.file import KVContent, PlainKV, block_means, left_of, write_content
from ragkv.kv.format import KVFormat
from ragkv.kv.layout import Layout, Shard
from ragkv.kv.pieces import sent
from ragkv.kv.store import KVStore
from ragkv.stitch.compression import METHODS, ChunkView, Method, kept_tokens
from ragkv.threads import RecentlyUsed

QCACHE_VIEW = 16
"""Tokens at a chunk's start and end whose mean query is its initial and its local vector."""
MAX_CAPTURE_BYTES = 512 * 2**20
"""Bytes of the keys and values that one forward leaves, unless a single chunk has more."""
PATIENCE_S = 0.005
"""Time that an idle step waits for files to be written, before the engine looks for new requests."""
LAST_FILES_S = 0.05
"""Time that one step beside answers waits for the last files of a prefill: the next one may take much longer."""
MOST_FILES = 64
"""KV files that wait to be written, of all prefills: no chunk runs beside more, which a slow disk would let pile up in
memory."""
WRITERS = 4
"""KV files that are written at the same time: each waits for the disk most of its time."""
PREFIXES = 2
"""Prefixes whose KV is remembered: a change of instructions is in effect at once."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    """One request: its chunks that have not run yet, and the files that are being written.

    is_begun: its prefix has run, or could not. was_waited_for: a step beside answers waited for its last files.
    """

    request: PrefillRequest
    rows: list[PrefillChunk]
    writes: list[Future[None]] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    is_begun: bool = False
    was_waited_for: bool = False

    @property
    def has_run(self) -> bool:
        return self.is_begun and not self.rows

    @property
    def next_tokens(self) -> int:
        """Tokens that it runs at least when it goes on; of a lost prefix alone none are counted."""
        return _tokens_of(self.rows[-1]) if self.rows else 0

    @property
    def is_written(self) -> bool:
        return self.has_run and all(write.done() for write in self.writes)


class _Capture:
    """The un-rotated keys, the values and the Q-Cache's queries of one forward over rows, of this rank's heads.

    looks: what enters attention is captured too, in all layers.
    """

    def __init__(self, layout: Layout, lengths: Sequence[int], device: torch.device, *, looks: bool = False) -> None:
        self._layout = layout
        self.lengths = list(lengths)
        shape = (layout.layers, sum(lengths), layout.kv_heads)
        self.keys, self.values = (
            torch.empty(*shape, size, dtype=layout.dtype, device=device) for size in (layout.head_dim, layout.value_dim)
        )
        edges, start = [], 0
        for length in lengths:
            view = min(QCACHE_VIEW, length)
            edges += [torch.arange(start, start + view), torch.arange(start + length - view, start + length)]
            start += length
        self._edges = sent(torch.cat(edges), device)
        self._views = [len(edge) for edge in edges]
        self._queries: list[torch.Tensor] = []
        self._looks = looks
        self.attended: list[tuple[torch.Tensor, torch.Tensor]] = []

    def rotating(self, layer: int, rotary: Rotary, queries: Queries, keys: torch.Tensor) -> None:
        self.keys[layer] = keys
        if layer in self._layout.q_layers:
            self._queries.append(queries[self._edges].float())

    def attending(self, layer: int, queries: Queries, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.values[layer] = values
        if self._looks:
            self.attended.append((queries[:].clone(), keys.clone()))

    def vectors(self) -> list[torch.Tensor]:
        """The initial and the local vector of every row in turn, [q_layers, q_heads, head_dim] each."""
        return [part.mean(1) for part in torch.split(torch.stack(self._queries), self._views, 1)]


class Prefills:
    """The prefills of one worker in progress, oldest first, urgent ones before others. All ranks have the same ones and
    run the same chunks; the first one writes the files."""

    def __init__(self, model: ModelInternals, store: KVStore, shard: Shard, writer: Callable[[str], Adapter]) -> None:
        """writer: loads the writer of a fingerprint. Raises Rejected if another is in use."""
        self._model = model
        self._store = store
        self._shard = shard
        self._writes_files = not model.ranks.rank
        self._load_writer = writer
        self._writer: tuple[str, Adapter] | None = None
        self._jobs: dict[str, _Job] = {}
        self._writers = ThreadPoolExecutor(WRITERS, "KV writer")
        self._prefixes = RecentlyUsed[tuple[int, ...], list[tuple[PrefixKV, KVContent]]](list, PREFIXES)

    def begin(self, request: PrefillRequest) -> None:
        rows = sorted(request.prefill.chunks, key=lambda chunk: len(chunk.token_ids))
        self._jobs[request.request_id] = _Job(request, rows)

    def drop(self, request_ids: Iterable[str]) -> set[str]:
        """Give up those of these requests that are in progress. Returns them. What is stored stays."""
        dropped = self._jobs.keys() & set(request_ids)
        for request_id in dropped:
            del self._jobs[request_id]
        return dropped

    @torch.inference_mode()
    def advance(self, tokens: int, *, is_idle: bool) -> dict[str, Report]:
        """Run chunks, those of the first request first, and one at least if `tokens` is not 0 and not too many files
        wait. Returns the reports of requests that are done. An idle step without tokens waits a little."""
        if is_idle and not tokens and self._jobs:
            time.sleep(PATIENCE_S)
        num_run, pending = 0, [write for job in self._jobs.values() for write in job.writes if not write.done()]
        if self._jobs and not self._model.ranks.all_of([len(pending) < MOST_FILES])[0]:
            if is_idle:
                wait(pending, PATIENCE_S, FIRST_COMPLETED)
            tokens = 0
        for job in sorted(self._jobs.values(), key=lambda job: not job.request.prefill.is_urgent):
            while tokens and not job.has_run and (not num_run or num_run + job.next_tokens <= tokens):
                num_run += self._run(job, tokens - num_run)
        if tokens and all(job.has_run for job in self._jobs.values()):
            waiting = [job for job in self._jobs.values() if is_idle or not job.was_waited_for]
            pending = [write for job in waiting for write in job.writes if not write.done()]
            wait(pending, PATIENCE_S if is_idle else LAST_FILES_S, FIRST_COMPLETED if is_idle else ALL_COMPLETED)
            for job in waiting:
                job.was_waited_for = not is_idle
        written = self._model.ranks.all_of([job.is_written for job in self._jobs.values()])
        done = [name for name, is_written in zip(self._jobs, written, strict=True) if is_written]
        return {name: _report(self._jobs.pop(name)) for name in done}

    def _run(self, job: _Job, tokens: int) -> int:
        """Run chunks of a request, one at least. Returns the tokens that this took out of it."""
        rows: list[PrefillChunk] = []
        try:
            prefix = self._prefix(job)
            if rows := self._next_rows(job, tokens):
                self._prefill(job, rows, prefix)
        except Exception as error:
            if not self._model.ranks.is_shared(error):
                raise
            log.exception("request %s: prefill of chunks failed", job.request.request_id)
            job.rows.clear()
            job.report.error = str(error) if isinstance(error, Rejected) else "the engine failed at it: see its log"
        return sum(map(_tokens_of, rows))

    def _next_rows(self, job: _Job, tokens: int) -> list[PrefillChunk]:
        """Take chunks out of the job, the longest first, as many as fit."""
        room = min(tokens, self._model.max_tokens, MAX_CAPTURE_BYTES // self._shard.layout.bytes_per_token)
        rows: list[PrefillChunk] = []
        while job.rows and len(rows) < self._model.max_sequences:
            room -= _tokens_of(job.rows[-1])
            if rows and room < 0:
                break
            rows.append(job.rows.pop())
        return rows

    def _prefix(self, job: _Job) -> PrefixKV:
        """KV of the job's prefix, which the plain model computes. Stored if it is not: a thread looks, since a disk may
        hang."""
        is_new, job.is_begun = not job.is_begun, True
        prefill, layout = job.request.prefill, self._shard.layout
        nothing = torch.empty(
            layout.layers, 0, layout.kv_heads, layout.head_dim, dtype=self._model.dtype, device=self._model.device
        )
        no_prefix = PrefixKV(nothing, nothing)
        if not prefill.prefix_ids:
            return no_prefix
        remembered = self._prefixes.of(prefill.prefix_ids)
        if not remembered:
            capture = self._captured([prefill.prefix_ids], no_prefix, looks=True)
            keys = torch.stack([keys for _, keys in capture.attended])
            [kv] = self._gathered(capture)
            # Of the type that is computed with: that of stored KV may be another.
            prefix = PrefixKV(keys, capture.values.to(keys.dtype))
            remembered[:] = [(prefix, KVContent.of(kv, KVFormat.BF16))]
        prefix, content = remembered[0]
        if is_new and self._writes_files:
            self._keep([job], prefill.prefix_key, content, unless_stored=True)
        return prefix

    def _prefill(self, job: _Job, rows: Sequence[PrefillChunk], prefix: PrefixKV) -> None:
        """Run the rows of one forward, and keep their KV, or that of the tokens that a compression leaves."""
        prefill = job.request.prefill
        is_chosen_by_it = prefill.compression is not None and not prefill.writer and not rows[0].behind
        with self._written_by(prefill.writer):
            capture = self._captured([row.token_ids for row in rows], prefix, looks=is_chosen_by_it)
        kvs = self._gathered(capture)
        if prefill.compression is not None:
            if not is_chosen_by_it:  # the plain model says what stays, having read on
                capture = self._captured([(*row.token_ids, *row.behind) for row in rows], prefix, looks=True)
            weights = self._weights(METHODS[prefill.compression.method], rows, capture, prefix)
            offsets = [kept_tokens(prefill.compression, of_row) for of_row in weights]
            kvs = [left_of(kv, places, self._shard.whole) for kv, places in zip(kvs, offsets, strict=True)]
        keys = {row.key for row in rows}
        waiting = [job, *(other for other in self._jobs.values() if any(row.key in keys for row in other.rows))]
        for other in waiting:  # none runs these chunks again
            other.rows = [row for row in other.rows if row.key not in keys]
        if self._writes_files:
            for row, kv in zip(rows, kvs, strict=True):
                self._keep(waiting, row.key, KVContent.of(kv, prefill.kv_format))

    def _written_by(self, writer: str) -> AbstractContextManager[None]:
        """The model with this writer, for a block."""
        if not writer:
            return nullcontext()
        if self._writer is None or self._writer[0] != writer:
            with self._model.ranks.together():
                self._writer = writer, self._load_writer(writer)
        return self._writer[1].active()

    def _captured(self, rows: Sequence[Sequence[int]], prefix: PrefixKV, *, looks: bool) -> _Capture:
        capture = _Capture(self._shard.layout, [len(row) for row in rows], self._model.device, looks=looks)
        self._model.prefill_apart(rows, prefix, capture)
        return capture

    def _weights(
        self, method: Method, rows: Sequence[PrefillChunk], seen: _Capture, prefix: PrefixKV
    ) -> Iterator[torch.Tensor]:
        """For each row, the weights that its method's score is made of, over the heads of all ranks."""
        start = 0
        for row in rows:
            num_tokens, behind = len(row.token_ids), len(row.behind)
            tokens = slice(start, start + num_tokens + behind)
            start = tokens.stop
            queries = [queries[tokens] for queries, _ in seen.attended]
            keys = [torch.cat([head, own[tokens]]) for head, (_, own) in zip(prefix.keys, seen.attended, strict=True)]
            view = ChunkView(prefix.num_tokens, num_tokens, row.decoded, queries, keys)
            yield self._model.ranks.mean(view.weights(method.asked(num_tokens, behind, row.decoded)))

    def _gathered(self, capture: _Capture) -> list[PlainKV]:
        """The KV of each row, of the heads of all ranks."""
        whole = self._shard.whole
        copies = max(self._shard.size // whole.kv_heads, 1)  # ranks that hold the same head
        ranks = self._model.ranks
        keys, values = (ranks.concatenated(part, 2)[:, :, ::copies] for part in (capture.keys, capture.values))
        vectors = [ranks.concatenated(vector, 1) for vector in capture.vectors()]
        rows = zip(
            *(torch.split(part, capture.lengths, 1) for part in (keys, values)), batched(vectors, 2), strict=True
        )
        return [
            PlainKV(key.contiguous(), value.contiguous(), initial, local, block_means(key, whole.q_layers))
            for key, value, (initial, local) in rows
        ]

    def _keep(self, waiting: Iterable[_Job], key: str, content: KVContent, *, unless_stored: bool = False) -> None:
        """Have it written. These requests are done once it is."""

        def write() -> None:
            if not unless_stored or key not in self._store:
                write_content(self._store.path(key), content)

        future = self._writers.submit(write)
        for job in waiting:
            job.writes.append(future)


def _tokens_of(row: PrefillChunk) -> int:
    return len(row.token_ids) + len(row.behind)


def _report(job: _Job) -> Report:
    """Report of a request whose files are written, or could not be."""
    errors = [error for write in job.writes if (error := write.exception()) is not None]
    for error in errors[:1]:
        log.warning("request %s: KV was not stored: %s", job.request.request_id, error)
        job.report.no_room = isinstance(error, Exception) and isinstance(trouble_of(error), OutOfSpace)
        job.report.error = job.report.error or f"KV was not stored: {error}"
    return job.report
