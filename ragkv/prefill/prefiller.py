"""The engine as ingestion uses it: chunks in, KV files out."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from ragkv.answer.prompt import PromptBuilder
from ragkv.chunk import Chunk
from ragkv.engine.protocol import KVEngine, Prefill, PrefillChunk
from ragkv.kv.key import KeyMaker
from ragkv.stitch.compression import CUE, METHODS

Batch = Sequence[tuple[str, Chunk]]
"""Chunks that run through the model together, each with the key of its KV."""


class KVMaker(Protocol):
    """Computes and stores KV."""

    def prefill(self, batch: Batch, keys: KeyMaker) -> None:
        """Store the KV of chunks, and of the prefix if it has none, as `keys` name it."""


class Prefiller:
    """Has an engine compute and store KV, while the caller waits."""

    def __init__(
        self, engine: KVEngine, prompts: PromptBuilder, run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        """run: runs a coroutine on the engine's event loop, to its end."""
        self._engine = engine
        self._prompts = prompts
        self._run = run

    def prefill(self, batch: Batch, keys: KeyMaker) -> None:
        """See KVMaker. Raises as KVEngine.prefill does."""
        looks_ahead = keys.compression is not None and METHODS[keys.compression.method].behind
        prefill = Prefill(
            prefix_key=keys.prefix(),
            prefix_ids=keys.prefix_ids,
            chunks=tuple(PrefillChunk(key, tuple(chunk.token_ids)) for key, chunk in batch),
            kv_format=keys.kv_format,
            model=keys.model,
            dtype=keys.dtype,
            writer=keys.writer,
            compression=keys.compression,
            cue_ids=self._prompts.question_ids(CUE) if looks_ahead else (),
        )
        self._run(self._engine.prefill(prefill))
