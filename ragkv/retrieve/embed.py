"""The vectors of a chunk or a question: decides, in one place for both, what is embedded."""

from collections.abc import Sequence

from ragkv.retrieve import sparse
from ragkv.retrieve.encoder import Encoder, TextEncoder, TextProgress
from ragkv.retrieve.index import Vectors


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
