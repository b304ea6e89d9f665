"""Chunks run through the language model once, behind the shared prefix; their KV and Q-Cache are taken out.

Nothing here knows an architecture. Transformers models rotate queries and keys with a function `apply_rotary_pos_emb` of
their own module, then call an attention function from a registry: both are wrapped, so that keys and queries are captured
before the rotation and values as attention gets them.
"""

import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import AutoModel, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ragkv.errors import Unsupported
from ragkv.kv.file import QCACHE_BLOCK, ChunkKV
from ragkv.kv.layout import Layout

log = logging.getLogger(__name__)

_ATTENTION = "ragkv_capture"
_NUMBERS = itertools.count()
_ROTATE = "apply_rotary_pos_emb"
QCACHE_VIEW = 16  # tokens at a chunk's start and end whose mean query is its initial and its local vector


@dataclass(slots=True)
class Captured:
    """Tensors captured from one forward, one a layer: [batch, heads, tokens, head_dim] in the model's dtype, un-rotated.

    `pre_rope` holds queries and keys between their rotation and the attention that follows it.
    """

    queries: list[torch.Tensor] = field(default_factory=list)
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    pre_rope: tuple[torch.Tensor, torch.Tensor] | None = None


class Prefiller:
    """The served model under Transformers, for prefill alone."""

    def __init__(self, model: PreTrainedModel, layout: Layout) -> None:
        self.layout = layout
        self._model = model
        self._rotary_modules = _modules_with_rotation(model)
        self._captured: Captured | None = None
        name = (
            f"{_ATTENTION}_{next(_NUMBERS)}"  # the registry is the process's: models must not take each other's place
        )
        ALL_ATTENTION_FUNCTIONS.register(name, self._attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, sdpa_mask)
        model.set_attn_implementation(name)

    @classmethod
    def load(cls, folder: Path, layout: Layout) -> "Prefiller":
        """Load the model, on the GPU if there is one. Takes seconds: keep one a process."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = AutoModel.from_pretrained(folder, dtype=layout.dtype, attn_implementation="sdpa").to(device).eval()
        return cls(model, layout)

    @torch.inference_mode()
    def prefill(self, prefix_ids: Sequence[int], chunks: Sequence[Sequence[int]]) -> list[ChunkKV]:
        """KV of the prefix, then of each chunk behind it, from one forward.

        Chunks are padded on the right: under causal attention nothing before the padding can see it. Pass chunks of
        similar length to waste little. Raises Unsupported for a model whose attention cannot be captured.
        """
        skip, longest = len(prefix_ids), max((len(chunk) for chunk in chunks), default=0)
        ids = torch.zeros(max(len(chunks), 1), skip + longest, dtype=torch.long)
        for row, chunk in zip(ids, chunks or [[]], strict=True):
            row[: skip + len(chunk)] = torch.tensor([*prefix_ids, *chunk])
        captured = self._forward(ids.to(self._model.device))
        cut = [self._cut(captured, 0, 0, skip)]
        return cut + [self._cut(captured, row, skip, skip + len(chunk)) for row, chunk in enumerate(chunks)]

    def _forward(self, ids: torch.Tensor) -> Captured:
        with self._recorded() as captured:
            self._model(ids, use_cache=False)
        if not len(captured.keys) == len(captured.values) == self.layout.layers:
            raise Unsupported(
                f"{self._model.config.model_type}: {len(captured.keys)} of {self.layout.layers} layers showed their keys; "
                "a model must rotate keys in every layer to be stitched"
            )
        return captured

    def _cut(self, captured: Captured, row: int, start: int, end: int) -> ChunkKV:
        """One sequence's tokens [start, end) out of a batch."""
        keys = _stack(captured.keys, row, start, end).to(self.layout.dtype)
        queries = _stack(captured.queries, row, start, end).float()
        chosen = keys[self.layout.q_layers.start : self.layout.q_layers.stop]
        return ChunkKV(
            keys=keys,
            values=_stack(captured.values, row, start, end).to(self.layout.dtype),
            initial=queries[:, :QCACHE_VIEW].mean(1),
            local=queries[:, -QCACHE_VIEW:].mean(1),
            mean_keys=torch.stack([block.float().mean(1) for block in torch.split(chosen, QCACHE_BLOCK, dim=1)]),
        )

    @contextmanager
    def _recorded(self) -> Iterator[Captured]:
        """Capture queries, keys and values of every layer while the block runs."""
        self._captured = captured = Captured()
        originals = {module: getattr(module, _ROTATE) for module in self._rotary_modules}
        for module, original in originals.items():
            setattr(module, _ROTATE, self._recording(original))
        try:
            yield captured
        finally:
            self._captured = None
            for module, original in originals.items():
                setattr(module, _ROTATE, original)

    def _note_layer(self, captured: Captured, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Capture one layer. A layer that did not rotate is left out, and missed when layers are counted."""
        if captured.pre_rope is None:
            return
        queries, keys = captured.pre_rope
        captured.pre_rope = None
        if len(captured.keys) in self.layout.q_layers:
            captured.queries.append(_unrotated(queries, query))
        captured.keys.append(_unrotated(keys, key))
        captured.values.append(value)

    def _recording(self, rotate: Callable[..., Any]) -> Callable[..., Any]:
        def seen(queries: torch.Tensor, keys: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._captured is not None:
                self._captured.pre_rope = queries, keys
            return rotate(queries, keys, *args, **kwargs)

        return seen

    def _attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        if self._captured is not None:
            self._note_layer(self._captured, query, key, value)
        attended: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, *args, **kwargs)
        return attended


def _unrotated(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Un-rotated heads: some models rotate only the first dimensions, and pass only those to the rotation."""
    return torch.cat((part, whole[..., part.shape[-1] :]), dim=-1)


def _modules_with_rotation(model: PreTrainedModel) -> list[ModuleType]:
    """Python modules of the model's layers that hold an `apply_rotary_pos_emb`. Raises Unsupported if none does."""
    names = {type(part).__module__ for part in model.modules()}
    found = [sys.modules[name] for name in sorted(names) if hasattr(sys.modules[name], _ROTATE)]
    if not found:
        raise Unsupported(f"{model.config.model_type}: its keys cannot be seen before they are rotated")
    return found


def _stack(layers: list[torch.Tensor], row: int, start: int, end: int) -> torch.Tensor:
    """[layers, tokens, heads, head_dim] of one sequence, on the host."""
    return torch.stack([layer[row, :, start:end] for layer in layers]).transpose(1, 2).contiguous().cpu()
