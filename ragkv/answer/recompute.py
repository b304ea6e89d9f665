"""Recompute settings of one question: its own, or those of the service."""

from dataclasses import dataclass

from ragkv.answer.question import Question
from ragkv.policies import PolicyName
from ragkv.settings import Settings
from ragkv.stitch.select import block_size_of, budget_of


@dataclass(frozen=True, slots=True)
class Recompute:
    """A policy with everything settled: a share of the chunks' tokens, and at most `max_tokens` of them."""

    policy: PolicyName
    ratio: float
    block_size: int
    max_tokens: int | None = None

    def budget(self, context_tokens: int) -> int:
        """Number of tokens to recompute of a context of `context_tokens`."""
        if self.policy == "none":
            return 0
        budget = budget_of(self.ratio, context_tokens)
        return budget if self.max_tokens is None else min(budget, self.max_tokens)


def recompute_of(question: Question, settings: Settings) -> Recompute:
    """The question's own wishes over the settings. A ratio that is asked for holds, however long the context."""
    policy = question.policy or settings.recompute_policy
    block_size = question.block_size or settings.block_size or block_size_of(policy)
    if question.recompute_ratio is not None:
        return Recompute(policy, question.recompute_ratio, block_size)
    return Recompute(policy, settings.recompute_ratio, block_size, settings.recompute_max_tokens)
