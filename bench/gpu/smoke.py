"""`python -m bench.gpu.smoke`: whether vLLM's libraries compute right on this GPU, before an engine is started for a
minute. Rotation, norm, activation, the paged cache's write and FlashAttention 3 over it, as recompute in place uses
them, each against PyTorch in float32; KV that is copied while other KV is written; and what it saves that scattered
spans read their common context once."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Any

import click
import torch

from ragkv.connector.common_context import CommonContext
from ragkv.connector.staging import Staging
from ragkv.kv.format import GRIDS, KVFormat
from ragkv.kv.pieces import copy_part
from ragkv.kv.quantise import Packed, pack_keys
from ragkv.span import Span

HEAD_DIM, QUERY_HEADS, KV_HEADS, BLOCK, TOKENS = 128, 32, 8, 16, 1024
HIDDEN, LAYERS = 4096, 32
SPANS = Span(100, 140), Span(500, 501), Span(900, 1024)
"""Of one request, as sequences that share its block table."""
CONTEXT = 16_384
SCATTERED = tuple(Span(start, start + 4) for start in range(40, CONTEXT, 40))
"""A tenth of a long context."""
BOUND = 1e-2


@dataclass(slots=True)
class Smoke:
    """Comparisons with PyTorch. wrong: names of those that differ."""

    wrong: list[str] = field(default_factory=list)

    def compare(self, what: str, computed: torch.Tensor, expected: torch.Tensor, bound: float = BOUND) -> None:
        """Tell the relative error, and note it if it is not below the bound (NaN is not)."""
        error = ((computed.float() - expected.float()).norm() / expected.float().norm()).item()
        click.echo(f"{what}: relative error {error:.1e}")
        if not error < bound:
            self.wrong.append(what)


def check_kernels() -> list[str]:
    """Names of the kernels that do not compute right on the first GPU."""
    import vllm._C_stable_libtorch  # noqa: F401, PLC0415 - registers the operators; only vLLM for CUDA has it

    torch.manual_seed(0)
    smoke = Smoke()
    positions = torch.arange(TOKENS, device="cuda")
    keys, values, queries = (_draw(TOKENS, heads, HEAD_DIM) for heads in (KV_HEADS, KV_HEADS, QUERY_HEADS))
    rotated = _compare_operators(smoke, keys, positions)
    cache = torch.zeros(256, 2, BLOCK, KV_HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    blocks = torch.randperm(256, device="cuda")[: TOKENS // BLOCK]
    slots = blocks[positions // BLOCK] * BLOCK + positions % BLOCK
    scale = torch.ones(1, device="cuda")
    key_cache, value_cache = cache.unbind(1)
    torch.ops._C_cache_ops.reshape_and_cache_flash(rotated, values, key_cache, value_cache, slots, "auto", scale, scale)  # noqa: SLF001
    smoke.compare("reshape_and_cache_flash", key_cache[blocks].reshape(rotated.shape), rotated, bound=1e-6)
    rows = torch.cat([torch.arange(span.start, span.end, device="cuda") for span in SPANS])
    attended = _attended(_attention_of_spans(queries[rows], key_cache, value_cache, blocks, SPANS))
    # Causal attention of these rows, in float32.
    all_keys, all_values = (part.float().repeat_interleave(QUERY_HEADS // KV_HEADS, 1) for part in (rotated, values))
    logits = torch.einsum("qhd,khd->hqk", queries[rows].float(), all_keys) * HEAD_DIM**-0.5
    later = positions > rows[:, None]
    expected = torch.einsum("hqk,khd->qhd", logits.masked_fill(later, -torch.inf).softmax(-1), all_values)
    smoke.compare("FlashAttention 3 over three spans", attended, expected)
    compare_staging(smoke)
    compare_common_context(smoke)
    return smoke.wrong


def _draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _compare_operators(smoke: Smoke, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Compare rotation, norm and activation. Returns the keys as vLLM rotates them."""
    frequencies = 500000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM)
    angles = torch.arange(HIDDEN, device="cuda")[:, None] * frequencies
    table = torch.cat((angles.cos(), angles.sin()), -1).bfloat16()
    rotated = keys.clone()
    torch.ops._C.rotary_embedding(positions, rotated.view(TOKENS, -1), None, HEAD_DIM, table, True)  # noqa: SLF001
    cos, sin = table[positions].float()[:, None].chunk(2, -1)
    low, high = keys.float().chunk(2, -1)
    expected = torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
    smoke.compare("rotary_embedding without a key", rotated, expected)
    rows, weight, normed = _draw(TOKENS, HIDDEN), _draw(HIDDEN), _draw(TOKENS, HIDDEN)
    torch.ops._C.rms_norm(normed, rows, weight, 1e-5)  # noqa: SLF001
    inverse = (rows.float().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    smoke.compare("rms_norm", normed, rows.float() * inverse * weight.float())
    activated, (gate, up) = _draw(TOKENS, HIDDEN // 2), rows.float().chunk(2, -1)
    torch.ops._C.silu_and_mul(activated, rows)  # noqa: SLF001
    smoke.compare("silu_and_mul", activated, torch.nn.functional.silu(gate) * up)
    return rotated


def compare_staging(smoke: Smoke) -> None:
    """Compare keys that were copied while others were read with those of the host, as they are and quantised, and time
    both beside copies and readings that take turns."""
    device, size = torch.device("cuda"), (LAYERS, CONTEXT // 16, KV_HEADS, HEAD_DIM)
    plain = [_draw(*size).cpu().pin_memory() for _ in range(4)]
    packed = [pack_keys(part, GRIDS[KVFormat.INT8]) for part in plain]
    pinned = [Packed(p.codes.pin_memory(), p.step.pin_memory(), p.edges) for p in packed]  # type: ignore[union-attr] # no file's
    written = torch.empty(16, *size, device=device, dtype=torch.bfloat16)
    in_formats: dict[str, Sequence[torch.Tensor | Packed]] = {"bf16": plain, "int8": pinned}
    for name, parts in in_formats.items():
        expected = [torch.empty_like(part, device="cpu") for part in plain]
        for part, out in zip(parts, expected, strict=True):
            _fill(part, out)
        whole = torch.stack(expected).to(device).repeat(len(written) // len(expected), 1, 1, 1, 1)
        for way, copies in (("in turns", None), ("at once", torch.cuda.Stream())):  # type: ignore[no-untyped-call]
            staging = Staging(torch.bfloat16, device, copies=copies)

            def write(
                readings: int = 4, staging: Staging = staging, parts: Sequence[torch.Tensor | Packed] = parts
            ) -> None:
                for row in range(len(written)):
                    with staging.pair(size, (*size[:3], 0)) as (keys, _):
                        with staging.copying(wait=False):
                            _fill(parts[row % len(parts)], keys)
                        for _ in range(readings):  # some four take as long as rotation and the cache's kernels
                            torch.add(keys, 0, out=written[row])

            write(readings=100)  # longer than the copies
            smoke.compare(f"keys of {CONTEXT} tokens in {name}, copied and written {way}", written, whole, 1e-6)
            click.echo(f"... {_milliseconds(write, 5):.1f} ms")


def _fill(part: torch.Tensor | Packed, out: torch.Tensor) -> None:
    if isinstance(part, Packed):
        part.unpack_into(out, slice(None), 0)
    else:
        copy_part(part, out, slice(None), 0)


def compare_common_context(smoke: Smoke) -> None:
    """Compare scattered spans that read their common context once with ones that each read it, and time both."""
    cache = _draw(2, CONTEXT // BLOCK, BLOCK, KV_HEADS, HEAD_DIM)
    queries, blocks = _draw(4 * len(SCATTERED), QUERY_HEADS, HEAD_DIM), torch.randperm(CONTEXT // BLOCK, device="cuda")
    common = CommonContext(BLOCK, torch.device("cuda"))
    attention = _attention_of_spans(queries, cache[0], cache[1], blocks, SCATTERED)

    def at_once() -> torch.Tensor:
        with common.read_once(SCATTERED):
            return _attended(attention)

    merged = at_once().clone()
    # Told alone: where they differ the engine has each span read its context.
    smoke.compare(f"{len(SCATTERED)} spans, context read once", merged, _attended(attention), bound=inf)
    alone_ms, once_ms = _milliseconds(lambda: _attended(attention)), _milliseconds(at_once)
    click.echo(f"{LAYERS} layers attend to {CONTEXT} tokens: one by one {alone_ms:.1f} ms, read once {once_ms:.1f} ms")


def _milliseconds(work: Callable[[], object], times: int = 20) -> float:
    """Median time of some work on the GPU."""
    times_ms: list[float] = []
    for _ in range(times):
        start, end = (torch.Event("cuda", enable_timing=True) for _ in "ab")
        start.record()
        work()
        end.record()
        end.synchronize()
        times_ms.append(start.elapsed_time(end))
    return median(times_ms)


def _attention_of_spans(
    queries: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    blocks: torch.Tensor,
    spans: Sequence[Span],
) -> dict[str, Any]:
    """Arguments of vLLM's call: each span as a sequence that ends where it does."""
    from vllm.vllm_flash_attn import get_scheduler_metadata  # noqa: PLC0415 - only vLLM for CUDA has it

    lengths = torch.tensor([span.num_tokens for span in spans])
    starts = torch.tensor([0, *lengths.cumsum(0)], dtype=torch.int32, device="cuda")
    ends = torch.tensor([span.end for span in spans], dtype=torch.int32, device="cuda")
    longest, end = int(lengths.max()), spans[-1].end
    plan = get_scheduler_metadata(
        batch_size=len(spans), max_seqlen_q=longest, max_seqlen_k=end, num_heads_q=QUERY_HEADS, num_heads_kv=KV_HEADS,
        headdim=HEAD_DIM, cache_seqlens=ends, qkv_dtype=torch.bfloat16, cu_seqlens_q=starts, page_size=BLOCK, causal=True,
        window_size=(-1, -1), num_splits=0,
    )  # fmt: skip
    scales = torch.ones(len(spans), KV_HEADS, device="cuda")
    return {
        "q": queries, "k": key_cache, "v": value_cache, "out": torch.empty_like(queries), "cu_seqlens_q": starts,
        "max_seqlen_q": longest, "seqused_k": ends, "max_seqlen_k": end, "softmax_scale": HEAD_DIM**-0.5, "causal": True,
        "window_size": [-1, -1], "block_table": blocks.int()[None].repeat(len(spans), 1), "scheduler_metadata": plan,
        "fa_version": 3, "q_descale": scales, "k_descale": scales, "v_descale": scales, "num_splits": 0,
    }  # fmt: skip


def _attended(attention: dict[str, Any]) -> torch.Tensor:
    """[tokens of the spans, query heads, head_dim], computed as often as a model has layers."""
    from vllm.v1.attention.backends import flash_attn  # noqa: PLC0415 - where its function is replaced

    for _ in range(LAYERS):
        flash_attn.flash_attn_varlen_func(**attention)
    attended: torch.Tensor = attention["out"]
    return attended


if __name__ == "__main__":
    click.echo(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    wrong = check_kernels()
    sys.exit(f"these kernels do not compute right here: {', '.join(wrong)}" if wrong else 0)
