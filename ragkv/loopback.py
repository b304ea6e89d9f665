"""Loopback addresses: the only ones that may be reached over plain HTTP."""

import ipaddress
from urllib.parse import urlsplit


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
