"""The writer: a LoRA over all linear layers of the model (Hu et al., arXiv 2106.09685), through PEFT."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from peft import PeftModel
from transformers import PreTrainedModel


class Adapter:
    """A model with a writer, switched on by default."""

    def __init__(self, model: PeftModel) -> None:
        self._model = model

    @classmethod
    def load(cls, model: PreTrainedModel, folder: Path, *, trainable: bool = False) -> Self:
        """The writer in a folder, for a causal language model."""
        return cls(PeftModel.from_pretrained(model, str(folder), is_trainable=trainable))

    def merge(self) -> None:
        """Add the adapter to the model's own weights. `disabled` takes it out again, to within rounding."""
        self._model.merge_adapter()

    def disabled(self) -> AbstractContextManager[Any]:
        """The plain model, for the block."""
        return self._model.disable_adapter()
