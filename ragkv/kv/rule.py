"""The rule for when KV is kept, in which format, for which tokens, and when it is uploaded: the service's, and a
collection's overrides."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec

from ragkv.kv.format import KVFormat


class CompressionMethod(StrEnum):
    """Compression within a chunk: KV is kept of the tokens that score highest, the prompt omits the others.
    The functions are in `ragkv.stitch.compression`. none: KV is kept of all tokens."""

    NONE = "none"
    STREAMING = "streaming"
    H2O = "h2o"
    SNAPKV = "snapkv"
    LAQ = "laq"


COMPRESSING = tuple(method for method in CompressionMethod if method is not CompressionMethod.NONE)
LEAST, MOST = 0.01, 0.99
"""Bounds of a keep ratio, which has two decimals."""


class Compression(msgspec.Struct, frozen=True, array_like=True):
    """A method that leaves tokens out, and the share of each chunk's tokens that it keeps, in (0, 1)."""

    method: CompressionMethod
    keep: Annotated[float, msgspec.Meta(ge=LEAST, le=MOST)]

    @property
    def name(self) -> str:
        return f"{self.method} {self.keep:g}"


class KVWhen(StrEnum):
    """When the KV of a chunk is computed and kept. upload: after the upload of its document. nth_use: once `uses`
    answers have used the chunk. never: on request alone."""

    UPLOAD = "upload"
    NTH_USE = "nth_use"
    NEVER = "never"


class KVWrite(StrEnum):
    """When KV on a disk is uploaded to the object store. through: at once. back: after a while, so that what is
    replaced or removed soon never is. nth_use: once `uses` answers have used it of late. What the disk needs the room
    of is uploaded before."""

    THROUGH = "through"
    BACK = "back"
    NTH_USE = "nth_use"


@dataclass(frozen=True, slots=True)
class KVRule:
    """uses: how many answers, for `KVWhen.NTH_USE` and `KVWrite.NTH_USE`. keep: the share of each chunk's tokens that
    the method `compress` keeps KV of."""

    format: KVFormat
    when: KVWhen
    uses: int
    write: KVWrite
    compress: CompressionMethod
    keep: float

    @property
    def compression(self) -> Compression | None:
        """None: KV of all tokens is kept."""
        return None if self.compress is CompressionMethod.NONE else Compression(self.compress, self.keep)

    def in_place_of(
        self,
        kv_format: str | None = None,
        when: str | None = None,
        uses: int | None = None,
        write: str | None = None,
        compress: str | None = None,
        keep: float | None = None,
    ) -> "KVRule":
        """The rule with what a collection has of its own."""
        return KVRule(
            KVFormat(kv_format) if kv_format else self.format,
            KVWhen(when) if when else self.when,
            self.uses if uses is None else uses,
            KVWrite(write) if write else self.write,
            CompressionMethod(compress) if compress else self.compress,
            self.keep if keep is None else keep,
        )
