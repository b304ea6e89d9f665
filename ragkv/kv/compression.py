"""Compression within a chunk: the KV of some of its tokens is kept, and the others are left out of the prompt."""

from dataclasses import dataclass
from enum import StrEnum


class CompressionMethod(StrEnum):
    """After whose score tokens stay; the functions are in `ragkv.prefill.methods`. none: all of them stay."""

    NONE = "none"
    STREAMING = "streaming"
    H2O = "h2o"
    SNAPKV = "snapkv"
    LAQ = "laq"


COMPRESSING = tuple(method for method in CompressionMethod if method is not CompressionMethod.NONE)
LEAST, MOST = 0.01, 0.99
"""Bounds of a keep ratio, which has two decimals."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A method that leaves tokens out, and the share of each chunk's tokens that it keeps, in (0, 1)."""

    method: str
    keep: float

    @property
    def name(self) -> str:
        return f"{self.method} {self.keep:g}"
