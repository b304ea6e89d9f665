"""The dtype that this machine computes in, which may differ from the dtype of stored KV.

A processor without bfloat16 (AVX2 alone, say) computes with it by conversions: 1,000 tokens of the embedded model took
10 times as long as in float32 there. On such a one model and engine run in float32, and KV is rounded when it is kept.
"""

import torch

_HAS_ARITHMETIC = {
    torch.bfloat16: ("avx512_f", "avx_ne_convert", "bf16", "arm_bf16"),
    torch.float16: ("avx512_fp16", "avx_ne_convert", "fp16", "arm_fp16_arith"),
}
"""Any of these capabilities of a processor gives its matrix products in the dtype kernels of their own (oneDNN)."""


def computed_in(kept: torch.dtype) -> torch.dtype:
    """The dtype to compute in where KV is kept in `kept`: the same on a GPU and wherever the processor can."""
    if torch.accelerator.is_available() or kept not in _HAS_ARITHMETIC:
        return kept
    capabilities = torch.cpu.get_capabilities()
    return kept if any(capabilities.get(name) for name in _HAS_ARITHMETIC[kept]) else torch.float32
