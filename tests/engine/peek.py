"""A worker extension that shows the engine's own KV. Loaded by the engine's process, for tests alone."""

import torch
from vllm.distributed.kv_transfer import get_kv_transfer_group

from ragkv.span import Span


class Peek:
    """Added to vLLM's worker by `worker_extension_cls`."""

    def own_kv(self, token_ids: list[int]) -> list[list[torch.Tensor]]:
        """Rotated keys and values that the engine computes for a prompt, [layer][key, value], in idle cache blocks."""
        model = get_kv_transfer_group()._stitcher._model
        blocks = torch.arange(1, 2 + len(token_ids) // model.block_size)
        batch = model.batch([Span(0, len(token_ids))], blocks)
        seen: list[list[torch.Tensor]] = []
        with model.watching(lambda _layer, _query, key, value: seen.append([key.clone(), value.clone()])):
            model.forward(torch.tensor(token_ids), batch, blocks)
        return seen

    def rotated(self, keys: torch.Tensor, start: int) -> torch.Tensor:
        """Un-rotated keys [tokens, kv_heads, head_dim] as the engine would hold them from position `start` on."""
        model = get_kv_transfer_group()._stitcher._model
        return model.rotate(torch.arange(start, start + len(keys)), keys.contiguous().clone())
