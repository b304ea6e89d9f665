"""Division of chunks into sets for training, validation and evaluation of a writer.

Chunks that lie near each other share contexts, so they are divided in neighbourhoods. What a training takes is recorded
beside its adapter: later calls may give the documents in another order, some of them, or more.
"""

import hashlib
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ragkv.chunk import Chunk
from ragkv.errors import Rejected
from ragkv.files_io import read_json, replace_file
from ragkv.ids import batched
from ragkv.prefill.writer import TRAINED_ON

NEIGHBOURS = 16
"""Chunks that lie one behind the other in a collection and may share a context."""
LEAST_NEIGHBOURHOODS = 6
LEAST_HELD_OUT = 2

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
    are never held out; neither is a chunk that the training part holds too. Raises Rejected where too few are left.
    """
    if len(chunks) < LEAST_NEIGHBOURHOODS * NEIGHBOURS:
        raise Rejected(
            f"there are {len(chunks)} chunks; training and evaluation need {LEAST_NEIGHBOURHOODS * NEIGHBOURS} or more: "
            "give more documents"
        )
    num_held_out = max(LEAST_HELD_OUT, len(chunks) // NEIGHBOURS // 5)
    unseen = _neighbourhoods([chunk for chunk in chunks if digest_of(chunk) not in trained_on])
    trained = trained_on | _digests(unseen[:-num_held_out])
    training = _neighbourhoods([chunk for chunk in chunks if digest_of(chunk) in trained])
    held_out = _neighbourhoods([chunk for chunk in chunks if digest_of(chunk) not in trained])
    if len(held_out) < LEAST_HELD_OUT:
        raise Rejected(
            f"the writer was trained on most of these {len(chunks)} chunks, or they repeat each other: too little is "
            "left to evaluate it on; give other documents as well"
        )
    num_validation = max(1, len(held_out) // 3)
    return Division(training, validation=held_out[:num_validation], evaluation=held_out[num_validation:])


def digest_of(chunk: Chunk) -> str:
    """Names a chunk by what a prompt holds of it."""
    return hashlib.blake2b(repr(chunk.token_ids).encode(), digest_size=8).hexdigest()


def read_record(folder: Path) -> frozenset[str]:
    """Digests of the chunks that the writer in a folder was trained on; none where that was not recorded. Raises
    Rejected for a file that cannot be read."""
    return frozenset(read_json(folder / TRAINED_ON, list[str]) or ())


def write_record(folder: Path, training: Iterable[Sequence[Chunk]]) -> None:
    """Record these chunks beside those that are recorded already."""
    replace_file(folder / TRAINED_ON, msgspec.json.encode(sorted(_digests(training) | read_record(folder))))


def _digests(part: Iterable[Sequence[Chunk]]) -> set[str]:
    return {digest_of(chunk) for near in part for chunk in near}


def _neighbourhoods(chunks: Sequence[Chunk]) -> Neighbourhoods:
    """A last one of less than half the size is part of the one before."""
    near = [list(several) for several in batched(chunks, NEIGHBOURS)]
    if len(near) > 1 and len(near[-1]) < NEIGHBOURS // 2:
        near[-2:] = [near[-2] + near[-1]]
    return near
