"""Seconds and bytes of chunks: loading from each tier, and computing at a given position in a prompt."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.tiers.workload import Request, Workload
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
