"""Division of chunks into those that a writer is trained on, validated on and evaluated on.

Chunks that lie near each other share contexts, so they are divided in neighbourhoods. What a training takes is recorded
beside its adapter: later calls may give the documents in another order, some of them, or more.
"""

import hashlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ragkv.batched import batched
from ragkv.chunk import Chunk
from ragkv.disk import replace_file
from ragkv.errors import Rejected
from ragkv.json_file import read_json

NEIGHBOURS = 16
"""Chunks that lie one behind the other in a collection and may share a context."""
LEAST_NEIGHBOURHOODS = 6
LEAST_HELD_OUT = 2
RECORD = "trained_on.json"

Neighbourhoods = list[list[Chunk]]


@dataclass(frozen=True, slots=True)
class Division:
    """Neighbourhoods, none of them in two parts."""

    training: Neighbourhoods
    validation: Neighbourhoods
    evaluation: Neighbourhoods


def divide(chunks: Sequence[Chunk], trained_on: AbstractSet[str]) -> Division:
    """Hold out the last fifth of the chunks: a third of it to validate on, the rest to evaluate on.

    chunks: of many documents, those of one document in a row. trained_on: digests of those that a training took, which
    are never held out. Raises Rejected where too few are left.
    """
    total = len(list(batched(chunks, NEIGHBOURS)))
    if total < LEAST_NEIGHBOURHOODS:
        raise Rejected(
            f"there are {len(chunks)} chunks; training and evaluation need {LEAST_NEIGHBOURHOODS * NEIGHBOURS} or more: "
            "give more documents"
        )
    is_seen = [digest_of(chunk) in trained_on for chunk in chunks]
    seen = [chunk for chunk, is_known in zip(chunks, is_seen, strict=True) if is_known]
    unseen = [chunk for chunk, is_known in zip(chunks, is_seen, strict=True) if not is_known]
    near = _neighbourhoods(unseen)
    num_held_out = max(LEAST_HELD_OUT, total // 5)
    if len(near) < LEAST_HELD_OUT:
        raise Rejected(
            f"the writer was trained on {len(seen)} of these {len(chunks)} chunks, and what is left is too little to "
            "evaluate it on: give other documents as well"
        )
    held_out = near[-num_held_out:]
    num_validation = max(1, len(held_out) // 3)
    return Division(
        training=_neighbourhoods(seen) + near[:-num_held_out],
        validation=held_out[:num_validation],
        evaluation=held_out[num_validation:],
    )


def digest_of(chunk: Chunk) -> str:
    """Names a chunk by what a prompt holds of it."""
    return hashlib.blake2b(repr(chunk.token_ids).encode(), digest_size=8).hexdigest()


def read_record(folder: Path) -> frozenset[str]:
    """Digests of the chunks that the writer in a folder was trained on; none where that was not recorded. Raises
    Rejected for a file that cannot be read."""
    return frozenset(read_json(folder / RECORD, list[str]) or ())


def write_record(folder: Path, training: Neighbourhoods) -> None:
    digests = sorted({digest_of(chunk) for near in training for chunk in near} | read_record(folder))
    replace_file(folder / RECORD, msgspec.json.encode(digests))


def _neighbourhoods(chunks: Sequence[Chunk]) -> Neighbourhoods:
    return [list(near) for near in batched(chunks, NEIGHBOURS)]
