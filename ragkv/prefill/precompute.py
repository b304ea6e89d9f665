"""KV files for a document's chunks: existing ones are kept, missing ones computed by the engine in batches."""

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragkv.answer.prompt import PromptBuilder
from ragkv.chunk import Chunk
from ragkv.engine.protocol import Batch, KVEngine, Prefill
from ragkv.kv.format import KVFormat
from ragkv.kv.key import KeyMaker, Making
from ragkv.kv.store import KVStore
from ragkv.stitch.compression import CUE, METHODS

TokenProgress = Callable[[int, int], None]
BATCH_TOKENS = 4096
"""Tokens of chunks that are computed and committed together, at most."""


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
        cue_ids = self._prompts.question_ids(CUE) if looks_ahead else ()
        self._run(self._engine.prefill(Prefill.of(batch, keys, cue_ids)))


@dataclass(frozen=True, slots=True)
class KVEntry:
    """One KV file: its key, the chunk's tokens, the file's bytes."""

    key: str
    tokens: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Precomputed:
    """The result of a run. vanished: keys whose files were there, or were made, and went meanwhile. `is_whole`: no
    chunk was left out."""

    entries: tuple[KVEntry, ...]
    vanished: frozenset[str]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a run.

    progress(done, total): chunk tokens, after every batch. kept: what the batch left in the store, and the seconds that
    computing it took, None if it was quantised or computed for a question. Either may raise: what is in the store stays
    there, and the next run goes on from it. has_room: for so many tokens; where there is none for a batch, its half is
    tried, and the rest is left out. elsewhere: bytes of those among the keys that the object store has: their files may
    go from this disk to make room.
    """

    progress: TokenProgress = lambda done, total: None
    kept: Callable[[Sequence[KVEntry], float | None], None] = lambda entries, seconds: None
    has_room: Callable[[int], bool] = lambda tokens: True
    elsewhere: Callable[[Sequence[str]], Mapping[str, int]] = lambda keys: {}


_NO_HOOKS = Hooks()


def precompute(
    chunks: Sequence[Chunk],
    keys: KeyMaker,
    prefiller: Callable[[], KVMaker],
    store: KVStore,
    batch_tokens: Callable[[], int] = lambda: BATCH_TOKENS,
    hooks: Hooks = _NO_HOOKS,
) -> Precomputed:
    """Make sure that every chunk and the prefix have a KV file, or a chunk's KV a copy elsewhere, in the format and of
    the tokens of the keys: quantised from one in bf16 if there is one, computed otherwise.

    `prefiller` is called only if something must be computed. batch_tokens: asked before each batch.
    """
    named = {keys.chunk(chunk.token_ids): chunk for chunk in chunks}
    absent = [key for key in named if key not in store]
    copied = hooks.elsewhere(absent)
    todo = {key: named[key] for key in absent if key not in copied}
    total = _tokens(named.items())
    done = total - _tokens(todo.items())

    def stored(batch: Batch, seconds: float | None = None) -> None:
        nonlocal done
        hooks.kept([KVEntry(key, chunk.num_tokens, store.bytes_of(key)) for key, chunk in batch], seconds)
        for key, _ in batch:
            del todo[key]
        done += _tokens(batch)
        hooks.progress(done, total)

    hooks.progress(done, total)
    for entry in _quantised(todo, keys, store, hooks.has_room):
        stored([entry])
    if not todo and keys.prefix_ids and keys.prefix() not in store:
        prefiller().prefill([], keys)
    most_tokens, batches, is_room = 0, list[Batch](), True
    while todo and is_room:
        if (tokens := batch_tokens()) != most_tokens:
            most_tokens, batches = tokens, list(_batches(todo, len(keys.prefix_ids), tokens))
        batch = batches.pop(0)
        if asked_for := [(key, chunk) for key, chunk in batch if key in store]:
            stored(asked_for)
        batch = fitting = [(key, chunk) for key, chunk in batch if key in todo]
        while fitting and not hooks.has_room(_tokens(fitting)):  # a tenant's share may be less than a batch
            fitting = fitting[: len(fitting) // 2]
        if fitting:
            began_s = time.monotonic()
            prefiller().prefill(fitting, keys)
            stored(fitting, time.monotonic() - began_s)
        is_room = len(fitting) == len(batch)
    here = {key: size for key in named if (size := store.bytes_of(key))}
    # Asked after the look at the files: one that went to make room has a copy.
    sizes = {**here, **hooks.elsewhere([key for key in named if key not in here])}
    entries = tuple(KVEntry(key, chunk.num_tokens, sizes[key]) for key, chunk in named.items() if key in sizes)
    vanished = frozenset(named.keys() - sizes.keys() - todo.keys())
    return Precomputed(entries, vanished, is_whole=len(entries) == len(named))


def _tokens(batch: Iterable[tuple[str, Chunk]]) -> int:
    return sum(chunk.num_tokens for _, chunk in batch)


def _quantised(
    todo: dict[str, Chunk], keys: KeyMaker, store: KVStore, has_room: Callable[[int], bool]
) -> Iterator[tuple[str, Chunk]]:
    """Store in another format what the store has as the model computed it."""
    if keys.kv_format is KVFormat.BF16 or keys.prefix() not in store:
        return
    for key, chunk in tuple(todo.items()):
        if not has_room(chunk.num_tokens):
            return
        plain = Making(keys.writer, compression=keys.compression)
        if store.convert(keys.chunk(chunk.token_ids, plain), key, keys.kv_format):
            yield key, chunk


def _batches(todo: dict[str, Chunk], prefix_tokens: int, batch_tokens: int) -> Iterator[list[tuple[str, Chunk]]]:
    """Chunks of similar length together, each batch at most `batch_tokens` with prefix and padding."""
    batch: list[tuple[str, Chunk]] = []
    for key, chunk in sorted(todo.items(), key=lambda item: item[1].num_tokens):
        if batch and (len(batch) + 1) * (prefix_tokens + chunk.num_tokens) > batch_tokens:
            yield batch
            batch = []
        batch.append((key, chunk))
    if batch:
        yield batch
