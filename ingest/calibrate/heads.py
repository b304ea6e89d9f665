"""Heads that rank passages: those whose attention, while a question runs after the prefix alone, falls on the chunk
that the question was made from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import fmean

import torch

from ingest.calibrate.clozes import Cloze, clozes_of, contexts_of
from ingest.calibrate.reading import SelectiveReader, calibration_reader
from ingest.calibrate.run import LEAST_CONTEXTS
from ragkv.chunk import Chunk
from ragkv.clock import utc_now
from ragkv.errors import Rejected
from ragkv.heads import Heads
from ragkv.models import public_name
from ragkv.parts import Parts

HEADS = 16
CANDIDATES = 20
"""Chunks a question, as many as a re-ranker sees."""
_LEAST_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class HeadsPlan:
    """The source of the chunks, and the number of clozes to choose on and again of those to check on."""

    collection: str
    clozes: int
    seed: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Attention of a question in each head to each candidate, and which of them it was made from. shares: [layers,
    q_heads, chunks] float32."""

    shares: torch.Tensor
    gold: int

    def surprise(self) -> torch.Tensor:
        """Minus the logarithm of the source's part of what all candidates get, of each head: [layers, q_heads] float32.

        Unlike a rank it tells heads apart that all put the source first.
        """
        parts = self.shares / self.shares.sum(-1, keepdim=True).clamp_min(_LEAST_SHARE)
        return -parts[..., self.gold].clamp_min(_LEAST_SHARE).log()


def find_heads(parts: Parts, chunks: Sequence[Chunk], plan: HeadsPlan, progress: Callable[[str, int], None]) -> Heads:
    """Choose heads on one half of the chunks' contexts, check them on the other. `progress` is told a phase and how
    many are done. Raises Rejected for too little text, and for text with too few names and numbers."""
    contexts = contexts_of(chunks)
    if len(contexts) < LEAST_CONTEXTS:
        raise Rejected(
            f"there is text for only {len(contexts)} contexts, but calibration needs {LEAST_CONTEXTS}: give more documents"
        )
    pools = contexts[::2], contexts[1::2]
    clozes = [clozes_of(pool, plan.clozes, plan.seed + half) for half, pool in enumerate(pools)]
    if min(map(len, clozes)) < plan.clozes:
        raise Rejected(
            "there are too few sentences with names or numbers to ask about: give other or more documents, or fewer --clozes"
        )
    reader = calibration_reader(parts, parts.layout.dtype)

    def asked(phase: str, half: int) -> Iterator[Asked]:
        for done, cloze in enumerate(clozes[half], start=1):
            yield ask(reader, cloze, candidates_of(cloze, pools[half]), parts)
            progress(phase, done)

    heads = best_heads(list(asked("choosing", 0)))
    checked = list(asked("checking", 1))
    return Heads(
        model=public_name(parts.settings),
        model_fingerprint=parts.model_fingerprint,
        writer_fingerprint=parts.writer_fingerprint,
        made_at=utc_now(),
        collection=plan.collection,
        questions=len(checked),
        candidates=CANDIDATES,
        seed=plan.seed,
        heads=heads,
        mrr=fmean(mrr_of(one, heads) for one in checked),
        all_heads_mrr=fmean(reciprocal_rank(one.shares.mean((0, 1)), one.gold).item() for one in checked),
        chance_mrr=fmean(fmean(1 / rank for rank in range(1, one.shares.shape[-1] + 1)) for one in checked),
    )


def candidates_of(cloze: Cloze, pool: Sequence[Sequence[Chunk]]) -> list[Chunk]:
    """The cloze's source, the rest of its context, and chunks of the contexts behind it, CANDIDATES in all if there are
    so many. Their order changes no share."""
    at = next(index for index, context in enumerate(pool) if context[0].id == cloze.chunks[0].id)
    others = (chunk for chunk in chain.from_iterable((*pool[at:], *pool[:at])) if chunk.id != cloze.source.id)
    return [cloze.source, *islice(others, CANDIDATES - 1)]


def ask(reader: SelectiveReader, cloze: Cloze, candidates: Sequence[Chunk], parts: Parts) -> Asked:
    """The attention of a cloze's question to the candidates."""
    text = parts.prompts.text_in(cloze.question)
    keys = reader.keys([chunk.token_ids for chunk in candidates])
    shares = reader.shares(parts.prompts.question_ids(cloze.question), text, keys, range(parts.layout.layers))
    return Asked(shares, next(i for i, chunk in enumerate(candidates) if chunk.id == cloze.source.id))


def best_heads(asked: Sequence[Asked]) -> tuple[tuple[int, int], ...]:
    """The heads with the least mean surprise, best first."""
    mean = torch.stack([one.surprise() for one in asked]).mean(0)
    best = mean.flatten().topk(min(HEADS, mean.numel()), largest=False).indices.tolist()
    return tuple(divmod(index, mean.shape[1]) for index in best)


def mrr_of(one: Asked, heads: Sequence[tuple[int, int]]) -> float:
    """Reciprocal rank by the sum over these heads."""
    return reciprocal_rank(torch.stack([one.shares[layer, head] for layer, head in heads]).sum(0), one.gold).item()


def reciprocal_rank(scores: torch.Tensor, gold: int) -> torch.Tensor:
    """scores: [..., chunks]. [...] float32."""
    return 1 / (scores > scores[..., gold : gold + 1]).sum(-1).add(1)
