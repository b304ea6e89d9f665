"""Recompute settings of one question: its own, or the service's, which depend on which writer made the KV."""

from dataclasses import dataclass, replace

from ragkv.answer.question import Question
from ragkv.settings import Settings
from ragkv.stitch.policies import POLICIES, PolicyName
from ragkv.stitch.select import block_size_of, budget_of

DEFAULT_RATIO = 0.1
"""Of the context, where neither question nor settings name a share and no writer suffices."""
WITHOUT_VECTORS: PolicyName = "question"


@dataclass(frozen=True, slots=True)
class Recompute:
    """A policy with everything settled: a share of the chunks' tokens, and at most `max_tokens` of them.

    spares_written: nothing is recomputed of KV that the writer in use made all of.
    """

    policy: PolicyName
    ratio: float
    block_size: int
    max_tokens: int | None = None
    spares_written: bool = False

    def for_kv(self, *, written: bool) -> "Recompute":
        """The same for KV of which it is known whether the writer in use made all of it."""
        return replace(self, ratio=0.0) if written and self.spares_written else self

    def budget(self, context_tokens: int) -> int:
        """Number of tokens to recompute of a context of `context_tokens`."""
        if self.policy == "none":
            return 0
        budget = budget_of(self.ratio, context_tokens)
        return budget if self.max_tokens is None else min(budget, self.max_tokens)


@dataclass(frozen=True, slots=True)
class Recomputing:
    """The service's rule for what is recomputed.

    writer_suffices: KV by the writer in use needs no recompute (`ragkv.prefill.writer.Card`).
    """

    settings: Settings
    writer_suffices: bool

    def policy(self, question: Question) -> PolicyName:
        return question.policy or self.settings.recompute_policy

    def of(self, question: Question, *, with_vectors: bool = True) -> Recompute:
        """The question's options over the settings. with_vectors: the question's vectors are there, if its policy needs
        them; without them the engine selects.

        A ratio in the question holds, however long the context. Where neither names one, nothing is recomputed of what
        a writer made that suffices, unless the question names a policy: then it is to be seen.
        """
        policy = self.policy(question)
        if POLICIES[policy].needs_question_vectors and not with_vectors:
            policy = WITHOUT_VECTORS
        block_size = question.block_size or self.settings.block_size or block_size_of(policy)
        if question.recompute_ratio is not None:
            return Recompute(policy, question.recompute_ratio, block_size)
        ratio, most = self.settings.recompute_ratio, self.settings.recompute_max_tokens
        spares_written = ratio is None and self.writer_suffices and question.policy is None
        return Recompute(policy, DEFAULT_RATIO if ratio is None else ratio, block_size, most, spares_written)

    def default(self, *, written: bool) -> Recompute:
        """Settings of a question without options."""
        return self.of(Question("", "", "")).for_kv(written=written)
