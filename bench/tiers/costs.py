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
    """GB a second of each tier. remote: of an object store behind the disk that keeps everything; None without one."""

    host: float
    disk: float
    remote: float | None = None


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
        parts, start = [], 0
        for chunk in request.chunks:
            end = start + workload.tokens[chunk]
            parts.append(self._read(chunk, sizes[chunk], self._prefill_s(end) - self._prefill_s(start)))
            start = end
        return parts

    def _read(self, chunk: str, num_bytes: int, computed_s: float) -> Read:
        remote = self.bandwidths.remote
        compute_s = computed_s if remote is None else min(computed_s, num_bytes / remote / 1e9)
        disk_s = min(compute_s, num_bytes / self.bandwidths.disk / 1e9)
        return Read(chunk, num_bytes, min(disk_s, num_bytes / self.bandwidths.host / 1e9), disk_s, compute_s)

    def _prefill_s(self, tokens: int) -> float:
        work = self.shape.flops_per_token(MEASURED_TOKENS)
        return (
            tokens
            * self.shape.flops_per_token(tokens)
            / (prefill_rate(self.shape, self.device, MEASURED_TOKENS) * work)
        )
