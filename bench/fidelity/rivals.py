"""Policies, a compression and an attention temperature to compare with, which the service does not offer.

- `infoflow`: tokens to which the whole question's attention has the largest norm (InfoFlow KV, arXiv 2603.05353); the
  engine selects them (`bench.fidelity.infoflow`);
- `passages`: whole passages, best score first;
- `legolink`: the first block of every passage, whatever the ratio (LegoLink of EPIC, arXiv 2410.15332);
- `random`: random blocks, or of a chunk that is compressed random tokens: the control that every report shows.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from bench.fidelity.kit import Case, Kit, Prepared
from ragkv.answer.planner import Planner
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk
from ragkv.kv.file import PlainKV
from ragkv.kv.format import QCACHE_BLOCK
from ragkv.kv.key import KeyMaker
from ragkv.kv.layout import Layout
from ragkv.kv.pieces import in_memory
from ragkv.kv.store import KVStore
from ragkv.prefill.methods import METHODS, Method
from ragkv.prefill.view import ChunkView
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.policies import Choice
from ragkv.stitch.select import ChunkEvidence, Evidence, Selector, select_random, take

INFOFLOW, PASSAGES, LEGOLINK, RANDOM = "infoflow", "passages", "legolink", "random"
INFOFLOW_CONNECTOR = "bench.fidelity.infoflow"
"""The module that an engine imports its connector from, so that it can select by `infoflow`."""


def select_legolink(evidence: Evidence, budget: int) -> tuple[Span, ...]:
    """The first block of every chunk, whatever the budget."""
    spans = [chunk.span for chunk in evidence.chunks]
    return merge(Span(span.start, min(span.start + evidence.block_size, span.end)) for span in spans)


def select_passages(evidence: Evidence, budget: int) -> tuple[Span, ...]:
    """Whole passages, best score first; of the last that fits only in part, its end, next to what follows."""
    best_first = sorted(evidence.chunks, key=lambda chunk: (chunk.score, chunk.span.start), reverse=True)
    return take([chunk.span for chunk in best_first], budget)


SELECTORS: dict[str, Selector] = {PASSAGES: select_passages, LEGOLINK: select_legolink, RANDOM: select_random}
RIVALS = (INFOFLOW, *SELECTORS)


def by_rival(kit: Kit, case: Case, policy: str, ratio: float) -> Prepared:
    """The chunks prefilled behind the shared prefix, with a share of the context recomputed by one of RIVALS."""
    if policy == INFOFLOW:
        return _by_infoflow(kit, case, ratio)
    recompute = Recompute("head", ratio, kit.settings.block_size or QCACHE_BLOCK)
    prepared = kit.planned(case.in_file_order, recompute, case)
    plan, chunks = prepared.plan, prepared.prompt.chunks
    context = total_tokens(chunks)
    budget = recompute.budget(context)
    if plan is None or budget in {0, context}:
        return prepared
    evidence = tuple(
        ChunkEvidence(span, passage.score)
        for passage, span in zip(case.in_file_order, chunks, strict=True)
        if span.start >= plan.exact_end
    )
    selected = SELECTORS[policy](Evidence(evidence, block_size=recompute.block_size), budget)
    return replace(prepared, plan=replace(plan, recompute=merge([*selected, *plan.missing])))


def _by_infoflow(kit: Kit, case: Case, ratio: float) -> Prepared:
    """As under policy `question` in these layers, but that the engine is to select by `infoflow`."""
    with_layers = replace(kit, planner=Planner(kit.store, Choice(tuple(infoflow_layers(kit.num_layers)))))
    prepared = with_layers.planned(case.in_file_order, Recompute("question", ratio, kit.settings.block_size or 1), case)
    if prepared.plan is None or prepared.plan.selection is None:
        return prepared
    selection = replace(prepared.plan.selection, policy=INFOFLOW)
    return replace(prepared, plan=replace(prepared.plan, selection=selection))


def infoflow_layers(num_layers: int) -> range:
    """Layers 22 to 25 of Qwen3-14B's 40, and as deep in a model of another depth."""
    return range(num_layers * 22 // 40, -(-num_layers * 26 // 40))


def random_scores(view: ChunkView) -> torch.Tensor:
    """Scores drawn without looking, alike for chunks of one length."""
    return torch.rand(view.num_tokens, generator=torch.Generator().manual_seed(view.num_tokens))


METHODS[RANDOM] = Method(random_scores, looks=False)


TEMPERATURE = 0.9
"""The default of APE's authors' code."""


def tempered_keys(keys: KeyMaker) -> KeyMaker:
    """Names of the KV files that `temper` writes. The prefix's is as ever."""
    return replace(keys, writer=f"{keys.writer} at temperature {TEMPERATURE:g}")


def temper(chunks: Sequence[Chunk], keys: KeyMaker, store: KVStore, layout: Layout) -> None:
    """Write a KV file for each chunk that has one: the same with keys divided by APE's attention temperature (Yang et
    al., arXiv 2502.05431).

    APE encodes chunks apart behind a shared prefix, as ragkv does, and changes how they are read: logits of the chunks
    are divided by a temperature, and the logarithm of their summed weights is multiplied by a scale. The temperature is
    exact here. The scale is not: it depends on what each query attends to, which no stored key or value says and vLLM's
    kernels do not show, so it is 1. APE also gives all chunks the same positions; here they stand one after the other,
    as always. So this is a method to compare with, and no policy.
    """
    for chunk in chunks:
        kv = store.get(keys.chunk(chunk.token_ids), layout)
        assert isinstance(kv, PlainKV), "prefilled before it is tempered, and not quantised"
        store.put(tempered_keys(keys).chunk(chunk.token_ids), replace(kv, keys=in_memory(kv.keys) / TEMPERATURE))
