"""vLLM's scheduler: selections of the engine that were carried out, so that a prompt asked again gets the same ones."""

from collections.abc import Sequence

from msgspec.structs import replace

from ragkv.span import Span, merge
from ragkv.stitch.plan import StitchPlan
from ragkv.threads import RecentlyUsed


class Selections:
    """Selected spans by prompt, of the prompts used last.

    vLLM's cache keeps the full blocks of a prompt, and the rest is filled anew when the prompt is asked again, or goes
    on after a preemption. Selecting anew among the rest would choose other tokens than the first time: the answer would
    depend on what was asked before.
    """

    def __init__(self, num_blocks: int) -> None:
        """num_blocks: those of vLLM's cache. Every prompt that is used takes one at least from the blocks used longest
        ago, so a prompt that has blocks left is remembered."""
        self._selected = RecentlyUsed[int, list[Span]](list, num_blocks)

    def keep(self, prompt: int, spans: Sequence[Span]) -> None:
        """Remember the spans that were recomputed of a prompt, by a name that is equal for equal prompts under equal
        cache salts."""
        self._selected.of(prompt)[:] = spans

    def settled(self, plan: StitchPlan, prompt: int, region: Span) -> StitchPlan:
        """The plan for a region of the prompt, with the selection of the first time written out.

        Unchanged if nothing is remembered and the region is the whole of what the plan places. If it is a part, what
        lies before it was filled after a failure: then all of the region is recomputed.
        """
        if plan.selection is None:
            return plan
        if self._selected.peek(prompt) is not None:
            spans = self._selected.of(prompt)
        elif region.start:
            spans = [region]
        else:
            return plan
        return replace(plan, recompute=merge([*plan.recompute, *spans]), selection=None)
