"""The policies that choose which tokens of a stitched context to recompute: one table for settings, API, engine and
docs."""

from dataclasses import dataclass
from typing import Literal, get_args

PolicyName = Literal["question", "contextual", "initial", "deviation", "head", "none"]
PolicyAlias = Literal["query_attention", "samkv", "cacheblend", "epic"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. `chooses`: the tokens it recomputes; `source`: the paper behind it.

    in_engine: the engine chooses, which has the model's own keys and queries over the whole prompt; otherwise the
    service does, before the engine sees the prompt. block_size: tokens that are chosen together where no other size is
    asked for; None for the blocks of the Q-Cache. needs_question_vectors: looks at the question's initial vectors.
    """

    name: PolicyName
    chooses: str
    source: str = ""
    alias: PolicyAlias | None = None
    in_engine: bool = False
    block_size: int | None = None
    needs_question_vectors: bool = False


_TABLE = (
    Policy(
        "question",
        "tokens that the question attends to",
        "after ProphetKV, arXiv 2602.02579",
        "query_attention",
        in_engine=True,
        block_size=4,
    ),
    Policy(
        "contextual",
        "blocks that the question attends to, its vectors enriched by the other passages",
        "SamKV, arXiv 2508.11661",
        "samkv",
        needs_question_vectors=True,
    ),
    Policy("initial", "blocks that the question's own vectors attend to", needs_question_vectors=True),
    Policy(
        "deviation",
        "tokens whose keys changed most",
        "CacheBlend, arXiv 2405.16444",
        "cacheblend",
        in_engine=True,
        block_size=1,
    ),
    Policy("head", "the first tokens of every passage", "EPIC, arXiv 2410.15332", "epic"),
    Policy("none", "nothing"),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _TABLE}
"""By name, the default first."""
ALIASES: dict[str, PolicyName] = {policy.alias: policy.name for policy in _TABLE if policy.alias}
assert tuple(POLICIES) == get_args(PolicyName)
assert set(ALIASES) == set(get_args(PolicyAlias))


def policy_name(name: PolicyName | PolicyAlias | None) -> PolicyName | None:
    """The policy's own name for its name or alias."""
    return ALIASES.get(name, name) if name else None  # type: ignore[arg-type]  # no alias is left
