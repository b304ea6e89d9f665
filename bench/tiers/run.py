"""A workload through the tiers under each policy, compared with the best that knowledge of future requests allows."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import msgspec

from bench.tiers.replay import Costs, Outcome, Read, Replay, Tier
from bench.tiers.workload import Workload
from ragkv.kv.eviction import Entry, Worth, known_policy
from ragkv.kv.format import KVFormat, share_of


@dataclass(slots=True)
class Belady:
    """Evicts what is used again latest (MIN, Belady 1966): the most hits that can be had if chunks are equal in bytes.

    Where they are not, or cost unequal seconds, it is a strong rival and no optimum: finding that one is NP-hard.
    `lower_bound` holds always. It is told before each use of a chunk, tier by tier, when the next one is.
    """

    next_use: dict[str, float] = field(default_factory=dict)

    def worth(self, entry: Entry) -> float:
        return -self.next_use[entry.key]


def next_uses(requests: Sequence[Sequence[str]]) -> list[list[float]]:
    """For each chunk of each request, the number of the next request that reads it; infinity if there is none."""
    upcoming: dict[str, int] = {}
    reads = []
    for number in reversed(range(len(requests))):
        reads.append([upcoming.get(chunk, float("inf")) for chunk in requests[number]])
        upcoming |= dict.fromkeys(requests[number], number)
    return reads[::-1]


def lower_bound(requests: Sequence[Sequence[Read]], host_bytes: int, disk_bytes: int) -> float:
    """Mean seconds of a request that no policy can be below, for chunks of any bytes and costs.

    Keeping a chunk from one use to the next takes its bytes for that many requests, and saves seconds. All bytes of a
    tier over all requests are given to those that save most for what they take, the last in part: the relaxation PFOO-L
    of Berger, Beckmann and Harchol-Balter (SIGMETRICS 2018), with seconds for hits, once for the disk and once for what
    the host saves beyond.
    """
    on_disk: list[tuple[float, float]] = []
    in_host: list[tuple[float, float]] = []
    last: dict[str, int] = {}
    total = 0.0
    for number, reads in enumerate(requests):
        for read in reads:
            total += read.compute_s
            if read.chunk in last:
                cost = float(read.num_bytes * (number - last[read.chunk]))
                on_disk.append((read.compute_s - read.disk_s, cost))
                in_host.append((read.disk_s - read.host_s, cost))
            last[read.chunk] = number
    gaps = len(requests) - 1
    return (total - _most(on_disk, disk_bytes * gaps) - _most(in_host, host_bytes * gaps)) / len(requests)


def _most(items: list[tuple[float, float]], room: float) -> float:
    """The fractional knapsack: the most that (value, weight) items give within a weight."""
    value = 0.0
    for worth, weight in sorted(items, key=lambda item: item[0] / item[1], reverse=True):
        value += worth * min(1.0, room / weight)
        room -= weight
        if room <= 0:
            break
    return value


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
    chunks in that format, the others are in bf16."""

    workload: Workload
    costs: Costs
    budget: float
    host: float
    int4: float = 0.0
    half_life_s: float | None = None

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

    def run(self, names: Sequence[str], advance: Callable[[], object]) -> Report:
        """`advance` is called after each request under each policy. Raises Rejected for a name of no policy."""
        corpus = sum(self._sizes.values())
        budget = int(corpus * self.budget)
        host = int(budget * self.host)
        disk = budget - host
        duration_s = self.workload.requests[-1].moment - self.workload.requests[0].moment
        half_life_s = self.half_life_s or max(duration_s * self.budget / 2, 1.0)
        belady = Belady()
        worths: dict[str, Worth] = {name: partial(known_policy(name).worth, half_life_s) for name in names}
        upcoming = next_uses([request.chunks for request in self.workload.requests])
        outcomes = []
        for name, worth in (worths | {BELADY: belady.worth}).items():
            replay = Replay(Tier(host, worth), Tier(disk, worth), half_life_s)
            for request, reads, next_reads in zip(self.workload.requests, self.reads, upcoming, strict=True):
                belady.next_use |= zip(request.chunks, next_reads, strict=True)
                replay.request(request.moment, reads)
                advance()
            outcomes.append(replay.outcome(name))
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
