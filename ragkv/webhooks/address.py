"""Addresses that webhooks may be sent to: tenants cannot use them to reach the service's own network (SSRF)."""

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from ragkv.errors import Rejected

MAX_CHARS = 2000
PORTS = {"http": 80, "https": 443}
_ASK = "ask the service's operator to name the host in RAGKV_WEBHOOK_HOSTS"

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """Address of a webhook: its URL in parts."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def netloc(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def target_of(url: str, trusted: frozenset[str]) -> Target:
    """The URL's parts. `trusted` hosts may be reached by plain HTTP and at private addresses.

    Raises Rejected for any other URL than https, for credentials in it, and for an address that is not public.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
        host = (parts.hostname or "").encode("idna").decode() if parts.hostname else ""
    except (ValueError, UnicodeError):
        raise Rejected("the URL of a webhook must be like https://example.com/hook") from None
    if len(url) > MAX_CHARS or not url.isascii() or not url.isprintable() or " " in url:
        raise Rejected(f"the URL of a webhook must be at most {MAX_CHARS:,} ASCII characters without spaces")
    if not host or parts.scheme not in PORTS or parts.username is not None or parts.fragment:
        raise Rejected("the URL of a webhook must be like https://example.com/hook, without a user name or fragment")
    if parts.scheme != "https" and host not in trusted:
        raise Rejected(f"the URL of a webhook must begin with https:// (or {_ASK})")
    if host not in trusted and (address := _literal(host)) is not None:
        refuse_private(address)
    path = parts.path or "/"
    return Target(parts.scheme, host, port, f"{path}?{parts.query}" if parts.query else path)


async def resolve(target: Target, trusted: frozenset[str], lookups: Executor) -> str:
    """An address to connect to: the one that was checked, so that a name cannot point elsewhere a moment later. The
    name is looked up in a thread of `lookups`, for as long as its servers take.

    Raises Rejected if any address of the host is private, OSError if there is none.
    """
    loop = asyncio.get_running_loop()
    asked = partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(lookups, asked)
    addresses = [str(place[0]).partition("%")[0] for *_, place in found]
    if target.host not in trusted:
        for address in addresses:
            refuse_private(ipaddress.ip_address(address))
    return addresses[0]


def refuse_private(address: IPAddress) -> None:
    """Check an address that a webhook would reach. Raises Rejected for an address that is not on the public
    internet."""
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if not address.is_global or address.is_multicast or (mapped is not None and not mapped.is_global):
        raise Rejected(f"webhooks are not sent to private addresses: {_ASK}")
    if any(address in network for network in _TRANSLATED):
        raise Rejected(f"webhooks are not sent to translated addresses: {_ASK}")
    if address in _SITE_LOCAL:
        raise Rejected(f"webhooks are not sent to private addresses: {_ASK}")


_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
"""IPv6 addresses that a gateway turns into IPv4 ones, private ones too (NAT64, RFC 6052 and 8215), or that hold one
(RFC 4291)."""
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
"""Given up by RFC 3879, and global to some versions of Python."""


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
