"""The writer: a LoRA over all linear layers of the model (Hu et al., arXiv 2106.09685), through PEFT, and stand-ins.

Stand-ins are contexts that stand in for the passages which a chunk will have before it: it is written behind each of
them, and the mean of its keys and values is kept. What a chunk's KV has from passages before it, whichever they are,
is then in it; what it has from one of them in particular is averaged out.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.helpers import rescale_adapter_scale
from peft.tuners.lora import Linear
from torch import nn
from transformers import PreTrainedModel

from ragkv.writer import ADAPTER, CONFIG, read_stand_ins, write_stand_ins

RANK = 16
SCALE = 2.0
"""Factor of the product of both matrices (PEFT's lora_alpha / r)."""


class Adapter:
    """A model with a writer, switched on by default."""

    def __init__(self, model: PeftModel, stand_ins: Sequence[tuple[int, ...]]) -> None:
        self._model = model
        self._stand_ins = tuple(stand_ins)
        self._is_off = False

    @property
    def stand_ins(self) -> tuple[tuple[int, ...], ...]:
        """Token ids of the contexts that chunks are written behind: none while the writer is switched off."""
        return () if self._is_off else self._stand_ins

    @classmethod
    def new(cls, model: PreTrainedModel, rank: int = RANK, stand_ins: Sequence[tuple[int, ...]] = ()) -> "Adapter":
        """A writer whose weights change nothing yet: its second matrix is zero."""
        config = LoraConfig(r=rank, lora_alpha=int(SCALE * rank), lora_dropout=0.0, target_modules="all-linear")
        return cls(get_peft_model(model, config), stand_ins)

    @classmethod
    def load(cls, model: PreTrainedModel, folder: Path, *, trainable: bool = False) -> "Adapter":
        peft = PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
        return cls(peft, read_stand_ins(folder))

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
        write_stand_ins(folder, self._stand_ins)

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

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """The plain model, for the block."""
        was_off, self._is_off = self._is_off, True
        try:
            with self._model.disable_adapter():
                yield
        finally:
            self._is_off = was_off

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]
