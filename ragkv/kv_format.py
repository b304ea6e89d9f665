"""The formats that a KV file may have."""

from enum import StrEnum


class KVFormat(StrEnum):
    """Format of keys and values in a KV file. bf16: as the model computes them."""

    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def share(self) -> float:
        """Bytes of a file over bf16's, at most, of chunks of a hundred tokens or more."""
        return {KVFormat.BF16: 1.0, KVFormat.INT8: 0.53, KVFormat.INT4: 0.32}[self]
