"""Replay of requests through two bounded tiers under an eviction policy, and what chunks cost: seconds and bytes to
load from each tier, and to compute at a given position in a prompt.

Tiers are inclusive: what the host has, the disk has too. A chunk that is in neither is computed and written to both,
and the policy then says what goes; what it values least may be the chunk just written, which is admission by the same
comparison. As in the service, how often a chunk was used is remembered after its eviction.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from bench.serving.load import percentile
from bench.tiers.workload import Request, Workload
from ragkv.kv.eviction import Entry, Worth, warmer
from ragkv.service.planning.plan import Device, prefill_rate
from ragkv.service.planning.shape import Shape

MEASURED_TOKENS = 2048
"""Context at which a device's rate was measured, if it was."""


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """GB a second of each tier."""

    host: float
    disk: float


@dataclass(frozen=True, slots=True)
class Read:
    """One chunk of one request: bytes, and seconds to get it from each tier or, in `compute_s`, from none.

    Loading that would take longer than computing is not done: no time is above that.
    """

    chunk: str
    num_bytes: int
    host_s: float
    disk_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of one model on one device. bytes_per_token: of a chunk in each format that is used."""

    shape: Shape
    device: Device
    bandwidths: Bandwidths

    def reads(self, request: Request, workload: Workload, sizes: Mapping[str, int]) -> list[Read]:
        """The chunks of a request where they stand in its prompt. Behind a longer context a token attends to more, and
        costs more."""
        reads, start = [], 0
        for chunk in request.chunks:
            end = start + workload.tokens[chunk]
            compute_s, gigabytes = self._prefill_s(end) - self._prefill_s(start), sizes[chunk] / 1e9
            disk_s = min(compute_s, gigabytes / self.bandwidths.disk)
            host_s = min(disk_s, gigabytes / self.bandwidths.host)
            reads.append(Read(chunk, sizes[chunk], host_s, disk_s, compute_s))
            start = end
        return reads

    def _prefill_s(self, tokens: int) -> float:
        work = self.shape.flops_per_token(MEASURED_TOKENS)
        return (
            tokens
            * self.shape.flops_per_token(tokens)
            / (prefill_rate(self.shape, self.device, MEASURED_TOKENS) * work)
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a policy. Hits are shares of chunks read; seconds are of a request's chunks, loaded or computed."""

    policy: str
    host_hits: float
    disk_hits: float
    mean_s: float
    p95_s: float
    loaded_bytes: int
    written_bytes: int


class Tier:
    """Entries within a budget of bytes."""

    def __init__(self, budget: int, worth: Worth) -> None:
        self.entries: dict[str, Entry] = {}
        self._budget, self._worth = budget, worth
        self._used = 0
        self._ranks: dict[str, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._touches = 0

    def put(self, entry: Entry) -> None:
        """Add an entry, or note its use."""
        if entry.key not in self.entries:
            self._used += entry.num_bytes
        self.entries[entry.key] = entry
        self._touches += 1
        self._ranks[entry.key] = rank = (self._worth(entry), self._touches)
        heapq.heappush(self._heap, (*rank, entry.key))

    def evict(self) -> Iterator[str]:
        """Remove what is worth least until the rest is within the budget."""
        while self._used > self._budget:
            worth, touch, key = heapq.heappop(self._heap)
            if self._ranks.get(key) == (worth, touch):  # neither removed nor used since
                self.remove(key)
                yield key

    def remove(self, key: str) -> None:
        """Remove one, if it is there."""
        if (entry := self.entries.pop(key, None)) is not None:
            self._used -= entry.num_bytes
            self._ranks.pop(key, None)


@dataclass(slots=True)
class _Past:
    """History of one chunk, kept or not. compute_s: the mean over its places in prompts, which say what the next one
    costs."""

    warm_until: float = -math.inf
    uses: int = 0
    compute_s: float = 0.0


@dataclass(slots=True)
class Replay:
    """One policy over one workload. half_life_s: of the count of uses that entries have."""

    host: Tier
    disk: Tier
    half_life_s: float
    _pasts: dict[str, _Past] = field(default_factory=dict)
    _hits: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)
    _seconds: list[float] = field(default_factory=list)

    def request(self, now: float, reads: Sequence[Read]) -> None:
        """Get the chunks of one request, then keep them."""
        seconds = 0.0
        for read in reads:
            where = (
                "host" if read.chunk in self.host.entries else "disk" if read.chunk in self.disk.entries else "compute"
            )
            self._hits[where] += 1
            self._bytes["computed" if where == "compute" else "loaded"] += read.num_bytes
            seconds += getattr(read, f"{where}_s")
        self._seconds.append(seconds)
        for read in reads:
            if read.chunk not in self.disk.entries:
                self._bytes["written"] += read.num_bytes
            past = self._pasts.setdefault(read.chunk, _Past())
            past.warm_until = warmer(past.warm_until, now, self.half_life_s)
            past.uses += 1
            past.compute_s += (read.compute_s - past.compute_s) / past.uses
            # In a tier, what a read of the next one would take is what an entry saves.
            for tier, saved_s in ((self.disk, past.compute_s - read.disk_s), (self.host, read.disk_s - read.host_s)):
                tier.put(Entry(read.chunk, read.num_bytes, 0, max(saved_s, 1e-12), now, past.warm_until))
        for key in self.disk.evict():
            self.host.remove(key)
        for _ in self.host.evict():
            pass

    def outcome(self, name: str) -> Outcome:
        num_reads = self._hits.total()
        return Outcome(
            policy=name,
            host_hits=self._hits["host"] / num_reads,
            disk_hits=self._hits["disk"] / num_reads,
            mean_s=math.fsum(self._seconds) / len(self._seconds),
            p95_s=percentile(self._seconds, 95),
            loaded_bytes=self._bytes["loaded"],
            written_bytes=self._bytes["written"],
        )
