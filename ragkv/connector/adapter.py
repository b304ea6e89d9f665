"""vLLM's worker: a writer, a LoRA that takes part in prefills alone.

vLLM's own adapters would cost every answer: they replace the model's linear layers. Here the product of the two small
matrices is added to a layer's output by a hook, which is there only while chunks are prefilled. So the base may be
quantised, and answers and the prefix run on the plain model, to the bit.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed import get_tp_group
from vllm.model_executor.layers.linear import ColumnParallelLinear, LinearBase, QKVParallelLinear, RowParallelLinear

from ragkv.errors import Unsupported
from ragkv.kv.file import load_tensors
from ragkv.models import ADAPTER, ADAPTER_CONFIG

_ROOT = "base_model.model."
"""PEFT's name for the model that an adapter belongs to."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The change of one projection, which may be a part of a fused layer's output: A [rank, in], B [out, rank] with the
    scale in it, and the columns of the output that it is added to. All of this rank's share."""

    down: torch.Tensor
    up: torch.Tensor
    columns: slice


class Adapter:
    """A LoRA over linear layers of one rank's model (Hu et al., arXiv 2106.09685)."""

    def __init__(self, model: torch.nn.Module, folder: Path) -> None:
        """folder: PEFT's. Raises Unsupported for one that changes what the model does not have."""
        config = json.loads((folder / ADAPTER_CONFIG).read_text())
        scale = config["lora_alpha"] / config["r"]
        matrices = load_tensors(folder / ADAPTER)
        names = {name.removeprefix(_ROOT).removesuffix(".lora_A.weight") for name in matrices if ".lora_A." in name}
        modules = dict(model.named_modules())
        fused: Mapping[str, Sequence[str]] = getattr(model, "packed_modules_mapping", {})
        fused_by_part = {part: (whole, parts) for whole, parts in fused.items() for part in parts if part != whole}
        self._changes: dict[LinearBase, list[_Part]] = {}
        for name in sorted(names):
            parent, _, own = name.rpartition(".")
            whole, parts = (own, [own]) if f"{parent}.{own}" in modules else fused_by_part.get(own, (own, [own]))
            layer = modules.get(f"{parent}.{whole}")
            if not isinstance(layer, LinearBase):
                raise Unsupported(f"the writer changes {name}, which this model does not have")
            weight = next(layer.parameters())
            down, up = (
                matrices[f"{_ROOT}{name}.lora_{letter}.weight"].to(weight.device, layer.params_dtype) for letter in "AB"
            )
            self._changes.setdefault(layer, []).append(_part(layer, parts.index(own), down, up * scale))

    @contextmanager
    def active(self) -> Iterator[None]:
        """The model with the writer, for the forwards of the block."""
        handles = [layer.register_forward_hook(self._add) for layer in self._changes]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _add(self, layer: LinearBase, inputs: tuple[Any, ...], output: Any) -> None:
        out = output[0] if isinstance(output, tuple) else output
        for part in self._changes[layer]:
            small = inputs[0] @ part.down.T
            if isinstance(layer, RowParallelLinear) and layer.tp_size > 1:
                small = get_tp_group().all_reduce(small)  # each rank has a part of the inputs
            out[..., part.columns].add_(small @ part.up.T)


def _part(layer: LinearBase, number: int, down: torch.Tensor, up: torch.Tensor) -> _Part:
    """One rank's share of the change of the projection of that number in a layer, divided as vLLM divides the
    layer."""
    rank = layer.tp_rank
    if isinstance(layer, RowParallelLinear):
        own = down.shape[1] // layer.tp_size
        return _Part(down[:, rank * own : (rank + 1) * own].contiguous(), up, slice(0, len(up)))
    if isinstance(layer, QKVParallelLinear):
        sizes = [
            layer.num_heads * layer.head_size,
            layer.num_kv_heads * layer.head_size,
            layer.num_kv_heads * layer.v_head_size,
        ]
        place = rank // layer.num_kv_head_replicas if number else rank
    elif isinstance(layer, ColumnParallelLinear):
        sizes = [size // layer.tp_size for size in getattr(layer, "output_sizes", [layer.output_size])]
        place = rank
    else:
        sizes, place = [len(up)], 0
    start = sum(sizes[:number])
    share = up[place * sizes[number] : (place + 1) * sizes[number]].contiguous()
    return _Part(down, share, slice(start, start + sizes[number]))
