"""The writer's weights: a LoRA over all linear layers of the model (Hu et al., arXiv 2106.09685), through PEFT."""

import copy
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import nn
from transformers import PreTrainedModel

from ragkv.writer import ADAPTER, CONFIG

RANK = 16
SCALE = 2.0
"""Factor of the product of both matrices (PEFT's lora_alpha / r)."""


class Adapter:
    """A model with a writer, switched on by default."""

    def __init__(self, model: PeftModel) -> None:
        self._model = model

    @classmethod
    def new(cls, model: PreTrainedModel, rank: int = RANK) -> "Adapter":
        """A writer that changes nothing yet: its second matrix is zero."""
        config = LoraConfig(r=rank, lora_alpha=int(SCALE * rank), lora_dropout=0.0, target_modules="all-linear")
        return cls(get_peft_model(model, config))

    @classmethod
    def load(cls, model: PreTrainedModel, folder: Path, *, trainable: bool = False) -> "Adapter":
        return cls(PeftModel.from_pretrained(model, str(folder), is_trainable=trainable))

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
            for name in (ADAPTER, CONFIG):
                (Path(place) / name).rename(folder / name)

    @torch.no_grad()
    def round(self) -> None:
        """Take the weights as `save` writes them."""
        for parameter in self.parameters:
            parameter.copy_(parameter.to(torch.bfloat16))

    def merge(self) -> None:
        """Add the adapter to the model's own weights. `disabled` takes it out again, to within rounding."""
        self._model.merge_adapter()

    def merged_weights(self) -> dict[str, torch.Tensor]:
        """The weights that `merge` would leave, by name in the model without its head. Gradients reach the adapter
        through them."""
        merged = {}
        trunk = cast("nn.Module", self._model.get_base_model().base_model)
        for name, layer in trunk.named_modules():
            if isinstance(layer, Linear):
                weight = cast("torch.Tensor", layer.get_base_layer().weight)
                merged[f"{name}.base_layer.weight"] = weight + layer.get_delta_weight(self._model.active_adapter).to(
                    weight.dtype
                )
        return merged

    def disabled(self) -> AbstractContextManager[Any]:
        """The plain model, for the block."""
        disabled: AbstractContextManager[Any] = self._model.disable_adapter()
        return disabled

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]
