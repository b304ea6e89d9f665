"""Capture of keys and values from a model's own forward pass under Transformers.

Nothing here knows an architecture. Transformers models rotate queries and keys with the function `apply_rotary_pos_emb`
of their module, then call an attention function from a registry: both are wrapped, so that keys are captured before the
rotation and values as attention gets them.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ragkv.errors import Unsupported

_ATTENTION = "ragkv_capture"
_NUMBERS = itertools.count()
ROTATE = "apply_rotary_pos_emb"


@dataclass(slots=True)
class Captured:
    """Tensors captured from one forward, one a layer: [batch, heads, tokens, head_dim] in the model's dtype,
    un-rotated.

    Only tokens of that forward, not those of a cache before them. `pre_rope` holds keys between their rotation and the
    attention that follows it.
    """

    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    pre_rope: torch.Tensor | None = None


class Capture:
    """The captures of one model. Raises Unsupported for one whose keys cannot be seen before they are rotated."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._rotary_modules = modules_with_rotation(model)
        self._layers = model.config.num_hidden_layers
        self._kind = model.config.model_type
        self._captured: Captured | None = None
        # The registry is global to the process: a unique name keeps models from replacing each other.
        name = f"{_ATTENTION}_{next(_NUMBERS)}"
        ALL_ATTENTION_FUNCTIONS.register(name, self._attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, sdpa_mask)
        model.set_attn_implementation(name)

    @contextmanager
    def recorded(self) -> Iterator[Captured]:
        """Capture every layer of the one forward that runs in the block. Raises Unsupported if a layer was missed."""
        self._captured = captured = Captured()
        originals = {module: getattr(module, ROTATE) for module in self._rotary_modules}
        for module, original in originals.items():
            setattr(module, ROTATE, partial(self._rotate, original))
        try:
            yield captured
        finally:
            self._captured = None
            for module, original in originals.items():
                setattr(module, ROTATE, original)
        if not len(captured.keys) == len(captured.values) == self._layers:
            raise Unsupported(
                f"{self._kind}: keys could be captured in {len(captured.keys)} of {self._layers} layers; a model must "
                "rotate keys in every layer to be stitched"
            )

    def _rotate(
        self, rotate: Callable[..., Any], queries: torch.Tensor, keys: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if self._captured is not None:
            self._captured.pre_rope = keys
        return rotate(queries, keys, *args, **kwargs)

    def _attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Capture one layer. A layer that did not rotate is left out, and missed when layers are counted."""
        captured = self._captured
        if captured is not None and (keys := captured.pre_rope) is not None:
            captured.pre_rope = None
            tokens, size = keys.shape[2:]
            # Some models rotate only the first dimensions, and pass only those to the rotation.
            captured.keys.append(torch.cat((keys, key[:, :, -tokens:, size:]), dim=-1))
            captured.values.append(value[:, :, -tokens:])
        attended: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, *args, **kwargs)
        return attended


def modules_with_rotation(model: torch.nn.Module) -> list[ModuleType]:
    """Python modules of the model's layers that hold an `apply_rotary_pos_emb`. Raises Unsupported if none does."""
    names = {type(part).__module__ for part in model.modules()}
    modules = [sys.modules[name] for name in sorted(names) if hasattr(sys.modules[name], ROTATE)]
    if not modules:
        raise Unsupported(f"{type(model).__name__}: its keys cannot be captured before they are rotated")
    return modules


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """Token ids as [rows, longest] int64, padded on the right: under causal attention nothing before it sees the
    padding."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    return ids.to(device)
