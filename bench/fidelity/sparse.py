"""The method `sparse`: the question decides which chunks, and which blocks of the last of them, enter the prompt at
all."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from bench.fidelity.kit import Case, Kit, Prepared
from ragkv.kv_format import QCACHE_BLOCK
from ragkv.span import total_tokens
from ragkv.stitch.select import ChunkEvidence, block_logits, budget_of, enriched_queries

KEPT_SHARE = 0.5  # of the context's tokens


def sparse(kit: Kit, case: Case, ratio: float) -> Prepared:
    """In the service's order, only the half of the context that SamKV's contextual vectors prefer (arXiv 2508.11661).

    A share of what is kept is recomputed by the service's policy. Its reference is full prefill of the *whole* context.
    Its time to the first token holds the writing of what is kept as KV files, which an engine that reads parts of a
    file would not need.
    """
    assert case.vectors is not None, "asked for before anything is measured"
    passages = kit.in_prompt_order(case)
    evidence = []
    for passage, span in zip(passages, kit.prompt(passages, case).chunks, strict=True):
        qcache = kit.store.qcache(kit.keys.chunk(passage.chunk.token_ids))
        assert qcache is not None, "prefilled before anything is measured"
        evidence.append(ChunkEvidence(span, passage.score, qcache.local, qcache.mean_keys))
    budget = budget_of(KEPT_SHARE, total_tokens(chunk.span for chunk in evidence))
    sparser = replace(kit, keys=replace(kit.keys, writer=f"{kit.keys.writer} sparse"))
    shorter = []
    for passage, offsets in zip(passages, better_part(case.vectors, evidence, budget), strict=True):
        if offsets:
            chunk = passage.chunk.shortened_to(offsets)
            kit.keep_rows(kit.keys.chunk(passage.chunk.token_ids), offsets, sparser.keys.chunk(chunk.token_ids))
            shorter.append(replace(passage, chunk=chunk))
    return sparser.planned(shorter, kit.recompute(kit.settings.recompute_policy, ratio), case)


def better_part(question: torch.Tensor, chunks: Sequence[ChunkEvidence], budget: int) -> list[list[int]]:
    """Ascending offsets of what stays of each chunk, `budget` tokens in all.

    Whole chunks, those first whose blocks get most attention in the mean; of the last, which fits only in part, its
    best blocks. Blocks alone, of whatever chunk, keep far less of an answer. question: as in `Evidence`; every chunk
    has its Q-Cache.
    """
    logits = [
        block_logits(query, chunk.mean_keys)
        for query, chunk in zip(enriched_queries(question, chunks), chunks, strict=True)
        if chunk.mean_keys is not None
    ]
    shares = torch.cat(logits, dim=-1).softmax(-1).mean((0, 1))
    weights = torch.split(shares, [part.shape[-1] for part in logits])
    kept: list[list[int]] = [[] for _ in chunks]
    for index in sorted(range(len(chunks)), key=lambda i: float(weights[i].mean()), reverse=True):
        num_tokens = chunks[index].span.num_tokens
        for block in weights[index].argsort(descending=True, stable=True).tolist():
            start = block * QCACHE_BLOCK
            taken = range(start, min(start + QCACHE_BLOCK, num_tokens))[:budget]
            kept[index] += taken
            budget -= len(taken)
    return [sorted(offsets) for offsets in kept]
