"""The methods compared: the prompt of each, and the tokens it recomputes.

All but those that say so have the passages in the file's order. Two policies are rivals, which the service does not
offer:

- `infoflow`: tokens to which the whole question's attention has the largest norm (InfoFlow KV, arXiv 2603.05353); the
  engine selects them (`bench.fidelity.infoflow`);
- `random`: random blocks, the control that every report shows.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from bench.fidelity.kit import Case, Kit, Prepared
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import Prompt
from ragkv.answer.question import Question
from ragkv.answer.recompute import Recompute
from ragkv.answer.service import in_prompt_order, within_share
from ragkv.chunk import Passage
from ragkv.errors import Rejected
from ragkv.kv.format import QCACHE_BLOCK
from ragkv.settings import Settings
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.plan import PlacedChunk, StitchPlan
from ragkv.stitch.policies import POLICIES, Choice
from ragkv.stitch.select import blocks_of, take

INFOFLOW, RANDOM = "infoflow", "random"
INFOFLOW_CONNECTOR = "bench.fidelity.infoflow"
"""The module that an engine imports its connector from, so that it can select by `infoflow`."""


Order = Callable[[Kit, Case], Sequence[Passage]]
"""A case's passages in an order."""


def in_file_order(kit: Kit, case: Case) -> Sequence[Passage]:
    return case.in_file_order


def best_first(kit: Kit, case: Case) -> Sequence[Passage]:
    """As retrieval ranks them: the best one, behind the prefix, is exact for nothing."""
    return case.best_first


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
    return replace(prepared, plan=msgspec.structs.replace(plan, recompute=merge([*selected, *plan.missing])))


def by_infoflow(kit: Kit, case: Case, ratio: float) -> Prepared:
    """As under policy `question` in these layers, but that the engine is to select by `infoflow`."""
    with_layers = replace(kit, planner=Planner(kit.store, Choice(tuple(infoflow_layers(kit.num_layers)))))
    prepared = with_layers.planned(case.in_file_order, Recompute("question", ratio, kit.settings.block_size or 1), case)
    if prepared.plan is None or prepared.plan.selection is None:
        return prepared
    selection = msgspec.structs.replace(prepared.plan.selection, policy=INFOFLOW)
    return replace(prepared, plan=msgspec.structs.replace(prepared.plan, selection=selection))


def infoflow_layers(num_layers: int) -> range:
    """Layers 22 to 25 of Qwen3-14B's 40, and as deep in a model of another depth."""
    return range(num_layers * 22 // 40, -(-num_layers * 26 // 40))


RIVALS = {INFOFLOW: by_infoflow, RANDOM: by_random}

FULL, NONE, NAIVE, DEFAULT = "full", "none", "naive", "default"
DEFAULT_ORDER, RETRIEVAL_ORDER = "default order", "retrieval order"
FULL_DEFAULT_ORDER, FULL_RETRIEVAL_ORDER = "full, default order", "full, retrieval order"
POLICIES_MEASURED = (*(name for name in POLICIES if name != "none"), *RIVALS)


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the report.

    reference: the method that is full prefill of the same passages in the same order; KL and agreement are to it.
    gain_reference: the full prefill whose gain this one is to keep. needs_question: plans with the question's vectors;
    needs_alone: stitches KV that was prefilled behind nothing. plain: of a variant, the same method over the plain
    model's KV as it computed it. selects: by the policy `question`, whose layers can be others.
    """

    name: str
    prepare: Callable[[Kit, Case], Prepared]
    ratio: float | None = None
    reference: str = FULL
    gain_reference: str = FULL
    needs_question: bool = False
    needs_alone: bool = False
    plain: str | None = None
    selects: bool = False

    @property
    def key(self) -> str:
        """Names the method and its ratio."""
        return self.name if self.ratio is None else f"{self.name} @{self.ratio:g}"


def full(kit: Kit, case: Case, order: Order) -> Prepared:
    """Full prefill."""
    return Prepared(kit.prompt(order(kit, case), case), None)


def none(kit: Kit, case: Case) -> Prepared:
    """The question without any context: what the model knows by itself."""
    return Prepared(kit.prompt((), case), None)


def naive(kit: Kit, case: Case) -> Prepared:
    """Chunks prefilled alone, with nothing before them, and rotated; only the prefix itself is as ever."""
    prompt = kit.prompt(case.in_file_order, case)
    placed = [PlacedChunk(kit.keys.prefix(), prompt.prefix)]
    for passage, span in zip(case.in_file_order, prompt.chunks, strict=True):
        placed.append(PlacedChunk(kit.alone.chunk(passage.chunk.token_ids), span))
    return Prepared(prompt, StitchPlan(tuple(placed)))


def by_policy(kit: Kit, case: Case, order: Order, policy: str, ratio: float) -> Prepared:
    """Chunks prefilled behind the shared prefix and rotated, with a share of the context recomputed by a policy."""
    return kit.planned(order(kit, case), kit.recompute(policy, ratio), case)


def default(kit: Kit, case: Case) -> Prepared:
    """The service's defaults: its order, its policy, its ratio."""
    return kit.planned(kit.in_prompt_order(case), kit.recomputing.of(Question("", "", case.question.text)), case)


KEPT_SHARE = 0.5  # of the context's tokens


def sparse(kit: Kit, case: Case, ratio: float) -> Prepared:
    """In the service's order, only the passages that retrieval ranks first, half of the context's tokens at most.

    A share of what is kept is recomputed by the service's policy. Its reference is full prefill of the *whole* context.
    """
    recompute = kit.recompute(kit.settings.recompute_policy, ratio)
    read = within_share(case.best_first, KEPT_SHARE)
    return kit.planned(in_prompt_order(read, kit.settings.passage_order), recompute, case)


def by_variant(kit: Kit, case: Case, variant: str, prepare: Callable[[Kit, Case], Prepared]) -> Prepared:
    """As another method, over KV that was made or is kept in another way."""
    return prepare(replace(kit, keys=kit.variants[variant]), case)


def by_layers(kit: Kit, case: Case, choice: Choice, prepare: Callable[[Kit, Case], Prepared]) -> Prepared:
    """As another method, other layers selecting what is recomputed."""
    return prepare(replace(kit, planner=Planner(kit.store, choice)), case)


_SPARSE = "sparse"
_SELECTING = "question"
_FULL = Method(FULL, partial(full, order=in_file_order))
_NONE = Method(NONE, none)
_FULL_REORDERED = (
    Method(
        FULL_DEFAULT_ORDER, partial(full, order=Kit.in_prompt_order), None, FULL_DEFAULT_ORDER, FULL_RETRIEVAL_ORDER
    ),
    Method(FULL_RETRIEVAL_ORDER, partial(full, order=best_first), None, FULL_RETRIEVAL_ORDER, FULL_RETRIEVAL_ORDER),
)
_IN_FILE_ORDER = (
    Method(NAIVE, naive, needs_alone=True),
    Method("prefix", partial(by_policy, order=in_file_order, policy="none", ratio=0.0)),
)
WRITER = "writer"
_VARIED = frozenset(("prefix", *POLICIES_MEASURED, _SPARSE, DEFAULT, DEFAULT_ORDER))
_REORDERED = (_SPARSE, DEFAULT, DEFAULT_ORDER, RETRIEVAL_ORDER)
NAMES = (FULL, NONE, *(method.name for method in _IN_FILE_ORDER), *POLICIES_MEASURED, *_REORDERED)


def methods_of(
    names: Sequence[str],
    ratios: Sequence[float],
    settings: Settings,
    variants: Sequence[str] = (),
    shorter: Sequence[str] = (),
    choices: Sequence[Choice] = (),
) -> list[Method]:
    """The methods of these names, at each ratio where they have one. Raises Rejected for a name there is not.

    Each method that stitches chunks behind the prefix comes once more for every one of `variants` and of `shorter`,
    variants that leave tokens out; but over these not `sparse`, which does so itself. Each that selects by `question`
    comes once more for every one of `choices`. No context is always among them, and full prefill in each order that
    another method is measured against.
    """
    if unknown := [name for name in names if name not in NAMES]:
        raise Rejected(f"no method {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    selected = frozenset(names) - {NONE}
    if selected and selected.issubset(_REORDERED):  # nothing else is in the file's order
        methods = [replace(_NONE, reference=FULL_RETRIEVAL_ORDER, gain_reference=FULL_RETRIEVAL_ORDER)]
    else:
        methods = [_FULL, _NONE]
    methods += [method for method in _IN_FILE_ORDER if method.name in selected]
    for policy in (name for name in POLICIES_MEASURED if name in selected):
        prepare = RIVALS.get(policy) or partial(by_policy, order=in_file_order, policy=policy)
        asks = policy in POLICIES and POLICIES[policy].needs_question_vectors
        selects = policy == _SELECTING
        methods += [
            Method(policy, partial(prepare, ratio=ratio), ratio, needs_question=asks, selects=selects)
            for ratio in ratios
        ]
    methods += _reordered(selected, ratios, settings)
    methods += [
        *(_varied(method, variant) for variant in variants for method in methods if method.name in _VARIED),
        *(_varied(method, variant) for variant in shorter for method in methods if method.name in _VARIED - {_SPARSE}),
    ]
    return methods + [
        replace(
            method,
            name=f"{method.name}, layers {choice.text}",
            prepare=partial(by_layers, choice=choice, prepare=method.prepare),
        )
        for choice in choices
        for method in methods
        if method.selects
    ]


def _varied(method: Method, variant: str) -> Method:
    prepare = partial(by_variant, variant=variant, prepare=method.prepare)
    return replace(method, name=f"{variant}, {method.name}", prepare=prepare, plain=method.key)


def _reordered(selected: Collection[str], ratios: Sequence[float], settings: Settings) -> list[Method]:
    """The methods that re-order, as the service does or by rank, and the full prefills they are held against."""
    ranked = FULL_RETRIEVAL_ORDER
    policy = settings.recompute_policy
    asks = POLICIES[policy].needs_question_vectors
    named = partial(Method, gain_reference=ranked, needs_question=asks, selects=policy == _SELECTING)
    methods = []
    for name, prepare, reference in (
        (DEFAULT_ORDER, partial(by_policy, order=Kit.in_prompt_order, policy=policy), FULL_DEFAULT_ORDER),
        (RETRIEVAL_ORDER, partial(by_policy, order=best_first, policy=policy), ranked),
        (_SPARSE, sparse, FULL_DEFAULT_ORDER),
    ):
        if name in selected:
            methods += [named(name, partial(prepare, ratio=ratio), ratio, reference) for ratio in ratios]
    if DEFAULT in selected:
        methods.append(named(DEFAULT, default, None, FULL_DEFAULT_ORDER))
    references = {reference for method in methods for reference in (method.reference, method.gain_reference)}
    return methods + [method for method in _FULL_REORDERED if method.name in references]


def context_of(prompt: Prompt) -> Span:
    """The span of the passages in the prompt."""
    return Span(prompt.prefix.end, prompt.question.start)
