"""Text to unit vectors, with a sentence-transformers model from a local folder; vectors of chunks and questions.

sentence-transformers takes seconds to import: only the process that loads an encoder pays.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ragkv.errors import Rejected
from ragkv.ids import batched

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


from collections.abc import Sequence

from ragkv.retrieve import sparse
from ragkv.retrieve.index import Vectors

BATCH = 32

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
