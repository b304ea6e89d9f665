"""A workload through the tiers under each policy, compared with the best that could be reached."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from bench.tiers.clairvoyant import Belady, lower_bound, next_uses
from bench.tiers.costs import Costs, Read
from bench.tiers.replay import Outcome, Replay, Tier
from bench.tiers.workload import Workload
from ragkv.kv.eviction import EvictionPolicy, known_policy
from ragkv.kv.format import KVFormat, share_of

BELADY = "belady"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """corpus_bytes: of all chunks. half_life_s: of a use. bound_s: no policy's mean time is below it. One outcome a
    policy."""

    workload: str
    requests: int
    chunks: int
    corpus_bytes: int
    host_bytes: int
    disk_bytes: int
    half_life_s: float
    bound_s: float
    outcomes: list[Outcome]


@dataclass(frozen=True)
class Trial:
    """budget: bytes of host and disk together, as a share of the corpus; host: the host's part of them. int4: share of
    chunks in that format, the others are in bf16. in_chains: a chunk is of use only behind those before it, as in a
    prefix cache."""

    workload: Workload
    costs: Costs
    budget: float
    host: float
    int4: float = 0.0
    half_life_s: float | None = None
    in_chains: bool = False

    @cached_property
    def reads(self) -> list[list[Read]]:
        return [self.costs.reads(request, self.workload, self._sizes) for request in self.workload.requests]

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        draw = random.Random(1)  # noqa: S311 - a simulation
        shape, sizes = self.costs.shape, {}
        for chunk, tokens in self.workload.tokens.items():
            kv_format = KVFormat.INT4 if draw.random() < self.int4 else KVFormat.BF16
            sizes[chunk] = int(shape.bytes_per_token * tokens * share_of(kv_format, shape.head_dim, tokens))
        return sizes

    @property
    def duration_s(self) -> float:
        return self.workload.requests[-1].moment - self.workload.requests[0].moment

    def run(self, names: Sequence[str], advance: Callable[[], object]) -> Report:
        """`advance` is called after each request under each policy. Raises Rejected for a name of no policy."""
        corpus = sum(self._sizes.values())
        budget = int(corpus * self.budget)
        host = int(budget * self.host)
        disk = budget - host
        half_life_s = self.half_life_s or max(self.duration_s * self.budget / 2, 1.0)
        policies = {name: known_policy(name).make(half_life_s) for name in names}

        def replay(policy: EvictionPolicy) -> Replay:
            in_host, on_disk = (Tier(size, policy, in_chains=self.in_chains) for size in (host, disk))
            return Replay(in_host, on_disk, half_life_s, self.in_chains)

        outcomes = [self._replayed(name, replay(policy), None, advance) for name, policy in policies.items()]
        belady = Belady()
        outcomes.append(self._replayed(BELADY, replay(belady), belady, advance))
        return Report(
            workload=self.workload.name,
            requests=len(self.workload.requests),
            chunks=len(self._sizes),
            corpus_bytes=corpus,
            host_bytes=host,
            disk_bytes=disk,
            half_life_s=half_life_s,
            bound_s=lower_bound(self.reads, host, disk),
            outcomes=outcomes,
        )

    def _replayed(self, name: str, replay: Replay, belady: Belady | None, advance: Callable[[], object]) -> Outcome:
        upcoming: Iterator[list[float]] = iter(())
        if belady is not None:
            upcoming = iter(next_uses([request.chunks for request in self.workload.requests]))
        for request, reads in zip(self.workload.requests, self.reads, strict=True):
            if belady is not None:
                belady.next_use |= zip(request.chunks, next(upcoming), strict=True)
            replay.request(request.moment, reads)
            advance()
        return replay.outcome(name)
