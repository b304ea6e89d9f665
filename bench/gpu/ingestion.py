"""Ingestion throughput in tokens per second, compared with a bare forward pass over the same batches."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import torch
from transformers import PreTrainedModel

from bench.gpu.corpus import Corpus, random_chunks
from bench.gpu.scale import Scale
from bench.gpu.shapes import Shape
from ragkv.chunk import Chunk
from ragkv.kv.format import KVFormat
from ragkv.kv.store import KVStore
from ragkv.prefill.capture import padded
from ragkv.prefill.precompute import precompute
from ragkv.prefill.prefill import Prefiller

_RUNS = 3


class IngestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way through the model, from nothing to files. Tokens are those of chunks: the prefix before each is not
    counted. share: of the bare forward's tokens a second; peak_gib: of the device's memory, null on a CPU."""

    work: str
    tokens: int
    tokens_per_s: float
    share: float
    peak_gib: float | None


def measure_ingestion(shape: Shape, folder: Path, scale: Scale) -> list[IngestRow]:
    """Medians of runs that take turns. Leaves the corpus's KV in its store."""
    corpus = Corpus.of(shape, folder, scale)
    model = shape.drawn(scale.device)
    prefiller = Prefiller(model, shape.layout)
    chunks = random_chunks(scale.ingest_tokens // scale.chunk_tokens, scale.chunk_tokens, shape.config.vocab_size)
    prefix = corpus.prompts.prefix_ids
    rows = max(1, corpus.settings.prefill_batch_tokens // (len(prefix) + scale.chunk_tokens))
    batches = [chunks[start : start + rows] for start in range(0, len(chunks), rows)]
    works: dict[str, Callable[[], None]] = {
        "bare forward": lambda: _bare(model, prefix, batches),
        "KV captured": lambda: _captured(prefiller, prefix, batches),
        **{f"KV files, {kv_format}": partial(_kept, prefiller, corpus, chunks, kv_format) for kv_format in KVFormat},
    }
    measured: dict[str, list[tuple[float, float | None]]] = {work: [] for work in works}
    for run in range(_RUNS + 1):  # the first is not counted
        for work, do in works.items():
            seen = _timed(do, scale.device)
            if run:
                measured[work].append(seen)
    corpus.write(prefiller)
    tokens = sum(chunk.num_tokens for chunk in chunks)
    bare = statistics.median(seconds for seconds, _ in measured["bare forward"])
    return [_row(work, tokens, seen, bare) for work, seen in measured.items()]


def _row(work: str, tokens: int, seen: Sequence[tuple[float, float | None]], bare: float) -> IngestRow:
    seconds = statistics.median(elapsed for elapsed, _ in seen)
    return IngestRow(
        work=work, tokens=tokens, tokens_per_s=tokens / seconds, share=bare / seconds, peak_gib=seen[-1][1]
    )


def _timed(do: Callable[[], None], device: str) -> tuple[float, float | None]:
    """Seconds, and the peak of the device's memory in GiB."""
    if device == "cpu":
        began = time.perf_counter()
        do()
        return time.perf_counter() - began, None
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    do()
    torch.cuda.synchronize()
    return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 2**30


@torch.inference_mode()
def _bare(model: PreTrainedModel, prefix: Sequence[int], batches: Sequence[Sequence[Chunk]]) -> None:
    for batch in batches:
        model(padded([[*prefix, *chunk.token_ids] for chunk in batch], model.device), use_cache=False)


def _captured(prefiller: Prefiller, prefix: Sequence[int], batches: Sequence[Sequence[Chunk]]) -> None:
    for batch in batches:
        prefiller.prefill(prefix, [chunk.token_ids for chunk in batch])


def _kept(prefiller: Prefiller, corpus: Corpus, chunks: Sequence[Chunk], kv_format: KVFormat) -> None:
    data = corpus.settings.data_dir
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data) as folder:
        keys = replace(corpus.keys, kv_format=kv_format)
        precompute(chunks, keys, lambda: prefiller, KVStore(Path(folder)), lambda: corpus.settings.prefill_batch_tokens)
