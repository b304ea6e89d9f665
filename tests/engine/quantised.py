"""Tiny models whose weights are quantised, in the forms that vLLM's CPU build runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

GROUP = 32
"""Inputs that share a scale."""
_AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

Tensors = dict[str, torch.Tensor]


def quantise(folder: Path, form: str) -> None:
    """Replace the linear layers' weights of a model folder by quantised ones."""
    divide, config = FORMS[form]
    tensors: Tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if module.endswith(_LINEAR):
            tensors |= {f"{module}.{part}": value.contiguous() for part, value in divide(tensor.float()).items()}
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}))


def _w8a8(weight: torch.Tensor) -> Tensors:
    scale = weight.abs().amax(1, keepdim=True) / 127
    return {"weight": (weight / scale).round().to(torch.int8), "weight_scale": scale}


def _awq(weight: torch.Tensor) -> Tensors:
    """Numbers from 0 to 15 with a zero point for each group, [inputs, outputs / 8]."""
    groups = _groups(weight)
    low, high = groups.amin(1), groups.amax(1)
    scale = (high - low) / 15
    zero = (-low / scale).round().clamp(0, 15)
    numbers = (groups / scale[:, None] + zero[:, None]).round().clamp(0, 15).flatten(0, 1)
    return {"qweight": _packed(numbers[:, _awq_columns(numbers)]), "qzeros": _packed(zero[:, _awq_columns(zero)]),
            "scales": scale.half()}  # fmt: skip


def _gptq(weight: torch.Tensor) -> Tensors:
    """Numbers from 0 to 15 around 8, [inputs / 8, outputs]. As of old a zero point is stored one less."""
    groups = _groups(weight)
    scale = groups.abs().amax(1) / 7
    numbers = (groups / scale[:, None] + 8).round().clamp(0, 15).flatten(0, 1)
    zeros = torch.full_like(scale, 7)
    inputs = torch.arange(len(numbers), dtype=torch.int32)
    return {"qweight": _packed(numbers.T).T, "qzeros": _packed(zeros), "scales": scale.half(),
            "g_idx": inputs // GROUP}  # fmt: skip


def _groups(weight: torch.Tensor) -> torch.Tensor:
    """[groups, GROUP, outputs]."""
    return weight.T.reshape(-1, GROUP, len(weight))


def _awq_columns(numbers: torch.Tensor) -> torch.Tensor:
    columns = torch.arange(numbers.shape[1])
    return columns.view(-1, 8)[:, _AWQ_ORDER].flatten()


def _packed(numbers: torch.Tensor) -> torch.Tensor:
    """Eight numbers of 4 bits a word, [rows, columns / 8] int32; the lowest bits are the first."""
    words = numbers.to(torch.int64).view(len(numbers), -1, 8) << torch.arange(0, 32, 4)
    return words.sum(2).to(torch.int32)


_W8A8_CONFIG = {
    "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
        "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True},
    }},
}  # fmt: skip
FORMS: dict[str, tuple[Callable[[torch.Tensor], Tensors], dict[str, Any]]] = {
    "W8A8": (_w8a8, _W8A8_CONFIG),
    "AWQ": (_awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "GPTQ": (_gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}),
}
"""By name: what a weight [outputs, inputs] becomes, and vLLM's description of it."""
