"""A finished run in KVShareArena's formats: result files, anchors, and leaderboard rows.

- a result file a method, `kva.result.v1`, which its `kva validate` and `kva score` read;
- `anchors.json`: F1 by question without context (floor), after full prefill (oracle) and of chunks that are prefilled
  alone and rotated to their positions (naive_pos), which `kva score --anchors` measures results against;
- `leaderboard.json`: a row a method, as in the arena's `retrieved_evidence`.

The arena's board is of Qwen3-8B with prompts of its own. Rows of another model, or with this service's wording, are to
be read beside each other and not beside the board's; RAGKV_MODEL, RAGKV_INSTRUCTIONS, RAGKV_QUESTION_FORMAT and
RAGKV_ANSWER_START set both. Full prefill has the passages in the file's order, for every row.
"""

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import msgspec

from bench.arena.score import PairedDifference, paired_difference, performance_gap_recovered
from bench.fidelity.evaluate import Measured
from bench.fidelity.kit import ANSWER_TOKENS
from bench.fidelity.measure import MethodOutcome
from bench.fidelity.methods import (
    FULL,
    NAIVE,
    NONE,
    RANDOM,
    Method,
)
from ragkv.policies import POLICIES

TRACK = "re"  # the arena's name for answers over retrieved passages
RESULT_SCHEMA, BOARD_SCHEMA = "kva.result.v1", "kva.leaderboard.v1"
_BACKEND = "vllm"
_REFERENCES = {FULL, NONE, NAIVE, "prefix", RANDOM}
_OURS = "question"  # after a paper, but not as the paper has it
_DIGITS = 4
_COST_NOTES = (
    "recomputed: tokens that ran through all layers at answer time, as the engine counts them, and the context once for a policy that "
    "runs one layer over it; question tokens that run to select others are not counted. kv_bytes: the context's KV. ttft_ms: "
    f"planning to first token, without retrieval. Greedy, at most {ANSWER_TOKENS} tokens or one line."
)


class Item(msgspec.Struct, frozen=True, rename={"id": "_id"}):
    """One question of a result file. A layer-token is one token in one layer."""

    id: str
    golds: tuple[str, ...]
    n_chunks: int
    pred: str
    f1_raw: float
    recomputed_layer_tokens: int
    dense_payload_layer_tokens: int
    kv_bytes: int
    ttft_ms: float


class BoardFigure(msgspec.Struct, frozen=True):
    """One method on one subset. `delta` and `ci`: F1 less naive_pos's; `sig`: whether the interval excludes 0."""

    value: float | None
    sig: bool | None
    direction: str | None
    delta: float | None
    ci: tuple[float, float] | None


class BoardRow(msgspec.Struct, frozen=True):
    """One method of the leaderboard, by subset."""

    key: str
    pgr: dict[str, BoardFigure]
    recompute_share: dict[str, float]


@dataclass(frozen=True)
class ArenaRun:
    """A run over one of the arena's subsets, or a set of the user's under a name. Full prefill, no context and NAIVE
    are in it."""

    run: Measured
    subset: str
    queryset: Mapping[str, str]

    @cached_property
    def ids(self) -> list[str]:
        """The questions' ids; the line beside one that is not unique."""
        seen = Counter(question.id for question in self.run.questions)
        return [q.id if q.id and seen[q.id] == 1 else f"{q.id}:{q.line}" for q in self.run.questions]

    def f1(self, key: str) -> dict[str, float]:
        """F1 by question's id."""
        return {name: outcome.f1 for name, outcome in zip(self.ids, self._outcomes(key), strict=True)}

    def mean_f1(self, key: str) -> float:
        return statistics.fmean(self.f1(key).values())

    def pgr(self, key: str) -> float | None:
        return performance_gap_recovered(self.mean_f1(key), self.mean_f1(NONE), self.mean_f1(FULL))

    def to_naive(self, key: str) -> PairedDifference:
        """F1 less that of chunks prefilled alone, nothing recomputed."""
        return paired_difference(self.f1(key), self.f1(NAIVE))

    def recompute_share(self, method: Method) -> float:
        """Layer-tokens of the context that run at answer time."""
        items = self.items(method)
        return sum(i.recomputed_layer_tokens for i in items) / max(1, sum(i.dense_payload_layer_tokens for i in items))

    def ttft_saved(self, key: str) -> float:
        """The share of full prefill's time to first token, median over questions."""
        both = zip(self._outcomes(key), self._outcomes(FULL), strict=True)
        return statistics.median(1 - one.ttft_s / full.ttft_s for one, full in both)

    def items(self, method: Method) -> list[Item]:
        layers, bytes_per_token = self.run.layout.layers, self.run.layout.bytes_per_token
        policy = POLICIES.get(method.name)
        whole_layers = int(policy is not None and policy.looks_at_all)
        return [
            Item(
                name,
                question.answers,
                len(question.passages),
                outcome.answer,
                outcome.f1,
                recomputed_layer_tokens=layers * outcome.recomputed_tokens + whole_layers * outcome.context_tokens,
                dense_payload_layer_tokens=layers * outcome.context_tokens,
                kv_bytes=bytes_per_token * outcome.context_tokens,
                ttft_ms=round(1e3 * outcome.ttft_s, 1),
            )
            for name, question, outcome in zip(self.ids, self.run.questions, self._outcomes(method.key), strict=True)
        ]

    def result(self, method: Method) -> dict[str, Any]:
        """A result file, `kva.result.v1`."""
        items, versions = self.items(method), {name: version(name) for name in ("ragkv", "torch", "transformers")}
        return {
            "schema": RESULT_SCHEMA,
            "summary": {
                "method": method.key,
                "track": TRACK,
                "subset": self.subset,
                "model": self.run.model,
                "n": len(items),
                "backend": _BACKEND,
                "versions": versions,
                "git_rev": None,
                "max_new_tokens": ANSWER_TOKENS,
                "queryset": self.queryset,
                "f1_raw": self.mean_f1(method.key),
                "recompute_fraction": self.recompute_share(method),
            },
            "results": items,
            "method_card": {
                "name": method.key,
                "provenance": _provenance(method),
                "backend": _BACKEND,
                "versions": versions,
                "training_data": None,
                "cost_notes": _COST_NOTES,
            },
        }

    def anchors(self) -> dict[str, Any]:
        """`anchors.json`."""
        f1 = {"floor": self.f1(NONE), "oracle": self.f1(FULL), "naive_pos": self.f1(NAIVE)}
        return {"tracks": {TRACK: {self.subset: f1}}}

    def board(self) -> dict[str, Any]:
        """`leaderboard.json`."""
        return {
            "_meta": {
                "board": self.run.model,
                "quality": "PGR = (F1 - floor) / (ceiling - floor)",
                "n": {self.subset: len(self.ids)},
                "schema_version": BOARD_SCHEMA,
            },
            "retrieved_evidence": {
                "subsets": [{"key": self.subset, "label": self.subset}],
                "rows": [self._row(method) for method in self.run.methods],
            },
        }

    def _row(self, method: Method) -> BoardRow:
        pgr = self.pgr(method.key)
        value = None if pgr is None else round(pgr, _DIGITS)
        share = round(self.recompute_share(method), _DIGITS)
        return BoardRow(method.key, {self.subset: self._figure(method.key, value)}, {self.subset: share})

    def _figure(self, key: str, value: float | None) -> BoardFigure:
        if key == NAIVE:
            return BoardFigure(value, None, None, None, None)
        delta = self.to_naive(key)
        low, high = (round(end, _DIGITS) for end in delta.interval)
        return BoardFigure(value, delta.direction is not None, delta.direction, round(delta.mean, _DIGITS), (low, high))

    def _outcomes(self, key: str) -> list[MethodOutcome]:
        return [record.outcomes[key] for record in self.run.records]


def _provenance(method: Method) -> str:
    """The arena's word for where an implementation comes from."""
    if method.name in _REFERENCES:
        return "reference"
    policy = POLICIES.get(method.name)
    of_a_paper = method.name == "ape" or bool(policy and policy.source)
    return "port" if of_a_paper and method.name != _OURS else "official"
