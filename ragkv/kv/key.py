"""Names of KV files: derived from the tenant's secret, so that none can be guessed, shared or made to collide from
outside."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ragkv.kv.format import KVFormat
from ragkv.kv.layout import LAYOUT_VERSION
from ragkv.kv.rule import Compression


@dataclass(frozen=True, slots=True)
class Making:
    """Writer, format and compression of a chunk's KV. writer: the fingerprint of its adapter, empty for the plain
    model. compression: None where all tokens have KV."""

    writer: str = ""
    kv_format: KVFormat = KVFormat.BF16
    compression: Compression | None = None

    @property
    def format_name(self) -> str:
        """Empty for what is not quantised."""
        return "" if self.kv_format is KVFormat.BF16 else self.kv_format


@dataclass(frozen=True, slots=True)
class KeyMaker:
    """Makes the KV keys of one tenant and one served model.

    A key is an HMAC-SHA256 over everything the KV depends on: model, dtype, layout version, the prefix it was prefilled
    behind, the writer that was active, the format and the compression (none of these for the prefix), and the chunk's
    token ids, those without KV too. The secret keeps tenants apart. `writer`: the fingerprint of its adapter, empty for
    the plain model. `writer_before`: that of the writer in use before, whose KV serves until the present one's is
    there; so does KV in another format, and under a `compression` KV of all tokens. KV under another compression never
    serves.
    """

    secret: bytes
    model: str
    dtype: str
    prefix_ids: tuple[int, ...]
    writer: str = ""
    writer_before: str | None = None
    kv_format: KVFormat = KVFormat.BF16
    compression: Compression | None = None

    @property
    def makings(self) -> tuple[Making, ...]:
        """All makings whose KV may be used, the best first: the first is the one that is made now."""
        writers = [self.writer] if self.writer_before is None else [self.writer, self.writer_before]
        formats = sorted(KVFormat, key=lambda kv_format: kv_format is not self.kv_format)
        compressions = (None,) if self.compression is None else (self.compression, None)
        return tuple(
            Making(writer, kv_format, compression)
            for compression, writer, kv_format in product(compressions, writers, formats)
        )

    def chunk(self, token_ids: Sequence[int], making: Making | None = None) -> str:
        """The KV key of a chunk behind the prefix, as it is made now or as given: 64 hex digits."""
        making = making or Making(self.writer, self.kv_format, self.compression)
        written = (making.writer.encode(),) if making.writer else ()
        format_name = (f"format {making.kv_format}".encode(),) if making.format_name else ()
        shortened = (f"compression {making.compression.name}".encode(),) if making.compression else ()
        return self._digest(b"chunk", _pack(self.prefix_ids), _pack(token_ids), *written, *format_name, *shortened)

    def prefix(self) -> str:
        """The KV key of the prefix itself."""
        return self._digest(b"prefix", _pack(self.prefix_ids))

    def salt(self, cache_variant: str) -> str:
        """A cache salt for prompts whose KV is of one `cache_variant`: same salt and ids, same KV."""
        return self._digest(b"salt", cache_variant.encode())

    def _digest(self, *parts: bytes) -> str:
        mac = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in (self.model.encode(), self.dtype.encode(), str(LAYOUT_VERSION).encode(), *parts):
            mac.update(len(part).to_bytes(8, "little"))
            mac.update(part)
        return mac.hexdigest()


def _pack(token_ids: Sequence[int]) -> bytes:
    return np.asarray(token_ids, dtype="<u4").tobytes()
