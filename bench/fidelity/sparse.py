"""The method `sparse`: only some passages enter the prompt at all, as in the service."""

from bench.fidelity.kit import Case, Kit, Prepared
from ragkv.answer.service import in_prompt_order, within_share

KEPT_SHARE = 0.5  # of the context's tokens


def sparse(kit: Kit, case: Case, ratio: float) -> Prepared:
    """In the service's order, only the passages that retrieval ranks first, half of the context's tokens at most.

    A share of what is kept is recomputed by the service's policy. Its reference is full prefill of the *whole* context.
    """
    recompute = kit.recompute(kit.settings.recompute_policy, ratio)
    read = within_share(case.best_first, KEPT_SHARE)
    return kit.planned(in_prompt_order(read, kit.settings.passage_order), recompute, case)
