"""Work on one collection keeps no search of another waiting."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from ragkv.retrieve.index import Point, Vectors
from ragkv.retrieve.links import LinkCache, TitledChunk
from ragkv.retrieve.memory import MemoryIndex

WAIT_S = 20
VECTORS = Vectors(np.array([1, 0], np.float32), np.array([1], np.uint32), np.array([1], np.float32))


class Gate:
    """A place where work waits until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(WAIT_S)


@contextmanager
def held_up(gate: Gate, work: Callable[[], object]) -> Iterator[None]:
    """While the work waits at the gate."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        assert gate.reached.wait(WAIT_S)
        try:
            yield
        finally:
            gate.open.set()
        running.result(WAIT_S)


class Titles:
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def titles(
        self, tenant_id: str, collection_id: str, document_ids: Sequence[str] | None = None
    ) -> list[TitledChunk]:
        if tenant_id == "slow":
            self.gate.wait()
        return [TitledChunk("d", 0, "a", "Ada Lovelace")]


class SlowPoint:
    """A point that is slow to be laid out."""

    chunk_id, document_id = "a", "d"

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    @property
    def vectors(self) -> Vectors:
        self.gate.wait()
        return VECTORS


def test_titles_of_one_collection_are_read_while_another_is_searched():
    gate = Gate()
    links = LinkCache(Titles(gate))
    with held_up(gate, lambda: links.of("slow", "c", {"d": 1})):
        assert links.of("quick", "c", {"d": 1}).mentioned("Ada Lovelace") == [("a",)]


def test_a_collection_is_laid_out_while_another_is_searched():
    gate, index = Gate(), MemoryIndex()
    index.upsert("quick", "c", [Point("a", "d", "t", VECTORS)])
    with held_up(gate, lambda: index.upsert("slow", "c", [SlowPoint(gate)])):
        assert [hit.chunk_id for hit in index.search("quick", "c", VECTORS, 1)] == ["a"]
