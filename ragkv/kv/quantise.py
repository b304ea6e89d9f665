"""Quantisation of stored keys and values, after KIVI (arXiv 2402.02750): keys per channel in groups of tokens, values
per token and head; 8 bits symmetric around zero, or 4 bits upwards from the lowest value.

Keys are quantised without their rotation: a channel's outliers lie in all tokens, and rotation would smear them over
two channels. In 4 bits a few first and last tokens stay as they are.
"""

from dataclasses import dataclass

import torch

from ragkv.kv.format import QuantisationGrid
from ragkv.kv.pieces import FilePart, copy_part, part_of_heads, sent

_NIBBLE_BITS = 4
_NIBBLE = 2**_NIBBLE_BITS - 1


@dataclass(frozen=True, slots=True)
class Packed:
    """Keys or values of a chunk: value = code * step, + low where there is one.

    codes: int8 [layers, tokens, kv_heads, head_dim], or uint8 [layers, tokens, kv_heads, head_dim / 2] with two 4-bit
    codes a byte, the first half of the channels in the low bits. step, low: [layers, groups, kv_heads, head_dim] for
    keys, of groups of the same number of tokens but the last; [layers, tokens, kv_heads, 1] for values. edges: [layers,
    first and last tokens, kv_heads, head_dim], as they were. Of a file, the codes are not in memory.
    """

    codes: torch.Tensor | FilePart
    step: torch.Tensor
    edges: torch.Tensor
    low: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the values: [layers, tokens, kv_heads, head_dim]."""
        return *self.codes.shape[:3], self.edges.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """That of the values."""
        return self.edges.dtype

    @property
    def num_tokens(self) -> int:
        return self.codes.shape[1]

    def of_heads(self, heads: slice) -> "Packed":
        """The codes of some KV heads, not copied."""
        low = None if self.low is None else self.low[:, :, heads]
        return Packed(part_of_heads(self.codes, heads), self.step[:, :, heads], self.edges[:, :, heads], low)

    def unpack_into(self, out: torch.Tensor, layers: slice, start: int) -> None:
        """Write the values of some layers' tokens from `start` on into `out`, [layers, tokens, kv_heads, head_dim]."""
        if not out.numel():
            return
        end = start + out.shape[1]
        # On a CPU int8 codes are copied into `out`, as numbers of its dtype: no buffer of their size is needed. A GPU
        # gets them as they are, and converts and scales them in one kernel.
        codes = out
        if self.low is not None or out.device.type != "cpu":
            codes = torch.empty(*out.shape[:3], self.codes.shape[-1], dtype=self.codes.dtype, device=out.device)
        copy_part(self.codes, codes, layers, start)
        if self.low is not None:
            low_half, high_half = out.chunk(2, -1)
            low_half.copy_(codes & _NIBBLE)
            high_half.copy_(codes >> _NIBBLE_BITS)
            codes = out
        step, groups = sent(self.step[layers], out.device), self.step.shape[1]
        low = None if self.low is None else sent(self.low[layers], out.device)
        if groups == self.num_tokens:  # values, or the keys of a single token
            _scale(codes, step, low, slice(start, end), out)
        else:
            size = -(-self.num_tokens // groups)  # as `pack_keys` divided them
            for group in range(start // size, -(-end // size)):
                rows = slice(max(group * size - start, 0), (group + 1) * size - start)
                _scale(codes[:, rows], step, low, slice(group, group + 1), out[:, rows])
        self._restore_edges(out, layers, start)

    def _restore_edges(self, out: torch.Tensor, layers: slice, start: int) -> None:
        edges = sent(self.edges[layers], out.device)
        num_edges = edges.shape[1]
        for index in range(num_edges):
            token = index if index < num_edges // 2 else self.num_tokens - num_edges + index
            if start <= token < start + out.shape[1]:
                out[:, token - start] = edges[:, index]


def pack_keys(keys: torch.Tensor, grid: QuantisationGrid) -> Packed:
    """keys: [layers, tokens, kv_heads, head_dim], without rotation."""
    tokens = keys.shape[1]
    # As few groups as hold `grid.tokens` at most, of the same size: a short last one would waste a step.
    groups = max(1, -(-tokens // grid.tokens))
    parts = torch.split(keys, max(1, -(-tokens // groups)), 1)
    packed = [_pack(part, 1, grid) for part in parts]
    codes, steps, lows = zip(*packed, strict=True)
    return Packed(
        torch.cat(codes, 1), torch.cat(steps, 1), _edges(keys, grid), None if grid.centred else torch.cat(lows, 1)
    )


def pack_values(values: torch.Tensor, grid: QuantisationGrid) -> Packed:
    """values: [layers, tokens, kv_heads, head_dim], or nothing of each head."""
    codes, step, low = _pack(values, 3, grid)
    return Packed(codes, step, _edges(values, grid), None if grid.centred else low)


def _pack(values: torch.Tensor, axis: int, grid: QuantisationGrid) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, step and low of groups along an axis. `step` is rounded before it is used: no error is left to it."""
    measured = values if values.numel() else values.new_zeros(*values.shape[:-1], 1)  # nothing spreads over nothing
    low, high = measured.amin(axis, keepdim=True), measured.amax(axis, keepdim=True)
    if grid.centred:
        low, high = torch.zeros_like(low), torch.maximum(-low, high)
    step = ((high.float() - low.float()) / grid.highest).to(values.dtype)
    # A step of 0, where all values are the same: every code then stands for `low`, but must not be NaN.
    codes = (values.float() - low.float()) / step.float().clamp_min(torch.finfo(torch.float32).tiny)
    codes = codes.round_().clamp_(-grid.highest if grid.centred else 0, grid.highest)
    if grid.centred:
        return codes.to(torch.int8), step, low
    low_half, high_half = codes.to(torch.uint8).chunk(2, -1)
    return low_half | (high_half << _NIBBLE_BITS), step, low


def _scale(codes: torch.Tensor, step: torch.Tensor, low: torch.Tensor | None, groups: slice, out: torch.Tensor) -> None:
    torch.mul(codes, step[:, groups], out=out)
    if low is not None:
        out.add_(low[:, groups])


def _edges(values: torch.Tensor, grid: QuantisationGrid) -> torch.Tensor:
    num_edges = min(grid.edges, values.shape[1] // 2)
    return torch.cat([values[:, :num_edges], values[:, values.shape[1] - num_edges :]], 1)
