"""The formats of KV files, and the space that each takes."""

from dataclasses import dataclass
from enum import StrEnum

BITS = 16
"""Bits of a value as the model computes it."""

QCACHE_BLOCK = 16
"""Tokens per stored mean key; the last block of a chunk may be shorter."""


def qcache_layers(num_layers: int) -> range:
    """The layers that the Q-Cache keeps queries and mean keys of: the middle third of a model's, at least one."""
    return range(num_layers // 3, max(2 * num_layers // 3, num_layers // 3 + 1))


class KVFormat(StrEnum):
    """Format of keys and values in a KV file. bf16: as the model computes them."""

    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True)
class QuantisationGrid:
    """Parameters of quantisation. tokens: in a group of keys, at most; edges: tokens at each end that are not
    quantised; centred: codes are signed and stand around zero."""

    bits: int
    tokens: int
    edges: int
    centred: bool

    @property
    def highest(self) -> int:
        """The largest code."""
        return (1 << self.bits - self.centred) - 1


GRIDS = {
    KVFormat.INT8: QuantisationGrid(bits=8, tokens=128, edges=0, centred=True),
    KVFormat.INT4: QuantisationGrid(bits=4, tokens=128, edges=2, centred=False),
}


def share_of(kv_format: KVFormat, head_dim: int, tokens: int) -> float:
    """Bytes of a chunk's keys and values over bf16's: codes, a step for each group (and its lowest value, where codes
    start there), and the edges."""
    if kv_format is KVFormat.BF16:
        return 1.0
    grid = GRIDS[kv_format]
    scales = BITS * (1 if grid.centred else 2)
    group = -(-tokens // -(-tokens // grid.tokens))
    bits = grid.bits + scales * (1 / group + 1 / head_dim) / 2 + BITS * 2 * grid.edges / tokens
    return bits / BITS
