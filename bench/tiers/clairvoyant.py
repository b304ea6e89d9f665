"""Offline bounds: the best possible with knowledge of future requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.tiers.costs import Read
from ragkv.kv.eviction import Entry


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
