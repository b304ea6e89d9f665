"""Requests for chunks: a service's trace, or synthetic ones by Zipf's law."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import msgspec

from bench.measuring import read_lines
from ragkv.errors import Rejected

BLOCK_TOKENS = 512
"""Tokens of a hash id in a trace."""
TOKENS_OF_CHUNKS = (45, 78, 112, 132, 143, 157, 166, 178, 187, 197, 204, 213, 218, 226, 234, 238, 243, 246, 249, 253)
"""Tokens of a synthetic chunk, each as likely: twentieths of the 571 chunks that the sample documents and this
documentation have."""


class _Line(msgspec.Struct):
    """One request of a trace in Mooncake's format. timestamp: milliseconds."""

    timestamp: float
    input_length: int
    hash_ids: list[int]


@dataclass(frozen=True, slots=True)
class Request:
    """Chunks that one question reads, in the order of the prompt, each once. moment: seconds."""

    moment: float
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of time. tokens: of each chunk."""

    name: str
    requests: Sequence[Request]
    tokens: Mapping[str, int]


def read_trace(file: Path) -> Workload:
    """A trace in Mooncake's format (FAST '25): JSON lines with `timestamp`, `input_length` and `hash_ids`. Raises
    Rejected."""
    requests: list[Request] = []
    tokens: dict[str, int] = {}
    for _, read in read_lines(file, _Line):
        chunks = tuple(dict.fromkeys(map(str, read.hash_ids)))
        if not chunks:
            continue
        tokens |= dict.fromkeys(chunks, BLOCK_TOKENS)
        requests.append(Request(read.timestamp / 1e3, chunks))
    if not requests:
        raise Rejected(f"{file}: no request has hash_ids")
    requests.sort(key=lambda request: request.moment)
    return Workload(file.stem, requests, tokens)


def zipf(exponent: float, num_chunks: int, num_requests: int, top_k: int, seed: int = 0) -> Workload:
    """Requests for `top_k` different chunks each, one a second: the chunk of rank r is drawn with a weight of r **
    -exponent."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    names = [str(number) for number in range(num_chunks)]
    draw.shuffle(names)
    weights = list(accumulate((rank + 1) ** -exponent for rank in range(num_chunks)))
    requests = []
    for moment in range(num_requests):
        names_drawn: dict[str, None] = {}
        while len(names_drawn) < min(top_k, num_chunks):
            names_drawn |= dict.fromkeys(draw.choices(names, cum_weights=weights, k=top_k - len(names_drawn)))
        requests.append(Request(float(moment), tuple(names_drawn)))
    return Workload(f"zipf({exponent:g})", requests, {name: draw.choice(TOKENS_OF_CHUNKS) for name in names})
