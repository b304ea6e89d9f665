"""Chunks of random tokens whose KV the engine computes, with random weights: no answer means anything, but all do the
same work as with a trained model."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.scale import Scale
from bench.gpu.shapes import DTYPE, PRINTABLE, Shape
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import PromptBuilder, Wording
from ragkv.chunk import Chunk
from ragkv.engine.loop import run_on
from ragkv.engine.protocol import Engine
from ragkv.kv.key import KeyMaker
from ragkv.kv.store import KVStore
from ragkv.prefill.precompute import Prefiller, precompute
from ragkv.settings import Settings
from ragkv.tokenizer import Tokenizer

ROOM_TOKENS = 1024
"""Room in the engine's window beside the largest context: prefix, question and answer."""
_SECRET = b"KV of random tokens needs no secret"


@dataclass(frozen=True, slots=True)
class Corpus:
    """One model's chunks in a data folder, and whatever is needed to ask about them."""

    settings: Settings
    chunks: tuple[Chunk, ...]
    prompts: PromptBuilder
    keys: KeyMaker
    store: KVStore

    @classmethod
    def of(cls, shape: Shape, folder: Path, scale: Scale) -> "Corpus":
        """folder: the model's, which holds its tokenizer; everything else is kept in a folder beside it."""
        settings = Settings(
            data_dir=data_beside(folder),
            model=str(folder),
            dtype=DTYPE,
            chunk_tokens=scale.chunk_tokens,
            max_model_len=max(*scale.sizes, scale.context) + ROOM_TOKENS,
        )
        prompts = PromptBuilder(Tokenizer.load(folder), Wording(settings.instructions), settings.max_model_len)
        # Random weights have no name: the secret keeps shapes apart.
        keys = KeyMaker(_SECRET + shape.name.encode(), "", str(shape.layout.dtype), prompts.prefix_ids)
        chunks = random_chunks(scale.num_chunks, scale.chunk_tokens, shape.config.vocab_size)
        return cls(settings, chunks, prompts, keys, KVStore(settings.kv_dir))

    @property
    def planner(self) -> Planner:
        return Planner(self.store)

    @property
    def is_written(self) -> bool:
        return all(self.keys.chunk(chunk.token_ids) in self.store for chunk in self.chunks)

    async def write(self, engine: Engine, chunks: Sequence[Chunk] | None = None, keys: KeyMaker | None = None) -> None:
        """Have an engine compute and keep what KV is not there yet, of the corpus or of other chunks."""
        prefiller = Prefiller(engine, self.prompts, run_on(asyncio.get_running_loop()))
        await asyncio.to_thread(precompute, chunks or self.chunks, keys or self.keys, lambda: prefiller, self.store)


def data_beside(model: Path) -> Path:
    """The folder of a model's KV."""
    return model.with_name(f"{model.name}.data")


def random_chunks(number: int, tokens: int, vocabulary: int, seed: int = 0) -> tuple[Chunk, ...]:
    """Always the same ones, of tokens that stand for no character."""
    drawn = random.Random(seed)  # noqa: S311 - not for secrets
    ids = range(len(PRINTABLE), vocabulary)
    return tuple(
        Chunk(f"chunk {place}", "random", place, "", "", 0, 0, None, tuple(drawn.choices(ids, k=tokens)))
        for place in range(number)
    )
