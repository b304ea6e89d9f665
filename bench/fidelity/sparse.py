"""The method `sparse`: the question decides which chunks enter the prompt at all, as in the service."""

from bench.fidelity.kit import Case, Kit, Prepared
from ragkv.answer.service import in_prompt_order

KEPT_SHARE = 0.5  # of the context's tokens


def sparse(kit: Kit, case: Case, ratio: float) -> Prepared:
    """In the service's order, only the chunks that SamKV's contextual vectors prefer (arXiv 2508.11661), half of the
    context's tokens at most.

    A share of what is kept is recomputed by the service's policy. Its reference is full prefill of the *whole* context.
    """
    recompute = kit.recompute(kit.settings.recompute_policy, ratio)
    read = kit.planner.to_read(case.best_first, kit.keys, recompute, KEPT_SHARE, case.vectors)
    return kit.planned(in_prompt_order(read, kit.settings.passage_order), recompute, case)
