"""Text to unit vectors, with a sentence-transformers model from a local folder, in this process or in one of its own;
vectors of chunks and questions.

sentence-transformers takes seconds to import: only the process that loads an encoder pays.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragkv.errors import Rejected, Unavailable
from ragkv.ids import batched
from ragkv.retrieve import sparse
from ragkv.retrieve.index import Vectors
from ragkv.threads import end_with_parent, share_cores

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 32
TRIES = 2
"""A text that ends the encoder's process twice is not encoded."""
SILENCE_S = 300.0
"""After so long the encoder's process hangs: as for the engine, far more than a slow machine needs for a few texts."""
NICENESS = 10
"""Who only asks for a list does not wait for the encoder."""

log = logging.getLogger(__name__)

T = TypeVar("T")

TextProgress = Callable[[int, int], None]


class TextEncoder(Protocol):
    """Dense vectors of texts."""

    dim: int

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """[len(texts), dim] float32 rows of unit length."""
        ...

    def count_tokens(self, texts: list[str]) -> int:
        """Tokens of the texts that `encode` reads: what fits the model's window."""
        ...

    def close(self) -> None: ...


class Encoder:
    """Dense vectors of texts, safe to share between threads.
    Text beyond the model's window (256 word pieces for all-MiniLM-L6-v2) is not seen."""

    def __init__(self, model: "SentenceTransformer") -> None:
        self._model = model
        self._lock = threading.Lock()  # a fast tokenizer keeps its padding state in itself: one thread at a time
        self.dim = int(model.get_embedding_dimension() or 0)

    @classmethod
    def load(cls, folder: Path) -> "Encoder":
        """The encoder in `folder`, on the CPU, without touching the network. Raises Rejected if there is none."""
        if not (folder / "config.json").is_file():
            raise Rejected(
                f"{folder} holds no sentence encoder (no config.json): set RAGKV_ENCODER to a folder that does"
            )
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - see above
        from transformers.utils import logging  # noqa: PLC0415 - likewise

        logging.disable_progress_bar()
        try:
            model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise Rejected(f"{folder} holds no sentence encoder: {error}") from None
        return cls(model)

    def encode(self, texts: list[str], progress: TextProgress | None = None) -> NDArray[np.float32]:
        """[len(texts), dim] float32 rows of unit length. `progress` is told (texts done, texts in all).

        Texts run in batches of like length, so that padding costs little; the rows keep the order of `texts`.
        """
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        done = 0
        for batch in batched(order, BATCH):
            with self._lock:
                vectors[batch] = self._model.encode(
                    [texts[i] for i in batch],
                    batch_size=BATCH,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                    normalize_embeddings=True,
                )
            if progress is not None:
                done += len(batch)
                progress(done, len(texts))
        return vectors

    def count_tokens(self, texts: list[str]) -> int:
        with self._lock:
            return int(self._model.preprocess(texts)["attention_mask"].sum())

    def close(self) -> None:
        """There is nothing to close."""


class EncoderProcess:
    """Encodes as `Encoder` does in a separate process, one call after the other, for callers that are busy with other
    work. Safe to share between threads. A process that dies or hangs is replaced.

    A text is hundreds of small operations, before each of which a thread waits for its turn at the interpreter. Beside
    five busy threads that is 20 times the encoder's own time; beside none of them it is the encoder's own time
    (docs/BENCHMARKS.md).

    `close` ends it; so does the end of this process, however it ends.
    """

    def __init__(self, folder: Path) -> None:
        """Start the process and load the encoder in it. Raises what `Encoder.load` raises."""
        self._folder = folder
        self._lock = threading.Lock()
        self._is_closed = False
        self._pool = self._started()
        self.dim = self._pool.submit(_with_encoder, folder, attrgetter("dim")).result()

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """[len(texts), dim] float32 rows of unit length. Raises Unavailable if the process dies of it, or hangs."""
        return self._in_process(Encoder.encode, texts)

    def count_tokens(self, texts: list[str]) -> int:
        """Tokens that `encode` reads. Raises Unavailable likewise."""
        return self._in_process(Encoder.count_tokens, texts)

    def _in_process(self, work: Callable[[Encoder, list[str]], T], texts: list[str]) -> T:
        for _ in range(TRIES):
            pool = self._pool
            try:
                return pool.submit(_with_encoder, self._folder, work, texts).result(SILENCE_S)
            except TimeoutError:
                _kill(pool)
            except BrokenProcessPool:
                pass
            with self._lock:  # several threads may find the same pool broken; one of them replaces it
                if self._is_closed:
                    break
                if self._pool is pool:
                    log.error("the encoder's process died or hung and will be started again")
                    self._pool = self._started()
        raise Unavailable(
            "the encoder's process died or hung while it read this text; ask again, or see the service's log"
        )

    def close(self) -> None:
        """Kill the process: one that hangs would keep this one from ending."""
        with self._lock:
            self._is_closed = True
        _kill(self._pool)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_prepare)


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):  # noqa: SLF001 - Python 3.11 has no other way
        process.kill()


def _prepare() -> None:
    """Signals of the terminal and of a service manager are for the parent:
    it stops this process when it is not needed any longer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    share_cores()
    os.nice(NICENESS)


_load = cache(Encoder.load)
"""In the encoder's process."""


def _with_encoder(folder: Path, work: Callable[..., T], *arguments: object) -> T:
    return work(_load(folder), *arguments)


def embed_chunks(
    encoder: Encoder, chunks: Sequence[tuple[str, str]], progress: TextProgress | None = None
) -> list[Vectors]:
    """Vectors of a document's chunks, (title, text) each, as they are searched for."""
    texts = [search_text(title, text) for title, text in chunks]
    dense = encoder.encode(texts, progress)
    return [Vectors(row, *terms) for row, terms in zip(dense, sparse.document_vectors(texts), strict=True)]


def embed_question(encoder: TextEncoder, question: str) -> Vectors:
    """Vectors to search with."""
    return Vectors(encoder.encode([question])[0], *sparse.query_vector(question))


def search_text(title: str, text: str) -> str:
    """A chunk is found by its title as well as its text."""
    return f"{title}\n{text}"
