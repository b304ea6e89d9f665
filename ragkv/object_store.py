"""Object stores by URL, opened with credentials from the settings: for KV files and for the files of data sources."""

import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from ragkv.errors import Rejected

log = logging.getLogger(__name__)

CONNECT = timedelta(seconds=3)
TIMEOUT = timedelta(seconds=60)
"""For the whole of one object."""
SILENCE = timedelta(seconds=15)
"""For the store's next word. Counted from the beginning of a request: one that uploads for longer needs more."""
RETRIES = 2
_STATUS = re.compile(r"status code: (\d+)")
"""Listings fail with one kind of error, whatever its cause."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Location of the objects. Credentials that are None come from the provider's usual variables."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None


def opened(place: StoreLocation, silence: timedelta = SILENCE) -> Any:
    """The store at the URL's prefix. Raises Rejected for a URL that names none. Nothing is sent yet."""
    scheme = urlsplit(place.url).scheme
    credentials: dict[str, Any] = {
        "endpoint": place.endpoint,
        "region": place.region,
        "access_key_id": place.access_key,
        "secret_access_key": place.secret_key,
    }
    try:
        if scheme == "file":
            return LocalStore.from_url(place.url, mkdir=True)
        if scheme == "memory":
            raise Rejected("memory:// keeps nothing: name a bucket or a folder")
        options: dict[str, Any] = {
            "config": {name: value for name, value in credentials.items() if value is not None},
            "client_options": {
                "allow_http": (place.endpoint or "").startswith("http://"),
                "connect_timeout": CONNECT,
                "timeout": TIMEOUT,
                "read_timeout": silence,
            },
            "retry_config": {"max_retries": RETRIES, "retry_timeout": silence},
        }
        return from_url(place.url, **options)
    except (BaseError, ValueError, OSError) as error:
        raise Rejected(first_line(error)) from None


def told_of(error: Exception) -> str:
    """An error of a store for clients. Its own words name hosts and buckets: they are logged."""
    log.warning("object store: %s", first_line(error))
    answer = _STATUS.search(first_line(error))
    status = answer.group(1) if answer else ""
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        return "the object store refuses the service's credentials: ask the service's operator to fix them"
    if status == "404":
        return "the object store has no such bucket: check its name"
    return "the object store does not respond properly: try again later, or see the service's log"


def first_line(error: Exception) -> str:
    """The reason in an error of a store. What follows are details of the request."""
    return str(error).partition("\n")[0][:300]
