"""The cost of loading KV from the object store and of computing it instead, measured in this process, and the
resulting wait."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ragkv.engine.protocol import Report

FORGETTING = 0.9
"""Weight of what was measured before, at each new measurement."""
MIN_TOKENS = 32
"""Fewer tokens say more about the overhead of a step than about the model."""
MOSTLY_COMPUTED = 8
"""Tokens computed for each that was cached: the prefix of a prompt computed whole is in the cache."""
TOKENS_A_WAIT = 500
"""Tokens of KV for which a question waits twice as long as it does for any."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Longest wait of a question for KV: a number of seconds, and more for each token of it."""

    base_s: float
    per_token_s: float

    def seconds(self, tokens: int) -> float:
        return self.base_s + self.per_token_s * tokens


class LoadCost:
    """Moving estimates: seconds of one load as latency plus bytes over bandwidth, and seconds of computing a token."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Of weights and, weighted, of MiB, seconds, and the products that a line needs.
        self._sums: tuple[float, ...] = (0.0,) * 5
        self._token_s: float | None = None

    def loaded(self, num_bytes: int, seconds: float) -> None:
        """Record the duration of one load; others may have run concurrently."""
        mib = num_bytes / 2**20
        latest = (1.0, mib, seconds, mib * mib, mib * seconds)
        with self._lock:
            self._sums = tuple(FORGETTING * total + value for total, value in zip(self._sums, latest, strict=True))

    def answered(self, report: Report, ttft_s: float) -> None:
        """The engine answered a prompt: the time of what it recomputed in place counts, or that of a prompt computed
        whole."""
        if report.recomputed:
            self.computed(report.recomputed, report.recompute_ms / 1e3)
        elif not report.stitched and report.cached * MOSTLY_COMPUTED <= report.computed:
            self.computed(report.computed, ttft_s)

    def computed(self, tokens: int, seconds: float) -> None:
        """Record the time taken to compute these tokens."""
        if tokens < MIN_TOKENS or seconds <= 0:
            return
        with self._lock:
            token_s = seconds / tokens
            self._token_s = FORGETTING * (self._token_s or token_s) + (1 - FORGETTING) * token_s

    def load_s(self, sizes: Sequence[int], at_once: int) -> float | None:
        """Estimated seconds to load files of these sizes, `at_once` in parallel; None before the first load."""
        weight, *totals = self._sums
        if not weight or not sizes:
            return None
        mean_mib, mean_s, mean_square, mean_product = (total / weight for total in totals)
        spread, covariance = mean_square - mean_mib**2, mean_product - mean_mib * mean_s
        # The line of least squares, latency and slope not below 0; the mean where sizes hardly differ.
        slope = min(max(covariance / spread, 0.0), mean_s / mean_mib) if spread > 0.01 * mean_mib**2 else 0.0
        latency = mean_s - slope * mean_mib
        return ceil(len(sizes) / at_once) * (latency + slope * max(sizes) / 2**20)

    def compute_s(self, tokens: int) -> float | None:
        """Estimated seconds to compute these tokens; None before the first measurement."""
        return None if self._token_s is None else tokens * self._token_s
