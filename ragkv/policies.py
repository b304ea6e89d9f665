"""The policies that choose which tokens of a stitched context to recompute: one table for settings, API, engine and
docs."""

from dataclasses import dataclass
from typing import Literal, get_args

PolicyName = Literal[
    "question", "infoflow", "passages", "contextual", "initial", "deviation", "head", "legolink", "random", "none"
]
PolicyAlias = Literal["query_attention", "samkv", "cacheblend", "epic"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. `chooses`: the tokens it recomputes; `source`: the paper behind it.

    in_engine: the engine chooses, which has the model's own keys and queries over the whole prompt; otherwise the
    service does, before the engine sees the prompt. block_size: tokens that are chosen together where no other size is
    asked for; None for the blocks of the Q-Cache. needs_question_vectors: looks at the question's initial vectors.
    looks_at_all: one layer runs over the whole context. per_chunk: a block of every chunk is recomputed, whatever the
    ratio between 0 and 1.
    """

    name: PolicyName
    chooses: str
    source: str = ""
    alias: PolicyAlias | None = None
    in_engine: bool = False
    block_size: int | None = None
    needs_question_vectors: bool = False
    looks_at_all: bool = False
    per_chunk: bool = False


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
        "infoflow",
        "tokens to which the whole question's attention has the largest norm",
        "InfoFlow KV, arXiv 2603.05353",
        in_engine=True,
        block_size=1,
    ),
    Policy("passages", "whole passages, best score first"),
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
        looks_at_all=True,
    ),
    Policy("head", "the first tokens of every passage", "EPIC, arXiv 2410.15332", "epic"),
    Policy(
        "legolink",
        "the first block of every passage, whatever the ratio",
        "LegoLink of EPIC, arXiv 2410.15332",
        per_chunk=True,
    ),
    Policy("random", "random blocks, for comparison"),
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
