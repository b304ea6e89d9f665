"""The KV of a question's passages, looked up once: on disk, or only in the object store."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ragkv.chunk import Chunk, Passage
from ragkv.errors import Unavailable
from ragkv.kv.key import KeyMaker, Making
from ragkv.kv.store import KVStore
from ragkv.observe.throttled_log import ThrottledLog

RemoteSizes = Callable[[Sequence[str]], Mapping[str, int]]
"""Bytes of those of these keys that the object store has. Raises Unavailable."""

log = ThrottledLog(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class LocatedPassage:
    """A passage with making and key of its KV: the best on disk or, without any, the one that is made now.

    offsets: tokens of the chunk that compressed KV is of; empty for KV of all tokens. absent: without KV on disk, all
    keys that would serve, the best first.
    """

    passage: Passage
    making: Making
    key: str
    offsets: tuple[int, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def chunk(self) -> Chunk:
        """The chunk as a prompt holds it: the tokens that have KV, or all where none is there."""
        return self.passage.chunk.shortened_to(self.offsets) if self.offsets else self.passage.chunk

    def serving(self, keys: Collection[str]) -> str | None:
        """The best of the passage's absent keys that is one of `keys`."""
        return next((key for key in self.absent if key in keys), None)


@dataclass(frozen=True, slots=True)
class LocatedKV:
    """The KV of a question's passages, and of the prefix. A file that goes after the look is recomputed by the engine,
    which counts it; one that comes is not used.

    remote: bytes of the absent keys that the object store has. promoted: keys of what has come from there since the
    look.
    """

    keys: KeyMaker
    prefix: str
    has_prefix: bool
    passages: tuple[LocatedPassage, ...]
    remote: Mapping[str, int]
    promoted: frozenset[str] = frozenset()

    @property
    def num_tokens(self) -> int:
        """Tokens of the passages, those without KV too."""
        return sum(located.passage.chunk.num_tokens for located in self.passages)

    @property
    def is_written(self) -> bool:
        """Whether the writer in use made all KV that is there, and of all tokens."""
        makings = {(located.making.writer, located.making.compression) for located in self.passages}
        return bool(self.keys.writer) and makings <= {(self.keys.writer, None)}

    @property
    def is_written_alone(self) -> bool:
        """Whether a writer wrote the one chunk: full prefill costs no more than repairing it."""
        return len(self.passages) == 1 and bool(self.passages[0].making.writer)

    @property
    def missing(self) -> frozenset[str]:
        """Keys of passages and prefix whose KV is not there."""
        keys = {located.key for located in self.passages if located.absent}
        return frozenset(keys if self.has_prefix else keys | {self.prefix})

    def whole(self) -> "LocatedKV":
        """The same for a prompt that leaves no token out."""
        return replace(self, passages=tuple(replace(located, offsets=()) for located in self.passages))

    def with_arrived(self, promoted: frozenset[str], computed: frozenset[str], store: KVStore) -> "LocatedKV":
        """The same with KV that is reported to have come to disk since: from the object store, or from the engine.
        Looks at nothing else."""
        keys = promoted | computed
        passages = tuple(
            _located(located.passage, self.keys, store) if located.serving(keys) else located
            for located in self.passages
        )
        return replace(self, passages=passages, has_prefix=self.has_prefix or self.prefix in keys, promoted=promoted)


def locate(
    passages: Sequence[Passage], keys: KeyMaker, store: KVStore, remote_sizes: RemoteSizes | None = None
) -> LocatedKV:
    """Look up the KV of these passages, and of the prefix. Reads no KV.

    remote_sizes: where there is an object store; the files that are on disk count as used now then. While it cannot
    tell, none of its KV is located.
    """
    located = tuple(_located(retrieved, keys, store) for retrieved in passages)
    prefix = keys.prefix()
    remote: Mapping[str, int] = {}
    if remote_sizes is not None:
        for key in (prefix, *(passage.key for passage in located)):
            store.touch(key)
        absent = [key for passage in located for key in passage.absent]
        try:
            remote = remote_sizes(absent) if absent else {}
        except Unavailable as error:
            log.warning("KV in the object store is recomputed: %s", error)
    return LocatedKV(keys, prefix, prefix in store, located, remote)


def _located(passage: Passage, keys: KeyMaker, store: KVStore) -> LocatedPassage:
    absent: list[str] = []
    for making in keys.makings:
        key = keys.chunk(passage.chunk.token_ids, making)
        if key in store:
            if making.compression is None:
                return LocatedPassage(passage, making, key)
            offsets = store.kept(key)
            if offsets and offsets[-1] < passage.chunk.num_tokens:
                return LocatedPassage(passage, making, key, offsets)
        absent.append(key)
    return LocatedPassage(passage, keys.makings[0], absent[0], absent=tuple(absent))
