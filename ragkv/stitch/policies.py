"""The policies that choose which tokens of a stitched context to recompute, and the layers whose attention policy
`question` looks at: one table and one value for settings, API, plans, engine and docs."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, get_args

import msgspec

from ragkv.errors import Rejected
from ragkv.ids import runs

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
BLOCK_SIZES = range(1, 65)
"""Tokens that may be chosen together."""
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _TABLE}
"""By name, the default first."""
ALIASES: dict[str, PolicyName] = {policy.alias: policy.name for policy in _TABLE if policy.alias}
assert tuple(POLICIES) == get_args(PolicyName)
assert set(ALIASES) == set(get_args(PolicyAlias))


def policy_name(name: PolicyName | PolicyAlias | None) -> PolicyName | None:
    """The policy's own name for its name or alias."""
    return ALIASES.get(name, name) if name else None  # type: ignore[arg-type]  # no alias is left


SETTING = "RAGKV_CHOOSING_LAYERS"
UPPER = "upper"
MAX_LAYERS = 1024
"""More than any model has."""
Layer = Annotated[int, msgspec.Meta(ge=0, lt=MAX_LAYERS)]
_PART = re.compile(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?")


class Choice(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Layers counted from 0, ascending; empty for the upper ones, from a third of the model's depth to its end.

    Attention weights are a softmax over prefix and chunks together, of which the chunks' part counts, so that a head
    that rests on the first tokens (attention sink, arXiv 2309.17453) counts less.
    """

    layers: Annotated[tuple[Layer, ...], msgspec.Meta(max_length=MAX_LAYERS)] = ()

    def __post_init__(self) -> None:
        if any(layer >= following for layer, following in pairwise(self.layers)):
            raise ValueError("the layers that choose are not in ascending order")

    @classmethod
    def of(cls, text: str) -> "Choice":
        """The choice that `text` writes. Raises Rejected for a text that writes none."""
        if text.strip() == UPPER:
            return cls()
        layers: set[int] = set()
        for part in text.split(","):
            bounds = _PART.fullmatch(part)
            if bounds is None or not int(bounds[1]) <= int(bounds[2] or bounds[1]) < MAX_LAYERS:
                raise Rejected(
                    f'{SETTING}={text}: give "{UPPER}", a range such as 9-20 or numbers such as 9,12,15; the first '
                    "layer is 0"
                )
            layers.update(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
        return cls(tuple(sorted(layers)))

    @property
    def text(self) -> str:
        """The layers as `of` reads them."""
        of_runs = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs(self.layers))
        return ",".join(of_runs) or UPPER

    def layers_of(self, num_layers: int) -> tuple[int, ...]:
        """The layers in a model of `num_layers`. Raises Rejected if it lacks one of them."""
        layers = self.layers or tuple(range(num_layers // 3, num_layers))
        if layers[-1] >= num_layers:
            raise Rejected(f"{SETTING}={self.text}: the model has layers 0 to {num_layers - 1}: choose from these")
        return layers


DEFAULT_CHOICE = Choice()
