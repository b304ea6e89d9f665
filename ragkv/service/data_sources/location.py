"""Locations of data sources, with their files, and which of them the operator allows: tenants cannot use them to read
the server's other files."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from ragkv.errors import Forbidden, Rejected
from ragkv.service.base.file_store import Readable

FOLDER = "file"
STORES = ("s3", "gs", "az")
MAX_CHARS = 1000
MAX_DEPTH = 64
UNSETTLED = ""
"""The version of a file that may change again unseen: it is read at the next sync, too."""
AWAY = "away"
"""The version of a file that could not be read because something was away: no listing has it."""
MAX_KEY_BYTES = 1024
"""As in S3."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,254}")
_LIKE = "the location of a data source must be like /srv/documents or s3://bucket/prefix"
_PRINTABLE = f"{_LIKE}, of at most {MAX_CHARS:,} printable characters"


@dataclass(frozen=True, slots=True)
class Location:
    """A folder of this machine, or a prefix of an object store. `names`: the folders on the way, from the root."""

    scheme: str
    bucket: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        path = "/".join(self.names)
        return f"/{path}" if self.scheme == FOLDER else f"{self.scheme}://{self.bucket}/{path}".rstrip("/")

    @property
    def url(self) -> str:
        """The location for parsers of URLs: names are encoded once more, as `%2e%2e` would lead to the folder above."""
        return f"{self.scheme}://{self.bucket}/{'/'.join(quote(name, safe='') for name in self.names)}"

    def contains(self, other: "Location") -> bool:
        """Whether the other is this location or lies below it."""
        same_store = (self.scheme, self.bucket) == (other.scheme, other.bucket)
        return same_store and other.names[: len(self.names)] == self.names

    def of_file(self, key: str) -> str:
        """The place of one of its files, as people read it."""
        return f"{str(self).rstrip('/')}/{key}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """A location that the operator allows: everything below `root`, to one tenant by its name or to all (None)."""

    tenant: str | None
    root: Location


def location_of(text: str) -> Location:
    """Read a path, or a URL of one of `STORES` or with the scheme file.

    Raises Rejected for anything else, for credentials, and for names such as `..` that lead elsewhere.
    """
    if len(text) > MAX_CHARS or not text.isprintable():
        raise Rejected(_PRINTABLE)
    if text.startswith("/"):
        return Location(FOLDER, "", _names(text))
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise Rejected(_LIKE) from None
    if url.username is not None or url.password is not None:
        raise Rejected(
            "the location of a data source must not contain credentials: those in the service's settings are used"
        )
    if port is not None or url.query or url.fragment or (not url.netloc and url.scheme != FOLDER):
        raise Rejected(_LIKE)
    if url.scheme == FOLDER and not url.netloc:
        if not (path := unquote(url.path)).isprintable():
            raise Rejected(_PRINTABLE)
        return Location(FOLDER, "", _names(path))
    if url.scheme not in STORES or not _BUCKET.fullmatch(url.netloc):
        raise Rejected(f"{_LIKE} (or gs://, az://)")
    return Location(url.scheme, url.netloc, _names(url.path))


def allowed_locations(setting: str) -> list[Allowed]:
    """Read RAGKV_DATA_SOURCES_ALLOWED: locations between commas, those of one tenant as NAME=LOCATION. Raises
    Rejected."""
    allowed = []
    try:
        for entry in filter(None, (entry.strip() for entry in setting.split(","))):
            tenant, equals, location = entry.partition("=")
            if not equals or "/" in tenant:
                allowed.append(Allowed(None, location_of(entry)))
            else:
                allowed.append(Allowed(tenant.strip(), location_of(location.strip())))
    except Rejected as refusal:
        raise Rejected(f"RAGKV_DATA_SOURCES_ALLOWED: {refusal}") from None
    return allowed


def root_of(location: Location, tenant: str, allowed: Sequence[Allowed]) -> Location:
    """The allowed location that this one lies in. Raises Forbidden if the operator allows none to the tenant."""
    mine = (rule.root for rule in allowed if rule.tenant in (None, tenant))
    root = next((root for root in mine if root.contains(location)), None)
    if root is None:
        raise Forbidden(
            f"{location} is not among the locations that the service may read for this tenant: "
            "ask its operator to add it to RAGKV_DATA_SOURCES_ALLOWED"
        )
    return root


def _names(path: str) -> tuple[str, ...]:
    names = tuple(name for name in path.split("/") if name)
    if any(unquote(name).strip() in (".", "..") for name in names):
        raise Rejected("the location of a data source must not contain . or ..")
    if len(names) > MAX_DEPTH:
        raise Rejected(f"the location of a data source must not be more than {MAX_DEPTH} folders deep")
    return names


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file. `key`: its name below the location; `version` changes when the file does.

    refusal: why it cannot be read, whatever it contains.
    """

    key: str
    version: str
    num_bytes: int
    refusal: str | None = None


class SourceFiles(Protocol):
    """The files of a folder or of a prefix of an object store. Calls raise Unavailable while it is away."""

    @property
    def gap(self) -> str | None:
        """Why the last listing was not whole, though it ended; None if it was."""

    def listed(self) -> Iterator[ListedFile]:
        """All files but hidden ones, in any order."""

    def open(self, key: str) -> AbstractContextManager[Readable]:
        """A file's bytes. Raises NotFound if it is gone, Rejected, also while it is read, if it cannot be read."""

    def exists(self, key: str) -> bool:
        """Whether the file is still there."""


def is_hidden(name: str) -> bool:
    return name.startswith(".")
