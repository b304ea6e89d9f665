"""The writers that an administrator can choose from, and the one in use."""

from pathlib import Path
from typing import Annotated

import msgspec

from ragkv.errors import Forbidden, NotFound, RagKVError
from ragkv.prefill.writer import EMBEDDED_WRITER, Card, install, read_card, remove
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.parts import Parts
from ragkv.settings import Settings

EMBEDDED = "embedded"
"""The name of the writer that comes with ragkv, for the embedded model."""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A writer that may be used if there are no objections."""

    name: Annotated[str, "Name of the writer."]
    card: Annotated[Card, "Card of the writer: its training and its evaluation."]
    objections: Annotated[tuple[str, ...], "Reasons against using it with the served model; empty if there is none."]


class Writers(msgspec.Struct, frozen=True, kw_only=True):
    """The writer in use and those that may be used."""

    in_use: Annotated[
        Card | None, "Card of the writer in use, after the restart if `restart_needed`; null for the plain model."
    ]
    fingerprint: Annotated[
        str, "Fingerprint of the adapter that chunks are prefilled with now; empty for the plain model."
    ]
    restart_needed: Annotated[bool, "Whether the service has to be restarted for `in_use` to take effect."]
    available: Annotated[tuple[Writer, ...], "Available writers; only those without objections can be used."]


def writers(tenant_id: str, parts: Parts) -> Writers:
    """The writer in use and those in the folder `writers` of the data folder. Raises Forbidden: see `_check`."""
    _check(tenant_id, parts.default_collection)
    in_use = _card(parts.settings.writer_dir)
    if in_use and in_use.model_fingerprint != parts.model_fingerprint:
        in_use = None
    present = parts.fingerprints.adapter(parts.settings.writer_dir) if in_use else ""
    return Writers(
        in_use=in_use,
        fingerprint=parts.writer_fingerprint,
        restart_needed=present != parts.writer_fingerprint,
        available=tuple(
            Writer(name=name, card=card, objections=tuple(card.objections(parts.model_fingerprint)))
            for name, folder in _folders(parts.settings).items()
            if (card := _card(folder))
        ),
    )


def use_writer(tenant_id: str, name: str, parts: Parts) -> Writers:
    """Put a writer into use from the next start on. Raises NotFound for an unknown name, Rejected for objections."""
    _check(tenant_id, parts.default_collection)
    if (folder := _folders(parts.settings).get(name)) is None:
        raise NotFound(f"there is no writer {name}: its folder would be {parts.settings.writers_dir / name}")
    install(folder, parts.settings.writer_dir, parts.model_fingerprint)
    return writers(tenant_id, parts)


def stop_writer(tenant_id: str, parts: Parts) -> Writers:
    """Use the plain model from the next start on."""
    _check(tenant_id, parts.default_collection)
    remove(parts.settings.writer_dir)
    return writers(tenant_id, parts)


def _folders(settings: Settings) -> dict[str, Path]:
    """Folders that may hold a writer, by name: those in `writers` of the data folder, and the one that comes with
    ragkv."""
    trained = settings.writers_dir
    folders = sorted(trained.iterdir()) if trained.is_dir() else ()
    return {EMBEDDED: EMBEDDED_WRITER, **{folder.name: folder for folder in folders if folder.is_dir()}}


def _check(tenant_id: str, default_collection: CollectionRef) -> None:
    """All tenants' chunks are written by one model: its choice is the default tenant's."""
    if tenant_id != default_collection.tenant_id:
        raise Forbidden("the writer serves all tenants: only keys of the default tenant may see and change it")


def _card(folder: Path) -> Card | None:
    try:
        return read_card(folder)
    except RagKVError:
        return None
