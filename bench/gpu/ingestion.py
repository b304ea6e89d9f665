"""Ingestion throughput of the engine in tokens per second, compared with a bare forward pass of Transformers over the
same chunks."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import torch

from bench.gpu.corpus import Corpus, random_chunks
from bench.gpu.scale import Scale
from bench.gpu.shapes import Shape
from bench.writer.capture import padded
from ragkv.chunk import Chunk
from ragkv.engine.protocol import Engine
from ragkv.kv.format import KVFormat
from ragkv.prefill.precompute import BATCH_TOKENS

_RUNS = 3
OTHERS = 1
"""Seed of chunks that the corpus does not have."""


class IngestRow(msgspec.Struct, frozen=True, kw_only=True):
    """From nothing to files in one format. Tokens are those of chunks: the prefix before each is not counted. share: of
    the bare forward's tokens a second."""

    work: str
    tokens: int
    tokens_per_s: float
    share: float


def measure_bare(shape: Shape, corpus: Corpus, scale: Scale) -> float:
    """Seconds of a bare forward over the chunks, in batches as ingestion makes them: the median of runs."""
    model, prefix = shape.drawn(scale.device), corpus.prompts.prefix_ids
    rows = max(1, BATCH_TOKENS // (len(prefix) + scale.chunk_tokens))
    chunks = _chunks(shape, scale)
    batches = [
        padded([[*prefix, *chunk.token_ids] for chunk in chunks[start : start + rows]], model.device)
        for start in range(0, len(chunks), rows)
    ]
    seconds = []
    with torch.inference_mode():
        for _ in range(_RUNS + 1):  # the first is not counted
            began = time.perf_counter()
            for batch in batches:
                model(batch, use_cache=False)
            if scale.device != "cpu":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


async def measure_ingestion(
    shape: Shape, corpus: Corpus, engine: Engine, scale: Scale, bare_s: float
) -> list[IngestRow]:
    """Medians of runs that take turns. Leaves nothing of them in the store. bare_s: of `measure_bare`."""
    chunks = _chunks(shape, scale)
    seconds: dict[KVFormat, list[float]] = {kv_format: [] for kv_format in KVFormat}
    for run in range(_RUNS + 1):  # the first is not counted
        for kv_format, seen in seconds.items():
            keys = replace(corpus.keys, kv_format=kv_format)
            began = time.perf_counter()
            await corpus.write(engine, chunks, keys)
            if run:
                seen.append(time.perf_counter() - began)
            corpus.store.drop([keys.chunk(chunk.token_ids) for chunk in chunks])
    rows = [_row("bare forward", chunks, bare_s, bare_s)]
    return rows + [
        _row(f"KV files, {kv_format}", chunks, statistics.median(seen), bare_s) for kv_format, seen in seconds.items()
    ]


def _chunks(shape: Shape, scale: Scale) -> tuple[Chunk, ...]:
    return random_chunks(scale.ingest_tokens // scale.chunk_tokens, scale.chunk_tokens, shape.config.vocab_size, OTHERS)


def _row(work: str, chunks: Sequence[Chunk], seconds: float, bare_s: float) -> IngestRow:
    tokens = sum(chunk.num_tokens for chunk in chunks)
    return IngestRow(work=work, tokens=tokens, tokens_per_s=tokens / seconds, share=bare_s / seconds)
