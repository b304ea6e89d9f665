"""The writer in use: an adapter folder under the data folder, with a card that says what it is."""

import os
import shutil
from datetime import datetime
from pathlib import Path

import msgspec

from ragkv.disk import replace_file
from ragkv.errors import NotFound, Rejected
from ragkv.fingerprint import Fingerprints

ADAPTER = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
CARD = "card.json"
EMBEDDED_WRITER = Path(__file__).parent / "embedded_writer"
"""The adapter that comes with ragkv, for the embedded model."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A writer against the plain model on held-out text, nothing recomputed.

    `kl_ratio_upper`: upper end of the 95% interval of mean KL over the plain model's (bootstrap over contexts).
    `one_chunk_kl`: of contexts of one chunk, where the plain model's KV is exact.
    """

    contexts: int
    kl: float
    plain_kl: float
    kl_ratio_upper: float
    nll: float
    plain_nll: float
    one_chunk_kl: float

    def objections(self) -> list[str]:
        """Reasons against using the writer; none if it passes."""
        return [
            reason
            for is_so, reason in (
                (
                    not self.kl_ratio_upper < MAX_KL_RATIO,
                    (
                        f"KL is {self.kl:.3f} against {self.plain_kl:.3f}: the upper end of its share is {self.kl_ratio_upper:.2f}, "
                        f"it must be below {MAX_KL_RATIO}"
                    ),
                ),
                (not self.nll <= self.plain_nll, f"the answers' NLL rises from {self.plain_nll:.3f} to {self.nll:.3f}"),
                (
                    not self.one_chunk_kl < MAX_ONE_CHUNK_KL,
                    f"one chunk alone has a KL of {self.one_chunk_kl:.3f}, it must be below {MAX_ONE_CHUNK_KL}",
                ),
            )
            if is_so
        ]


MAX_KL_RATIO = 0.8
MAX_ONE_CHUNK_KL = 0.05


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The making of an adapter and its evaluation. `curve`: (samples, KL on validation contexts)."""

    model: str
    model_fingerprint: str
    made_at: datetime
    seed: int
    rank: int
    samples: int
    seconds: float
    curve: tuple[tuple[int, float], ...]
    gate: Gate | None = None

    def objections(self, model_fingerprint: str) -> list[str]:
        """Reasons against using the writer with a model; none if it fits, was evaluated and passed."""
        if self.model_fingerprint != model_fingerprint:
            return [f"the writer is for {self.model}, or for other weights of it: train one for the served model"]
        if self.gate is None:
            return ["the writer has not been evaluated: ragkv writer eval"]
        return self.gate.objections()


def read_card(folder: Path) -> Card:
    """The card of an adapter folder. Raises NotFound for a folder without one, Rejected for one that cannot be read."""
    try:
        content = (folder / CARD).read_bytes()
    except OSError:
        raise NotFound(f"{folder} holds no writer (no {CARD})") from None
    try:
        return msgspec.json.decode(content, type=Card)
    except msgspec.DecodeError as error:
        raise Rejected(f"{folder / CARD}: {error}") from None


def write_card(folder: Path, card: Card) -> None:
    replace_file(folder / CARD, msgspec.json.format(msgspec.json.encode(card)))


def install(source: Path, folder: Path, model_fingerprint: str) -> Card:
    """Put an adapter into use: a copy of its files takes the place of what `folder` holds, in one step.

    KV of the one before serves until the new one's is there. Raises Rejected for an adapter of another model, and for
    one that was not evaluated or did not pass.
    """
    card = read_card(source)
    if objections := card.objections(model_fingerprint):
        raise Rejected("the writer stays off: " + "; ".join(objections))
    partial, gone = (folder.with_name(f".{folder.name}.{os.getpid()}.{kind}") for kind in ("partial", "gone"))
    partial.mkdir(parents=True)
    for name in (ADAPTER, CONFIG, CARD):
        shutil.copyfile(source / name, partial / name)
    _remember(folder)
    if folder.exists():
        folder.rename(gone)
    partial.rename(folder)
    shutil.rmtree(gone, ignore_errors=True)
    return card


def remove(folder: Path) -> bool:
    """Take the writer out of use. Returns whether there was one. Its KV serves until the plain model's is there."""
    if not folder.is_dir():
        return False
    gone = folder.with_name(f".{folder.name}.{os.getpid()}.gone")
    _remember(folder)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True


def read_before(folder: Path) -> str | None:
    """Fingerprint of the writer that was in use before the one in `folder`; empty for none, None if it never changed."""
    try:
        return _before(folder).read_text()
    except OSError:
        return None


def _remember(folder: Path) -> None:
    """Before it changes: what is in use, as `read_before` shall say."""
    _before(folder).write_text(Fingerprints().adapter(folder))


def _before(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.before")
