"""The Q-Cache's re-ranking of search results in plain Transformers: what the engine does, without ingesting a
corpus."""

from collections.abc import Sequence

import torch

from ingest.calibrate.reading import calibration_reader
from ragkv.chunk import Passage, prompt_text
from ragkv.heads import heads_for
from ragkv.parts import Parts
from ragkv.retrieve.fusion import in_both_orders


class AttentionReranker:
    """Runs the question and every passage through the served model, on the spot: the order that `RAGKV_RERANKER=qcache`
    gives from stored keys, in far more time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._heads = heads_for(parts.model_fingerprint, parts.settings.heads_file).heads
        self._reader = calibration_reader(parts, parts.layout.dtype)

    def reordered(self, question: str, passages: Sequence[Passage]) -> list[Passage]:
        prompts = self._parts.prompts
        texts = [prompt_text(passage.chunk.title, passage.chunk.text) for passage in passages]
        chunks = [self._parts.tokenizer.encode(text) for text in texts]
        shares = self._reader.shares(prompts.question_ids(question), prompts.text_in(question), chunks)
        scores = torch.stack([shares[layer, head] for layer, head in self._heads]).sum(0).tolist()
        order = sorted(range(len(passages)), key=lambda i: -scores[i])
        return in_both_orders(passages, order)
