"""Views of chunks for compression: queries and keys from a chunk's prefill, and from tokens that the model decodes
after it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache, PreTrainedModel

from ragkv.prefill.capture import Captured, padded
from ragkv.prefill.prefixed import PrefixedModel, cache_of, repeated

LOOKAHEAD = 16
"""Tokens decoded behind each chunk."""


@dataclass(frozen=True, slots=True)
class ChunkView:
    """One chunk behind the prefix, with what was decoded behind it.

    queries: a tensor a layer, [num_tokens + behind, q_heads, head_dim]; keys: [num_prefix + num_tokens + behind,
    kv_heads, head_dim]; both rotated. `behind` are the tokens of the cue and those decoded; the last `num_decoded` are
    the latter.
    """

    num_prefix: int
    num_tokens: int
    num_decoded: int
    queries: Sequence[torch.Tensor]
    keys: Sequence[torch.Tensor]


class Watcher(PrefixedModel):
    """The plain model, watched while it reads chunks behind the prefix and goes on from them."""

    def __init__(
        self, model: PreTrainedModel, prefix_ids: Sequence[int], cue_ids: Sequence[int], num_decoded: int = LOOKAHEAD
    ) -> None:
        """cue_ids: token ids put behind each chunk, after which `num_decoded` are decoded greedily."""
        super().__init__(model, prefix_ids, range(model.config.num_hidden_layers))
        self._cue_ids = tuple(cue_ids)
        self._num_decoded = num_decoded

    @torch.inference_mode()
    def views(self, chunks: Sequence[Sequence[int]]) -> list[ChunkView]:
        """A view of each chunk, all of them in one batch. Pass chunks of similar length to waste little."""
        steps = self._decoded([(*chunk, *self._cue_ids) for chunk in chunks])
        return [self._view(steps, row, len(chunk)) for row, chunk in enumerate(chunks)]

    def _view(self, steps: Sequence[Captured], row: int, num_tokens: int) -> ChunkView:
        """The row of each step's batch: of the first its real tokens, of the others their one."""
        num_real = num_tokens + len(self._cue_ids)
        queries, keys = (
            [
                torch.cat([layers[0][row, :, :num_real], *(layer[row] for layer in layers[1:])], 1)
                for layers in zip(*(getattr(step, name) for step in steps), strict=True)
            ]
            for name in ("queries", "keys")
        )
        return ChunkView(
            self.num_prefix,
            num_tokens,
            self._num_decoded,
            [self._at_end(layer) for layer in queries],
            [
                torch.cat([prefix[0].transpose(0, 1), self._at_end(layer)])
                for (prefix, _), layer in zip(self._prefix, keys, strict=True)
            ],
        )

    def _at_end(self, heads: torch.Tensor) -> torch.Tensor:
        """Heads of tokens behind the prefix [heads, tokens, head_dim], rotated to their positions: [tokens, heads,
        head_dim]."""
        positions = torch.arange(self.num_prefix, self.num_prefix + heads.shape[1], device=self._device)
        return self._rotated(heads[None], positions)[0].transpose(0, 1)

    def _decoded(self, rows: Sequence[Sequence[int]]) -> list[Captured]:
        """Rows of token ids behind the prefix, then the tokens decoded greedily behind each: one capture a forward."""
        lengths = torch.tensor([len(row) for row in rows], device=self._device)
        cache = cache_of(repeated(self._prefix, len(rows)))
        steps = [Captured()]
        with self._capture.recorded() as steps[0]:
            out = self._trunk(padded(rows, self._device), past_key_values=cache, use_cache=True)
        hidden = out.last_hidden_state[torch.arange(len(rows)), lengths - 1]
        for number in range(self._num_decoded):
            tokens = self._model.lm_head(hidden).argmax(-1)
            steps.append(Captured())
            with self._capture.recorded() as steps[-1]:
                hidden = self._step(tokens, lengths + number, cache, lengths)
        return steps

    def _step(
        self, tokens: torch.Tensor, behind: torch.Tensor, cache: DynamicCache, lengths: torch.Tensor
    ) -> torch.Tensor:
        """The hidden state of one more token of each row, which sees no padding. [rows, hidden]."""
        longest = int(lengths.max())
        column = torch.arange(cache.get_seq_length() + 1, device=self._device) - self.num_prefix
        seen = (column < lengths[:, None]) | (column >= longest)
        out = self._trunk(
            tokens[:, None],
            position_ids=(self.num_prefix + behind)[:, None],
            attention_mask=seen[:, None, None],
            past_key_values=cache,
            use_cache=True,
        )
        hidden: torch.Tensor = out.last_hidden_state[:, 0]
        return hidden
