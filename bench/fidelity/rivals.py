"""Policies and a compression to compare with, which the service does not offer.

- `infoflow`: tokens to which the whole question's attention has the largest norm (InfoFlow KV, arXiv 2603.05353); the
  engine selects them (`bench.fidelity.infoflow`);
- `random`: random blocks, or of a chunk that is compressed random tokens: the control that every report shows.
"""

import random
from collections.abc import Iterable
from dataclasses import replace

import torch

from bench.fidelity.kit import Case, Kit, Prepared
from ragkv.answer.planner import Planner
from ragkv.answer.recompute import Recompute
from ragkv.kv.format import QCACHE_BLOCK
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.compression import METHODS, Method
from ragkv.stitch.policies import Choice
from ragkv.stitch.select import blocks_of, take

INFOFLOW, RANDOM = "infoflow", "random"
INFOFLOW_CONNECTOR = "bench.fidelity.infoflow"
"""The module that an engine imports its connector from, so that it can select by `infoflow`."""


def select_random(spans: Iterable[Span], block_size: int, budget: int) -> tuple[Span, ...]:
    """Blocks drawn without looking, the same each time."""
    blocks = [block for span in spans for block in blocks_of(span, block_size)]
    random.Random(0).shuffle(blocks)  # noqa: S311 - an experiment's control, not a secret
    return take(blocks, budget)


def by_random(kit: Kit, case: Case, ratio: float) -> Prepared:
    """The chunks prefilled behind the shared prefix, with a share of the context recomputed at random."""
    recompute = Recompute("head", ratio, kit.settings.block_size or QCACHE_BLOCK)
    prepared = kit.planned(case.in_file_order, recompute, case)
    plan, chunks = prepared.plan, prepared.prompt.chunks
    context = total_tokens(chunks)
    budget = recompute.budget(context)
    if plan is None or budget in {0, context}:
        return prepared
    selected = select_random((span for span in chunks if span.start >= plan.exact_end), recompute.block_size, budget)
    return replace(prepared, plan=replace(plan, recompute=merge([*selected, *plan.missing])))


def by_infoflow(kit: Kit, case: Case, ratio: float) -> Prepared:
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


def random_scores(weights: torch.Tensor) -> torch.Tensor:
    """Scores drawn without looking, alike for chunks of one length."""
    return torch.rand(weights.shape[1], generator=torch.Generator().manual_seed(weights.shape[1]))


METHODS[RANDOM] = Method(lambda tokens, behind, decoded: range(0), random_scores)

RIVALS = {INFOFLOW: by_infoflow, RANDOM: by_random}
