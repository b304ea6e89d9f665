"""Re-ranking of passages by a cross-encoder, which reads question and passage together.

sentence-transformers takes seconds to import: only the process that loads a cross-encoder pays.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragkv.chunk import Passage
from ragkv.errors import Rejected
from ragkv.retrieve.encoder import search_text
from ragkv.retrieve.index import fused

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

CANDIDATES = 20
"""Passages a question that are read again, the best by retrieval."""
BATCH = 8
WINDOW = 512
"""Tokens of question and passage together that are read; the rest of a longer passage is not."""


class Reranker:
    """A sentence-transformers CrossEncoder with one score a pair, on the CPU. Safe to share between threads."""

    def __init__(self, model: "CrossEncoder") -> None:
        self._model = model
        self._lock = threading.Lock()  # a fast tokenizer keeps its padding state in itself: one thread at a time

    @classmethod
    def load(cls, folder: Path) -> "Reranker":
        """The cross-encoder in `folder`, without touching the network. Raises Rejected for anything else there.

        A plain encoder would load too, with a head of random numbers, so what the folder says of itself is read first.
        """
        made_by = _read(folder / "config_sentence_transformers.json").get("model_type")
        architectures = _read(folder / "config.json").get("architectures") or []
        is_classifier = any(str(name).endswith("ForSequenceClassification") for name in architectures)
        if made_by != "CrossEncoder" and not is_classifier:
            raise Rejected(
                f"{folder} holds no cross-encoder: RAGKV_RERANKER takes a sentence-transformers CrossEncoder, "
                "such as cross-encoder/ms-marco-MiniLM-L6-v2"
            )
        from sentence_transformers import CrossEncoder  # noqa: PLC0415 - see above

        try:
            model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise Rejected(f"{folder} holds no cross-encoder: {error}") from None
        if model.num_labels != 1:
            raise Rejected(
                f"{folder}: the cross-encoder gives {model.num_labels} scores per pair, but exactly one is needed"
            )
        model.max_seq_length = min(model.max_seq_length or WINDOW, WINDOW)
        return cls(model)

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Relevance of each text to the question, higher is better; the scale is the model's own."""
        if not texts:
            return []
        with self._lock:
            scores = self._model.predict(
                [(question, text) for text in texts], batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True
            )
        return [float(score) for score in scores]

    def reordered(self, question: str, passages: Sequence[Passage]) -> list[Passage]:
        """The passages by both orders, the one they come in and the cross-encoder's, fused by reciprocal rank.

        Not by the cross-encoder's alone: a passage that a further hop brought in answers the question through another
        passage, which a reader of one passage at a time does not see.
        """
        scores = self.scores(question, [search_text(p.chunk.title, p.chunk.text) for p in passages])
        order = sorted(range(len(passages)), key=lambda i: -scores[i])
        return [replace(passages[index], score=score) for index, score in fused([range(len(passages)), order])]


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
