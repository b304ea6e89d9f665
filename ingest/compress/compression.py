"""Names of the compressions: a method, and the share of each chunk's tokens that it keeps."""

from dataclasses import dataclass
from enum import StrEnum


class CompressionMethod(StrEnum):
    """After whose score tokens stay; the functions are in `ingest.compress.methods`."""

    STREAMING = "streaming"
    H2O = "h2o"
    SNAPKV = "snapkv"
    LAQ = "laq"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Compression:
    """keep: share of each chunk's tokens, in (0, 1)."""

    method: CompressionMethod
    keep: float

    @property
    def name(self) -> str:
        return f"{self.method} {self.keep:g}"
