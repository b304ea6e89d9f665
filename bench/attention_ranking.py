"""Re-ranking of search results by the Q-Cache in plain Transformers: the same computation as in the engine, without
ingesting a corpus."""

from collections.abc import Sequence
from functools import lru_cache

import torch

from ingest.calibrate.reading import calibration_reader
from ragkv.chunk import Passage, prompt_text
from ragkv.heads import heads_for
from ragkv.parts import Parts
from ragkv.retrieve.fusion import in_both_orders
from ragkv.retrieve.rerank import CANDIDATES


class AttentionReranker:
    """Runs the question and every passage through the served model, on the spot: the order that `RAGKV_RERANKER=qcache`
    gives from stored keys, in far more time. The passages read last are kept: methods differ by few of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._heads = heads_for(parts.model_fingerprint, parts.settings.heads_file).heads
        self._layers = sorted({layer for layer, _ in self._heads})
        self._reader = calibration_reader(parts, parts.layout.dtype)
        self._keys = lru_cache(maxsize=4 * CANDIDATES)(lambda ids: self._reader.keys([ids])[0])

    def reordered(self, question: str, passages: Sequence[Passage]) -> list[Passage]:
        prompts = self._parts.prompts
        texts = [prompt_text(passage.chunk.title, passage.chunk.text) for passage in passages]
        keys = [self._keys(tuple(self._parts.tokenizer.encode(text))) for text in texts]
        shares = self._reader.shares(prompts.question_ids(question), prompts.text_in(question), keys, self._layers)
        of_heads = torch.stack([shares[self._layers.index(layer), head] for layer, head in self._heads])
        scores = of_heads.sum(0).tolist()
        order = sorted(range(len(passages)), key=lambda i: -scores[i])
        return in_both_orders(passages, order)
