"""URLs: those that are private on their way, and without their secrets."""

import ipaddress
import re
from urllib.parse import urlsplit

_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&#]*", re.IGNORECASE)

HIDDEN = "hidden"


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, leads back to this machine. Other names are not looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_private_transport(url: str) -> bool:
    """Whether requests to a URL are unreadable on the way: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def without_secrets(text: str) -> str:
    """A URL without its password and without the values of parameters that may be secret; other text as it is."""
    try:
        url = urlsplit(text)
    except ValueError:
        return text
    if "://" not in text:
        return text
    user, at, place = url.netloc.rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        url = url._replace(netloc=f"{name}:{HIDDEN}@{place}" if colon else f"{HIDDEN}@{place}")
    return _SECRET_PARAMETER.sub(rf"\1{HIDDEN}", url.geturl())
