"""The writer: a LoRA over all linear layers of the model (Hu et al., arXiv 2106.09685), through PEFT, and stand-ins."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from peft import PeftModel
from transformers import PreTrainedModel

from ragkv.writer import StandIns, read_stand_ins


@dataclass(frozen=True, slots=True)
class Context:
    """ids: tokens between the prefix and a chunk that is written. weight: of what is written so, in the mean."""

    ids: tuple[int, ...]
    weight: float


BARE = (Context((), 1.0),)
"""The prefix alone."""


def contexts_of(stand_ins: StandIns) -> tuple[Context, ...]:
    """The bare prefix and the stand-ins, with their weights in the mean."""
    ids, share = stand_ins.contexts, stand_ins.share
    return (Context((), 1 - share), *(Context(stand_in, share / len(ids)) for stand_in in ids))


class Adapter:
    """A model with a writer, switched on by default. stand_ins: None without any; kept while it is switched off."""

    def __init__(self, model: PeftModel, stand_ins: StandIns | None) -> None:
        self._model = model
        self.stand_ins = stand_ins
        self._is_off = False

    @property
    def contexts(self) -> tuple[Context, ...]:
        """Contexts that chunks are written behind: while the writer is switched off, the bare prefix alone."""
        return BARE if self._is_off or self.stand_ins is None else contexts_of(self.stand_ins)

    @classmethod
    def load(cls, model: PreTrainedModel, folder: Path, *, trainable: bool = False) -> Self:
        """The writer in a folder, for a causal language model."""
        peft = PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
        return cls(peft, read_stand_ins(folder))

    def merge(self) -> None:
        """Add the adapter to the model's own weights. `disabled` takes it out again, to within rounding."""
        self._model.merge_adapter()

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """The plain model, for the block."""
        was_off, self._is_off = self._is_off, True
        try:
            with self._model.disable_adapter():
                yield
        finally:
            self._is_off = was_off
