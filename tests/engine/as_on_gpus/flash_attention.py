"""FlashAttention's calls as vLLM makes them, computed by PyTorch in float32, sequence by sequence."""

from typing import Any

import torch


def reshape_and_cache_flash(
    keys: torch.Tensor, values: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
    slots: torch.Tensor, *_: Any,
) -> None:  # fmt: skip
    """Write rows of keys and values [tokens, kv_heads, head_dim] into caches [pages, page, kv_heads, head_dim]."""
    rows = slots >= 0
    pages, places = slots[rows] // key_cache.shape[1], slots[rows] % key_cache.shape[1]
    key_cache[pages, places] = keys[: len(slots)][rows]
    value_cache[pages, places] = values[: len(slots)][rows]


class Reads:
    """Keys that all calls have read, in tokens."""

    tokens = 0


def flash_attn_varlen_func(
    *, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, seqused_k: torch.Tensor,
    block_table: torch.Tensor, softmax_scale: float, causal: bool, max_seqlen_q: int, max_seqlen_k: int,
    window_size: list[int] | None = None, out: torch.Tensor | None = None, return_softmax_lse: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Each sequence's queries end where its keys do, and see none behind their own if `causal`, and at most
    `window_size[0]` before it. Returns [tokens, q_heads, head_dim], and log-sum-exps [q_heads, tokens] if asked for."""
    out = torch.empty_like(q) if out is None else out
    sums = torch.full((q.shape[1], len(q)), float("inf"))  # what version 2 says of a row without keys
    window = -1 if window_size is None else window_size[0]
    for index, num_keys in enumerate(seqused_k.tolist()):
        start, end = cu_seqlens_q[index : index + 2].tolist()
        if start == end:
            continue
        assert end - start <= max_seqlen_q
        assert num_keys <= max_seqlen_k
        Reads.tokens += num_keys
        pages = block_table[index, : -(-num_keys // k.shape[1])].long()
        keys, values = (cache[pages].flatten(0, 1)[:num_keys].float() for cache in (k, v))
        group = q.shape[1] // k.shape[2]
        scores = torch.einsum("qhd,khd->hqk", q[start:end].float() * softmax_scale, keys.repeat_interleave(group, 1))
        places = torch.arange(num_keys - (end - start), num_keys)[:, None]
        others = torch.arange(num_keys)[None]
        if causal:
            scores.masked_fill_(others > places, float("-inf"))
        if window >= 0:
            scores.masked_fill_(others < places - window, float("-inf"))
        sums[:, start:end] = scores.logsumexp(-1)
        weights = scores.softmax(-1)
        out[start:end] = torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(group, 1)).to(out.dtype)
    return (out, sums) if return_softmax_lse else out
