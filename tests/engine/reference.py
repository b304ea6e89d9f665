"""References for what the engine does, by Transformers alone."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PretrainedConfig, PreTrainedModel

from ragkv.answer.prompt import Prompt
from ragkv.chunk import Chunk
from ragkv.span import Span
from tests.engine.world import Answered, Model, World, kl
from tests.support.made_kv import stored_kv


def reader_of(model: Model) -> PreTrainedModel:
    """The model in float32, with eager attention."""
    return AutoModelForCausalLM.from_pretrained(model.settings.model, dtype=torch.float32, attn_implementation="eager")


def stitched_cache(reader: torch.nn.Module, model: Model, chunks: Sequence[Chunk]) -> DynamicCache:
    """The stored KV of prefix and chunks, rotated by Transformers."""
    keys = [model.keys.prefix(), *(model.keys.chunk(chunk.token_ids) for chunk in chunks)]
    kvs = [stored_kv(model.store, key, model.layout) for key in keys]
    positions = torch.arange(sum(kv.num_tokens for kv in kvs))[None]
    cache = DynamicCache()
    for layer in range(model.layout.layers):
        key = torch.cat([kv.keys[layer] for kv in kvs]).transpose(0, 1)[None]
        value = torch.cat([kv.values[layer] for kv in kvs]).transpose(0, 1)[None]
        if model.layout.is_latent:
            cache.update(*_latent_parts(reader, key, positions), layer)
            continue
        first, second = key.chunk(2, dim=-1)
        cos, sin = _angles(reader, layer, key, positions)
        cache.update(key * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None], value, layer)
    return cache


def _latent_parts(
    reader: torch.nn.Module, key: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents and rotated parts, which Transformers keeps with the first dimensions of all pairs before the second."""
    size = reader.config.qk_rope_head_dim
    first, second = key[..., :size:2], key[..., 1:size:2]
    cos, sin = (part[:, None, :, : size // 2] for part in reader.model.rotary_emb(key, positions))
    return key[..., size:], torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _angles(reader: torch.nn.Module, layer: int, key: torch.Tensor, positions: torch.Tensor) -> list[torch.Tensor]:
    """Cosine and sine for every dimension: some models have those of each kind of layer, gpt-oss gives them for one
    half."""
    kinds = getattr(reader.config, "layer_types", None) or [""] * (layer + 1)
    by_kind = (kinds[layer],) if kinds[layer] in reader.config.rope_parameters else ()
    angles = reader.model.rotary_emb(key, positions, *by_kind)
    return [part.repeat(1, 1, key.shape[-1] // part.shape[-1]) for part in angles]


class MixedCache(DynamicCache):
    """Stitched KV in which the positions that run through the model get fresh KV, layer by layer."""

    def __init__(self, stitched: DynamicCache, rows: torch.Tensor) -> None:
        """rows: [tokens] int64, the positions that run, ascending."""
        super().__init__()
        self._stitched = stitched
        self._rows = rows

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: Any, **__: Any) -> Any:
        stored, mixed = self._stitched.layers[layer], []
        for before, fresh in ((stored.keys, key), (stored.values, value)):
            whole = fresh.new_empty(*fresh.shape[:2], int(self._rows[-1]) + 1, fresh.shape[-1])
            whole[:, :, : before.shape[2]] = before
            whole[:, :, self._rows] = fresh
            mixed.append(whole)
        return tuple(mixed)


@torch.inference_mode()
def partly_recomputed(
    model: Model, chunks: Sequence[Chunk], prompt: Prompt, recompute: Sequence[Span], answer: Sequence[int]
) -> torch.Tensor:
    """Log probabilities [tokens of the answer, vocabulary] after stitched KV of which some spans are recomputed.

    One forward over the positions that run: those of the spans, of the question, and of the answer. In each layer each
    of them sees whatever KV, stitched or fresh, stands at the positions up to its own.
    """
    reader = reader_of(model)
    ids = torch.tensor([*prompt.token_ids, *answer[:-1]])
    runs = [*(torch.arange(span.start, span.end) for span in recompute), torch.arange(prompt.question.start, len(ids))]
    rows = torch.cat(runs)
    cache = MixedCache(stitched_cache(reader, model, chunks), rows)
    mask = _mask(reader.config, torch.arange(len(ids))[None], rows[:, None])
    out = reader(ids[None, rows], attention_mask=mask, position_ids=rows[None], past_key_values=cache)
    return out.logits[0, -len(answer) :].log_softmax(-1)


def _mask(config: PretrainedConfig, positions: torch.Tensor, rows: torch.Tensor) -> Any:
    """The positions up to its own that each row sees, within the window where there is one: by kind of layer, where
    they have kinds."""
    past = positions <= rows
    window = getattr(config, "sliding_window", None)
    near = past & (positions > rows - window) if window else past
    whole, local = (torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min) for seen in (past, near))
    if getattr(config, "layer_types", None):
        return {"full_attention": whole[None, None], "sliding_attention": local[None, None]}
    return local[None, None]


def divergence_from_mixture(
    world: World, chunks: Sequence[Chunk], recompute: Sequence[Span], answered: Answered
) -> float:
    """The largest KL, in nats, of an answer's distributions to those after `recompute` alone was recomputed."""
    prompt = world.model.prompt(chunks)
    reference = partly_recomputed(world.model, chunks, prompt, recompute, answered.token_ids)
    pairs = zip(reference.tolist(), answered.logprobs, strict=True)
    divergence = max(kl(dict(enumerate(expected)), step) for expected, step in pairs)
    print(f"\nagainst the mixture: KL {divergence:.1e}")
    return divergence
