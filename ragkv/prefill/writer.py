"""The writer in use: an adapter folder in the data folder, with a card that describes it."""

import logging
import os
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from ragkv.errors import NotFound, RagKVError, Rejected
from ragkv.files_io import read_json, replace_file, write_json
from ragkv.models import ADAPTER, ADAPTER_CONFIG

log = logging.getLogger(__name__)

CARD = "card.json"
TRAINED_ON = "trained_on.json"
"""Digests of the chunks that a writer was trained on, where they were recorded."""
EMBEDDED_WRITER = Path(__file__).parent / "embedded_writer"
"""The adapter that comes with ragkv, for the embedded model."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A writer against the plain model on held-out text, nothing recomputed."""

    contexts: Annotated[int, "Number of held-out contexts."]
    kl: Annotated[float, "KL to full prefill over the writer's KV, nothing recomputed."]
    plain_kl: Annotated[float, "KL to full prefill over the plain model's KV, nothing recomputed."]
    kl_ratio_upper: Annotated[
        float, "Upper end of the 95% interval of the mean KL over the plain model's (bootstrap over contexts)."
    ]
    nll: Annotated[float, "NLL of the answers over the writer's KV."]
    plain_nll: Annotated[float, "NLL of the answers over the plain model's KV."]
    one_chunk_kl: Annotated[float, "KL of contexts of one chunk, where the plain model's KV is exact."]

    def objections(self) -> list[str]:
        """Reasons against using the writer; none if it passes."""
        checks = (
            (
                self.kl_ratio_upper < MAX_KL_RATIO,
                (
                    f"its KL is {self.kl:.3f}, the plain model's {self.plain_kl:.3f}: the upper end of their "
                    f"ratio's interval is {self.kl_ratio_upper:.2f}, and it must be below {MAX_KL_RATIO}"
                ),
            ),
            (self.nll <= self.plain_nll, f"the answers' NLL rises from {self.plain_nll:.3f} to {self.nll:.3f}"),
            (
                self.one_chunk_kl < MAX_ONE_CHUNK_KL,
                f"contexts of one chunk have a KL of {self.one_chunk_kl:.3f}, and it must be below {MAX_ONE_CHUNK_KL}",
            ),
        )
        return [objection for is_passed, objection in checks if not is_passed]


MAX_KL_RATIO = 0.8
MAX_ONE_CHUNK_KL = 0.05
SUFFICIENT_KL = 0.06
"""Below it nothing is recomputed by default (docs/DECISIONS.md, "Nothing is recomputed of what a good writer made" and
"Held-out text is what was not trained on")."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The making of an adapter and its evaluation."""

    model: Annotated[str, "Name of the model."]
    model_fingerprint: Annotated[str, "Fingerprint of the model's weights."]
    made_at: Annotated[datetime, "Time of the last save."]
    seed: Annotated[int, "Seed of the training."]
    rank: Annotated[int, "Rank of the LoRA."]
    samples: Annotated[int, "Number of contexts trained on."]
    seconds: Annotated[float, "Time of the training in seconds."]
    curve: Annotated[
        tuple[tuple[int, float], ...],
        "Number of contexts trained on and KL on validation contexts, at each validation.",
    ]
    data: Annotated[
        str,
        "Collection, or names of the files, that it was trained on; empty for a writer trained before this was "
        "recorded.",
    ] = ""
    strength: Annotated[float, "Share of the trained change to the weights that was kept."] = 1.0
    gate: Annotated[Gate | None, "Evaluation on held-out contexts; null before it was evaluated."] = None

    @property
    def suffices(self) -> bool:
        """Whether KV by this writer needs no recompute, by its evaluation."""
        return self.gate is not None and self.gate.kl < SUFFICIENT_KL

    def objections(self, model_fingerprint: str) -> list[str]:
        """Reasons against using the writer with a model; none if it fits, was evaluated and passed."""
        if self.model_fingerprint != model_fingerprint:
            return [
                f"the writer was trained for {self.model}, or for other weights of the same model: train one for the served model"
            ]
        if self.gate is None:
            return ["the writer has not been evaluated: run `ragkv writer eval`"]
        return self.gate.objections()


def read_card(folder: Path) -> Card:
    """The card of an adapter folder. Raises NotFound for a folder without one, Rejected for one that cannot be read."""
    card = read_json(folder / CARD, Card)
    if card is None:
        raise NotFound(f"{folder} holds no writer (no {CARD})")
    return card


def read_whole(folder: Path) -> Card:
    """The card of an adapter folder that holds the adapter too. Raises NotFound and Rejected as `read_card` does, and
    Rejected for a part of one."""
    card = read_card(folder)
    if missing := [name for name in (ADAPTER, ADAPTER_CONFIG) if not (folder / name).is_file()]:
        raise Rejected(f"{folder} holds an incomplete writer: it has no {' and no '.join(missing)}")
    return card


def is_for(folder: Path, model_fingerprint: str) -> bool:
    """Whether a folder's writer may be used with a model, as far as its card can be read. It is logged if not."""
    try:
        card = read_card(folder)
    except RagKVError:
        return True
    if card.model_fingerprint == model_fingerprint:
        return True
    log.warning(
        "the writer in use is for %s, not for the served model, and stays off: `ragkv writer remove`, or train one for "
        "this model",
        card.model,
    )
    return False


def suffices(folder: Path) -> bool:
    """Whether a folder holds a writer whose KV needs no recompute, as far as its card can be read."""
    try:
        return read_card(folder).suffices
    except RagKVError:
        return False


def write_card(folder: Path, card: Card) -> None:
    write_json(folder / CARD, card)


def install(source: Path, folder: Path, model_fingerprint: str) -> Card:
    """Put an adapter into use: a copy of its files takes the place of what `folder` holds, in one step.

    KV of the one before serves until the new one's is there. Raises Rejected for an adapter of another model, for one
    that was not evaluated or did not pass, and for a part of one.
    """
    card = read_whole(source)
    if objections := card.objections(model_fingerprint):
        raise Rejected("the writer was not put into use: " + "; ".join(objections))
    trained_on = [source / TRAINED_ON] if (source / TRAINED_ON).is_file() else []
    _replace(folder, [*(source / name for name in (ADAPTER, ADAPTER_CONFIG, CARD)), *trained_on])
    return card


def remove(folder: Path) -> bool:
    """Take the writer out of use: the folder stays, empty. Returns whether there was one. Its KV serves until the plain
    model's is there."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return False
    _replace(folder, [])
    return True


def _replace(folder: Path, files: Sequence[Path]) -> None:
    partial, replaced = (folder.with_name(f".{folder.name}.{os.getpid()}.{kind}") for kind in ("partial", "gone"))
    for leftover in (partial, replaced):  # of a killed process: in a container ids are the same at each start
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, partial / file.name)
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)


class _Written(msgspec.Struct, frozen=True):
    """Fingerprints of the writers that chunks were written with last, and before that; empty for the plain model."""

    last: str
    before: str | None = None


def note_written(folder: Path, writer: str) -> None:
    """Chunks are written with this writer from now on: `writer_before` will know when it changes. `folder`: of the
    writer in use; `writer`: its fingerprint."""
    written = _written(folder)
    if written is None or written.last != writer:
        replace_file(_state(folder), msgspec.json.encode(_Written(writer, written.last if written else None)))


def writer_before(folder: Path, writer: str) -> str | None:
    """Fingerprint of the writer that chunks were written with before this one; empty for the plain model, None for
    none."""
    written = _written(folder)
    if written is None:
        return None
    return written.before if written.last == writer else written.last


def _written(folder: Path) -> _Written | None:
    try:
        return msgspec.json.decode(_state(folder).read_bytes(), type=_Written)
    except (OSError, msgspec.DecodeError):
        return None


def _state(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.written.json")
