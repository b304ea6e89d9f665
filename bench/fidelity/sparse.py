"""The method `sparse`: the question decides which blocks of the retrieved chunks enter the prompt at all."""

from dataclasses import replace

from bench.fidelity.kit import Case, Kit, Prepared, shortened
from ragkv.chunk import Passage
from ragkv.span import Span, total_tokens
from ragkv.stitch.select import ChunkEvidence, Evidence, budget_of, select_contextual

KEPT_SHARE = 0.5  # of the context's tokens


def sparse(kit: Kit, case: Case, ratio: float) -> Prepared:
    """In the service's order, only the better half of the context: the blocks that `contextual` prefers (SamKV, arXiv 2508.11661).

    A share of what is kept is recomputed by the service's policy. Its reference is full prefill of the *whole* context. Its time to
    the first token holds the writing of what is kept as KV files, which an engine that reads parts of a file would not need.
    """
    passages = kit.in_prompt_order(case)
    spans = kit.prompt(passages, case).chunks
    kept = select_contextual(
        Evidence(tuple(_evidence(kit, p, span) for p, span in zip(passages, spans, strict=True)), case.vectors),
        budget_of(KEPT_SHARE, total_tokens(spans)),
    )
    sparser = replace(kit, keys=replace(kit.keys, writer=f"{kit.keys.writer} sparse"))
    shorter = []
    for passage, span in zip(passages, spans, strict=True):
        inside = [part for part in (one.clipped_to(span) for one in kept) if part.num_tokens]
        offsets = [i - span.start for part in inside for i in range(part.start, part.end)]
        if offsets:
            chunk = shortened(passage.chunk, offsets)
            kit.keep_rows(kit.keys.chunk(passage.chunk.token_ids), offsets, sparser.keys.chunk(chunk.token_ids))
            shorter.append(replace(passage, chunk=chunk))
    return sparser.planned(shorter, kit.recompute(kit.settings.recompute_policy, ratio), case)


def _evidence(kit: Kit, passage: Passage, span: Span) -> ChunkEvidence:
    kept = kit.store.qcache(kit.keys.chunk(passage.chunk.token_ids))
    assert kept is not None, "prefilled before anything is measured"
    return ChunkEvidence(span, passage.score, kept.local, kept.mean_keys)
