"""The writer: a LoRA over all linear layers of the model (Hu et al., arXiv 2106.09685), through PEFT.

Its training, by gradients with merged weights, and what it is saved as.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.helpers import rescale_adapter_scale
from peft.tuners.lora import Linear
from torch import nn
from transformers import PreTrainedModel

from ragkv.models import ADAPTER, ADAPTER_CONFIG

RANK = 16
SCALE = 2.0
"""Factor of the product of both matrices (PEFT's lora_alpha / r)."""


class TrainableAdapter:
    """A model with a writer, switched on by default, that can be trained, weakened and saved."""

    def __init__(self, model: PeftModel) -> None:
        self._model = model

    @classmethod
    def load(cls, model: PreTrainedModel, folder: Path, *, trainable: bool = False) -> Self:
        """The writer in a folder, for a causal language model."""
        return cls(PeftModel.from_pretrained(model, str(folder), is_trainable=trainable))

    @classmethod
    def new(cls, model: PreTrainedModel, rank: int = RANK) -> Self:
        """A writer whose weights change nothing yet: its second matrix is zero."""
        config = LoraConfig(r=rank, lora_alpha=int(SCALE * rank), lora_dropout=0.0, target_modules="all-linear")
        return cls(get_peft_model(model, config))

    def disabled(self) -> AbstractContextManager[Any]:
        """The plain model, for the block."""
        return self._model.disable_adapter()

    def save(self, folder: Path) -> None:
        """adapter_model.safetensors, in bfloat16, and adapter_config.json, as PEFT has them; each file is whole at any
        time."""
        weights = {
            name: value.to(torch.bfloat16) for name, value in self._model.state_dict().items() if "lora_" in name
        }
        config = copy.copy(self._model.peft_config[self._model.active_adapter])
        config.base_model_name_or_path = None  # a folder of this machine
        with TemporaryDirectory(dir=folder, prefix=".partial-") as place:
            self._model.save_pretrained(place, state_dict=weights)
            config.save_pretrained(place)
            for name in (ADAPTER, ADAPTER_CONFIG):
                (Path(place) / name).rename(folder / name)

    @torch.no_grad()
    def round(self) -> None:
        """Take the weights as `save` writes them."""
        for parameter in self.parameters:
            parameter.copy_(parameter.to(torch.bfloat16))

    def at_strength(self, strength: float) -> AbstractContextManager[None]:
        """The writer with a share of its change to the weights, for the block."""
        return rescale_adapter_scale(self._model, strength)

    @torch.no_grad()
    def weaken(self, strength: float) -> None:
        """Keep a share of the change to the weights."""
        for name, parameter in self._model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(strength)

    @torch.no_grad()
    def merged_weights(self) -> dict[str, torch.Tensor]:
        """The model's own weights with the adapter added, by name in the model without its head, without gradients: see
        `followed`."""
        merged = {}
        for name, layer in self._layers():
            weight = cast("torch.Tensor", layer.get_base_layer().weight)
            delta = layer.get_delta_weight(self._model.active_adapter)
            merged[f"{name}.base_layer.weight"] = weight + delta.to(weight.dtype)
        return merged

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Gradients of the block's forwards with `merged_weights` reach the adapter's matrices, as if these stood
        beside the model's weights. The backward may come after the block.

        The weights' own gradients are never computed: a product of the model's size less for each layer, and no copy of
        the model's weights for them.
        """
        name = self._model.active_adapter
        hooks = []
        for _, layer in self._layers():
            # `disabled`, which a forward with merged weights runs in, takes the matrices themselves out of autograd.
            down, up = (
                _leaf_of(cast("torch.Tensor", matrices[name].weight)) for matrices in (layer.lora_A, layer.lora_B)
            )
            hooks.append(layer.get_base_layer().register_forward_hook(_following(down, up, layer.scaling[name])))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def bytes_a_token(self) -> int:
        """Memory that a forward keeps for its backward, about: the adapted layers' inputs and outputs."""
        weights = [cast("torch.Tensor", layer.get_base_layer().weight) for _, layer in self._layers()]
        return sum(sum(weight.shape) * weight.element_size() for weight in weights)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]

    def _layers(self) -> Iterator[tuple[str, Linear]]:
        """The adapted layers, by name in the model without its head."""
        trunk = cast("nn.Module", self._model.get_base_model().base_model)
        return ((name, layer) for name, layer in trunk.named_modules() if isinstance(layer, Linear))


class _Follow(torch.autograd.Function):
    """A layer's output as it is; its gradient goes on to the adapter's matrices as well.

    The layer computes y = x W' with W' = W + s B A, so that x gets its gradient through W'. With g = dL/dy those of the
    matrices are dL/dA = s (g B)' x and dL/dB = s g' (x A'), ' transposed: products of the adapter's rank.
    """

    @staticmethod
    def forward(
        ctx: Any, output: torch.Tensor, inputs: torch.Tensor, down: torch.Tensor, up: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """output: [..., out]. inputs: the layer's input, [..., in]. down: A, [rank, in]. up: B, [out, rank]."""
        ctx.save_for_backward(inputs, down, up)
        ctx.scale = scale
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        inputs, down, up = ctx.saved_tensors
        rows, of_rows = inputs.flatten(0, -2), gradient.flatten(0, -2)
        of_down = (of_rows @ up.to(rows.dtype)).T @ rows
        of_up = of_rows.T @ (rows @ down.to(rows.dtype).T)
        return gradient, None, ctx.scale * of_down.to(down.dtype), ctx.scale * of_up.to(up.dtype), None


def _leaf_of(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix for autograd, whose gradients are added to `matrix.grad`."""

    def add(leaf: torch.Tensor) -> None:
        matrix.grad = leaf.grad if matrix.grad is None or leaf.grad is None else matrix.grad + leaf.grad
        leaf.grad = None

    leaf = matrix.detach().requires_grad_()
    leaf.register_post_accumulate_grad_hook(add)  # type: ignore[no-untyped-call]
    return leaf


def _following(down: torch.Tensor, up: torch.Tensor, scale: float) -> Callable[..., torch.Tensor]:
    """A forward hook of a linear layer: see `_Follow`."""

    def hook(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        followed: torch.Tensor = _Follow.apply(output, inputs[0], down, up, scale)  # type: ignore[no-untyped-call]
        return followed

    return hook
