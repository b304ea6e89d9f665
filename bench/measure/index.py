"""Figures of search indexes over the same chunks: seconds to build, memory, milliseconds a search, exactness, a
restart.

`python -m bench.measure.index --points 100000 memory server`; the server is the one at RAGKV_TEST_QDRANT_URL. Each
index has a process of its own, and each question goes to one after the other, so that a machine that slows down slows
all of them.

Chunks are made up: terms as frequent as in English (Zipf and Mandelbrot), and unit vectors in clusters. Recall is
counted against an exact search of the same vectors, which keeps one batch in memory at a time.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import psutil
from numpy.typing import NDArray

from ragkv.retrieve.index import Index, Point, Vectors
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.qdrant import QdrantIndex

DIM = 384
BATCH = 5000
CHUNKS_A_DOCUMENT = 10
CHUNKS_A_CLUSTER = 200
TERMS_A_CHUNK = 40
VOCABULARY = 100_000
FILTERED_DOCUMENTS = 1000
LIMIT = 20
KINDS = ("all", "filter")
TENANT, COLLECTION = "tenant", "collection"
_FREQUENCY = 1 / (np.arange(VOCABULARY) + 30.0) ** 1.07
_CUMULATIVE = np.cumsum(_FREQUENCY / _FREQUENCY.sum())


class Corpus:
    """Chunks and questions, the same in every process."""

    def __init__(self, num_points: int, num_queries: int) -> None:
        self.num_points = num_points
        rng, asking = np.random.default_rng(1), np.random.default_rng(4)
        self._centres = _unit(rng.standard_normal((max(1, num_points // CHUNKS_A_CLUSTER), DIM), dtype=np.float32))
        near = self._centres[asking.integers(len(self._centres), size=num_queries)]
        questions = _unit(near + 0.8 * _unit(asking.standard_normal((num_queries, DIM), dtype=np.float32)))
        self.queries = [
            Vectors(row, np.unique(t), np.ones(len(np.unique(t)), np.float32))
            for row, t in zip(questions, _terms(asking, num_queries, 8), strict=True)
        ]
        documents = num_points // CHUNKS_A_DOCUMENT
        some = rng.choice(documents, min(FILTERED_DOCUMENTS, max(1, documents // 10)), replace=False)
        self.documents = frozenset(_document(int(i)) for i in some)

    def batches(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """(number of the first chunk, vectors)."""
        for first in range(0, self.num_points, BATCH):
            rng = np.random.default_rng([2, first])
            count = min(BATCH, self.num_points - first)
            dense = self._centres[rng.integers(len(self._centres), size=count)]
            off = rng.standard_normal((count, DIM), dtype=np.float32)
            yield first, _unit(dense + 0.8 * (off / np.float32(DIM**0.5)))

    def points(self) -> Iterator[list[Point]]:
        for first, dense in self.batches():
            drawn = np.sort(_terms(np.random.default_rng([3, first]), len(dense), TERMS_A_CHUNK), axis=1)
            # The distinct terms of each row, weighted by how often they were drawn.
            is_new = np.ones(drawn.shape, np.bool_)
            is_new[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
            starts = np.flatnonzero(is_new)
            counts = np.diff(np.append(starts, drawn.size))
            terms, weights = drawn.ravel()[starts], (counts * 2.2 / (counts + 1.2)).astype(np.float32)
            bounds = np.append(0, np.cumsum(is_new.sum(axis=1))).tolist()
            ids = [(_chunk(first + i), _document((first + i) // CHUNKS_A_DOCUMENT)) for i in range(len(dense))]
            yield [
                Point(chunk_id, document_id, "", Vectors(row, terms[a:b], weights[a:b]))
                for (chunk_id, document_id), row, (a, b) in zip(ids, dense, pairwise(bounds), strict=True)
            ]


def exact(corpus: Corpus) -> dict[str, list[set[str]]]:
    """The nearest chunks of each question, of all chunks and of those that the filter leaves."""
    asked = np.stack([query.dense for query in corpus.queries])
    best: dict[str, list[list[tuple[float, int]]]] = {kind: [[] for _ in asked] for kind in KINDS}
    for first, dense in corpus.batches():
        scores = asked @ dense.T
        owners = range(first // CHUNKS_A_DOCUMENT, (first + len(dense)) // CHUNKS_A_DOCUMENT)
        shown = np.repeat([_document(i) in corpus.documents for i in owners], CHUNKS_A_DOCUMENT)
        for kind, of in zip(KINDS, (scores, np.where(shown, scores, -1)), strict=True):
            top = np.argpartition(-of, LIMIT, axis=1)[:, :LIMIT]
            for kept, rows, row_scores in zip(best[kind], top, of, strict=True):
                kept[:] = sorted([*kept, *zip(row_scores[rows].tolist(), (first + rows).tolist(), strict=True)])[
                    -LIMIT:
                ]
    return {kind: [{_chunk(n) for score, n in kept if score > -1} for kept in best[kind]] for kind in KINDS}


def serve(name: str, corpus: Corpus, pipe: multiprocessing.connection.Connection) -> None:
    """Builds an index and answers what is asked through the pipe: one process."""
    index: Index = MemoryIndex() if name == "memory" else QdrantIndex.connect(os.environ["RAGKV_TEST_QDRANT_URL"])
    index.ensure(DIM)
    before = pss()
    began = time.perf_counter()
    for points in corpus.points():
        index.upsert(TENANT, COLLECTION, points)
    del points
    stored = time.perf_counter() - began
    index.search(TENANT, COLLECTION, corpus.queries[0], LIMIT)
    pipe.send({"stored_s": stored, "built_s": time.perf_counter() - began, "pss_mb": pss() - before})
    while (asked := pipe.recv()) is not None:
        number, mode, only = asked
        began, busy = time.perf_counter(), time.process_time()
        hits = index.search(TENANT, COLLECTION, corpus.queries[number], LIMIT, mode, only)
        took = time.perf_counter() - began, time.process_time() - busy
        pipe.send((*took, [hit.chunk_id for hit in hits]))
    one = next(corpus.points())[:1]
    began = time.perf_counter()
    index.upsert(TENANT, COLLECTION, one)
    index.search(TENANT, COLLECTION, corpus.queries[0], LIMIT)
    changed = time.perf_counter() - began
    index.delete_collection(TENANT, COLLECTION)
    index.close()
    pipe.send({"change_s": changed})


def pss() -> float:
    """Megabytes of memory that are this process's."""
    return psutil.Process().memory_full_info().pss / 1e6


def measure(names: list[str], corpus: Corpus, rounds: int) -> list[dict[str, float | str]]:
    context = multiprocessing.get_context("spawn")
    wanted = exact(corpus)
    pipes, rows, processes = {}, {}, []
    for name in names:
        pipes[name], theirs = context.Pipe()
        process = context.Process(target=serve, args=(name, corpus, theirs))
        process.start()
        processes.append(process)
        rows[name] = {"index": name, "points": corpus.num_points, **pipes[name].recv()}
        print(rows[name], file=sys.stderr, flush=True)
    for kind, only in zip(KINDS, (None, corpus.documents), strict=True):
        times, busy, recalls = ({name: list[float]() for name in names} for _ in range(3))
        for number in [i for _ in range(rounds) for i in range(len(corpus.queries))]:
            for name, pipe in pipes.items():
                pipe.send((number, "hybrid", only))
                wall, cpu, _ = pipe.recv()
                times[name].append(wall * 1e3)
                busy[name].append(cpu * 1e3)
        for number, nearest in enumerate(wanted[kind]):
            for name, pipe in pipes.items():
                pipe.send((number, "dense", only))
                recalls[name].append(len(nearest & set(pipe.recv()[2])) / len(nearest))
        for name in names:
            ratios = [mine / other for mine, other in zip(times[name], times[names[0]], strict=True)]
            rows[name] |= {
                f"{kind}_p50_ms": statistics.median(times[name]),
                f"{kind}_p95_ms": sorted(times[name])[int(0.95 * len(times[name]))],
                f"{kind}_cpu_ms": statistics.median(busy[name]),
                f"{kind}_recall": statistics.mean(recalls[name]),
                f"{kind}_ratio": statistics.median(ratios),
            }
    for name, pipe in pipes.items():
        pipe.send(None)
        rows[name] |= pipe.recv()
    for process in processes:
        process.join()
    return list(rows.values())


def _terms(rng: np.random.Generator, chunks: int, each: int) -> NDArray[np.uint32]:
    return np.searchsorted(_CUMULATIVE, rng.random((chunks, each))).astype(np.uint32)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _chunk(number: int) -> str:
    return f"{number:032x}"


def _document(number: int) -> str:
    return f"d{number:031x}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("index", nargs="+", choices=["memory", "server"])
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = measure(given.index, Corpus(given.points, given.queries), given.rounds)
    for row in rows:
        print(json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}))


if __name__ == "__main__":
    main()
