"""Fingerprints over the exact bytes of a model, so that data made with different models is never mixed.

A folder is read once, at the speed of the disk (xxh3, 128 bits: an accident-proof checksum). What was found is kept
with each file's size, times and inode: the change time cannot be set back, so that a file changed in place is read
again.
"""

import hashlib
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import xxhash

from ragkv.disk import replace_file
from ragkv.errors import Rejected
from ragkv.writer import STAND_INS

_WEIGHTS = (("*.safetensors",), ("*.bin", "*.pt", "*.pth"), ("*.gguf",))
"""Forms of weights, as loaders prefer them: those of the first form that is there are read."""
_TOKENIZER = ("tokenizer*", "*token*.json", "vocab.*", "merges.txt", "*.model", "spiece*", "chat_template*")
FINGERPRINTS = "fingerprints.json"
"""The file, in the data folder, that keeps what was found."""
_SETTLED_NS = 2_000_000_000
"""A file that changed less than this ago may change again without another time."""

_State = tuple[int, int, int, int]


class Fingerprints:
    """Fingerprints of model folders, kept in a file between starts.
    One that cannot be read or written is done without."""

    def __init__(self, kept_in: Path | None = None) -> None:
        self._path = kept_in
        self._kept: dict[str, tuple[_State, str]] = {}
        if kept_in is not None:
            with suppress(OSError, msgspec.DecodeError):
                self._kept = msgspec.json.decode(kept_in.read_bytes(), type=dict[str, tuple[_State, str]])

    def weights(self, folder: Path) -> str:
        """The weights, in whatever form, and the configuration. Raises Rejected for a folder without weights."""
        forms = (_found(folder, patterns) for patterns in _WEIGHTS)
        weights = next((paths for paths in forms if paths), None)
        if weights is None:
            raise Rejected(f"{folder} holds no weights (*.safetensors): it is not a model folder")
        return self._of(folder, [*weights, folder / "config.json"])

    def tokenizer(self, folder: Path) -> str:
        """The files of the tokenizer, its chat template among them."""
        return self._of(folder, _found(folder, _TOKENIZER))

    def adapter(self, folder: Path) -> str:
        """An adapter's weights, configuration and stand-ins; empty for a folder without one."""
        files = _found(folder, ("adapter_*", STAND_INS))
        return self._of(folder, files) if files else ""

    def encoder(self, folder: Path) -> str:
        """Everything that a sentence encoder's vectors depend on: weights, tokenizer and how they are pooled."""
        modules = _found(folder, ("*.json", "*/config.json", "*/*.safetensors", "*/pytorch_model.bin"))
        return self._of(folder, sorted({*modules, *_found(folder, _TOKENIZER)}), self.weights(folder))

    def _of(self, folder: Path, paths: Iterable[Path], *more: str) -> str:
        digest = xxhash.xxh3_128()
        for path in paths:
            digest.update(f"{path.relative_to(folder)} {self._file(path)} ".encode())
        for value in more:
            digest.update(value.encode())
        return digest.hexdigest()

    def _file(self, path: Path) -> str:
        name, state = str(path.absolute()), _state(path)
        stored = self._kept.get(name)
        if stored is not None and stored[0] == state:
            return stored[1]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
        if state == _state(path) and time.time_ns() - max(state[1:3]) > _SETTLED_NS:
            self._kept[name] = (state, digest)
            if self._path is not None:
                with suppress(OSError):
                    replace_file(self._path, msgspec.json.encode(self._kept))
        return digest


def _found(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def _state(path: Path) -> _State:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino
