"""vLLM's worker: a layer's rotary embedding, applied to stored keys, and its inverse."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase
from vllm.model_executor.layers.rotary_embedding.deepseek_scaling_rope import DeepseekScalingRotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.phi3_long_rope_scaled_rope import Phi3LongRoPEScaledRotaryEmbedding

_APPLY = "apply_rotary_pos_emb"
"""Name of the function that rotates queries and keys, in each of Transformers' modules of a model."""


@dataclass(frozen=True, slots=True)
class Angles:
    """Rotation in a model that vLLM runs through Transformers' code.

    module: gives the cosines and sines of positions, once for all layers of a kind. apply: the function by which these
    layers rotate.
    """

    module: torch.nn.Module
    kind: tuple[str, ...]
    apply: Callable[..., tuple[torch.Tensor, torch.Tensor]]

    def turn(self, positions: torch.Tensor, vectors: torch.Tensor, *, back: bool = False) -> torch.Tensor:
        """Vectors [heads, tokens, head_dim], turned to their positions [tokens] or back."""
        cos, sin = self.module(vectors, positions[None], *self.kind)
        if back:
            scale = cos.square() + sin.square()
            cos, sin = cos / scale, -sin / scale
        nothing = vectors[None, :0]
        return self.apply(nothing, vectors[None], cos, sin)[1][0]


Embedding: TypeAlias = RotaryEmbeddingBase | Phi3LongRoPEScaledRotaryEmbedding
Rotary: TypeAlias = Embedding | Angles | None
"""None: the layer does not rotate."""

OnRotation: TypeAlias = Callable[[Embedding | Angles, torch.Tensor, torch.Tensor], None]


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Have an object say `value` for an attribute, its own or its class's, during the block."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextmanager
def watched(model: torch.nn.Module, on_rotation: OnRotation) -> Iterator[None]:
    """Call `on_rotation(rotary, queries, keys)` before each rotation of the block, with what is to be rotated, [tokens,
    heads * head_dim]."""

    def see(embedding: Any, inputs: tuple[Any, ...]) -> None:
        on_rotation(embedding, inputs[1], inputs[2])

    with ExitStack() as until_end:
        for module in model.modules():
            if isinstance(module, Embedding):
                until_end.callback(module.register_forward_pre_hook(see).remove)
        until_end.enter_context(_watched_in_transformers(model, on_rotation))
        yield


@contextmanager
def _watched_in_transformers(model: torch.nn.Module, on_rotation: OnRotation) -> Iterator[None]:
    """Like `watched`, in Transformers' code: which angles a layer applies is told by the cosines that it is given."""
    angles: dict[int, tuple[torch.Tensor, torch.nn.Module, tuple[str, ...]]] = {}

    def note(module: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        kind = (*inputs[2:], *(value for name, value in named.items() if name == "layer_type"))
        angles[id(output[0])] = output[0], module, kind

    def seeing(apply: Callable[..., Any]) -> Callable[..., Any]:
        def see(queries: torch.Tensor, keys: torch.Tensor, cos: torch.Tensor, *others: Any, **named: Any) -> Any:
            _, module, kind = angles[id(cos)]
            rows = (part[0].transpose(0, 1).flatten(1) for part in (queries, keys))
            on_rotation(Angles(module, kind, apply), *rows)
            return apply(queries, keys, cos, *others, **named)

        return see

    sources = {type(module).__module__ for module in model.modules()}
    with ExitStack() as until_end:
        for module in model.modules():
            kind = type(module)
            if kind.__module__.startswith("transformers.") and kind.__name__.endswith("RotaryEmbedding"):
                until_end.callback(module.register_forward_hook(note, with_kwargs=True).remove)
        for source in (sys.modules[name] for name in sources if name.startswith("transformers.")):
            if apply := getattr(source, _APPLY, None):
                until_end.enter_context(replaced(source, _APPLY, seeing(apply)))
        yield


def rotate(rotary: Rotary, positions: torch.Tensor, keys: torch.Tensor) -> None:
    """Turn un-rotated keys [layers, tokens, kv_heads, head_dim], contiguous, in place, by the model's own kernel. If
    its heads are smaller, their first dimensions are turned."""
    if rotary is None:
        return
    if isinstance(rotary, Angles):
        by_head = keys.transpose(1, 2)
        keys.copy_(rotary.turn(positions, by_head.flatten(0, 1)).view(by_head.shape).transpose(1, 2))
        return
    if rotary.head_size < keys.shape[-1]:
        part = keys[..., : rotary.head_size].contiguous()
        rotate(rotary, positions, part)
        keys[..., : rotary.head_size] = part
        return
    vectors = keys.view(keys.shape[0] * keys.shape[1], -1)
    beside = None
    if isinstance(rotary, Phi3LongRoPEScaledRotaryEmbedding):  # it asks for both
        beside = vectors[:, : rotary.head_size]
    elif isinstance(rotary, DeepseekScalingRotaryEmbedding):  # likewise, by heads
        vectors = keys.flatten(0, 1)
        beside = torch.zeros_like(vectors[:, :1])
    rotated, _ = rotary(positions.repeat(len(keys)), vectors, beside)
    if rotated.data_ptr() != vectors.data_ptr():
        vectors.copy_(rotated)


def unrotate(rotary: Rotary, positions: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """The inverse of `rotate` for [tokens, heads, head_dim], in float32: a rotation's transpose, with any scale the
    model's has divided out.

    RoFormer, arXiv 2104.09864, section 3.2.2: the rotation matrices are orthogonal.
    """
    if rotary is None:
        return queries.float()
    if isinstance(rotary, Angles):
        return rotary.turn(positions, queries.float().transpose(0, 1), back=True).transpose(0, 1)
    is_neox_style = getattr(rotary, "is_neox_style", True)
    table = rotary.cos_sin_cache if isinstance(rotary, RotaryEmbeddingBase) else rotary.long_short_cos_sin_cache
    cos, sin = table[positions].float().unsqueeze(1).chunk(2, dim=-1)
    scale = cos.square() + sin.square()
    size = rotary.rotary_dim
    turned, unturned = queries.float()[..., :size], queries.float()[..., size:]
    if is_neox_style:
        left, right = turned.chunk(2, dim=-1)
    else:
        left, right = turned[..., ::2], turned[..., 1::2]
    back = (left * cos + right * sin) / scale, (right * cos - left * sin) / scale
    pairs = torch.cat(back, -1) if is_neox_style else torch.stack(back, -1).flatten(-2)
    return torch.cat((pairs, unturned), -1)
