"""Amounts to measure: many on a GPU, few in a rehearsal."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from bench.gpu.shapes import LLAMA_8B, QWEN3_8B, Shape, deepseek, llama, mistral, qwen3, small_sizes

RATIOS = (0.0, 0.02, 0.05, 0.10)
Kind = Literal["llama", "qwen3", "mistral", "deepseek_v3"]
"""Architectures that are measured, as the configurations of their models name them."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes in tokens. oracles: models whose weights are saved; shapes: models whose weights are drawn, of the kinds of
    the first oracles, the first of which is measured in every part."""

    device: str
    oracles: tuple[Shape, ...]
    shapes: tuple[Shape, ...]
    oracle_prompts: int
    chunk_tokens: int
    sizes: tuple[int, ...]
    runs: int
    ingest_tokens: int
    load_tokens: int
    context: int
    clients: dict[int, int]
    """Clients, and how many questions all of them ask together."""
    answer: int
    streams: int
    arrivals: int
    arrivals_a_second: float
    rounds: int
    max_cache_gib: float

    @property
    def num_chunks(self) -> int:
        """Chunks of the largest context, and one more: what they hold must exceed it."""
        return max(*self.sizes, self.context) // self.chunk_tokens + 1

    def of_kind(self, kind: Kind) -> "Scale":
        """With the models of one kind alone."""
        oracles, shapes = (
            tuple(shape for shape in shapes if shape.config.model_type == kind)
            for shapes in (self.oracles, self.shapes)
        )
        return replace(self, oracles=oracles, shapes=shapes)


_SMALL, _TINY = small_sizes(512, 128, 8, 32000), small_sizes(64, 32, 4, 1024)
ON_A_GPU = Scale(
    device="cuda",
    oracles=(
        llama("small Llama", **_SMALL),
        qwen3("small Qwen3", **_SMALL),
        mistral("small Mistral, windows", **_SMALL),
        deepseek("small DeepSeek", 512, 8, 32000),
    ),
    shapes=(LLAMA_8B, QWEN3_8B),
    oracle_prompts=20,
    chunk_tokens=256,
    sizes=(4096, 8192, 16384, 32768),
    runs=3,
    ingest_tokens=8192,
    load_tokens=8192,
    context=8192,
    clients={16: 48, 64: 64},
    answer=32,
    streams=8,
    arrivals=12,
    arrivals_a_second=1.5,
    rounds=2,
    max_cache_gib=64.0,
)
REHEARSAL = Scale(
    device="cpu",
    oracles=(llama("tiny Llama", **_TINY), qwen3("tiny Qwen3", **_TINY)),
    shapes=(llama("Llama's shape", **_TINY), qwen3("Qwen3's shape", **_TINY)),
    oracle_prompts=3,
    chunk_tokens=64,
    sizes=(256, 512),
    runs=1,
    ingest_tokens=512,
    load_tokens=256,
    context=256,
    clients={2: 4, 4: 4},
    answer=4,
    streams=2,
    arrivals=3,
    arrivals_a_second=20.0,
    rounds=1,
    max_cache_gib=0.05,
)
