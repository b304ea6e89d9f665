"""What a question recomputes when it says nothing, or only half."""

from collections.abc import Sequence
from dataclasses import dataclass

from ragkv.answer.ask import Ask
from ragkv.settings import Policy, Settings
from ragkv.stitch.select import block_size_of, budget_of

DEFAULT_RATIO = 0.10  # of a policy that was named without a ratio


@dataclass(frozen=True, slots=True)
class Recipe:
    """A policy with everything settled. `ratio` None: as many tokens as the best `passages` passages have."""

    policy: Policy
    ratio: float | None
    passages: int
    block_size: int

    def budget(self, chunk_tokens_best_first: Sequence[int]) -> int:
        """Tokens to recompute, for chunks of these sizes, best first."""
        if self.policy == "none":
            return 0
        if self.ratio is not None:
            return budget_of(self.ratio, sum(chunk_tokens_best_first))
        return sum(chunk_tokens_best_first[: self.passages])


def recipe_of(ask: Ask, settings: Settings) -> Recipe:
    """The question's own wishes over the settings."""
    policy = ask.policy or settings.recompute_policy
    ratio = settings.recompute_ratio if ask.recompute_ratio is None else ask.recompute_ratio
    if ratio is None and policy != "passages":
        ratio = DEFAULT_RATIO
    block_size = ask.block_size or settings.block_size or block_size_of(policy)
    return Recipe(policy, ratio, settings.recompute_passages, block_size)
