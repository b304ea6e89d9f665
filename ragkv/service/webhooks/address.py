"""Addresses that webhooks may be sent to: tenants cannot use them to reach the service's own network (SSRF)."""

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor
from contextlib import suppress
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

    Raises Rejected for any other URL than https, for credentials in it, and for an address or a name that is not
    public.
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
    if host not in trusted:
        parent, _, last = host.rstrip(".").lower().rpartition(".")
        if (address := _literal(host)) is not None:
            refuse_private(address)
        elif not parent or last in _NAMES_INSIDE:
            raise Rejected(f"webhooks are not sent to hosts of private networks: {_ASK}")
    path = parts.path or "/"
    return Target(parts.scheme, host, port, f"{path}?{parts.query}" if parts.query else path)


async def resolve(target: Target, trusted: frozenset[str], lookups: Executor) -> str:
    """An address to connect to: the one that was checked, so that a name cannot point elsewhere a moment later. The
    name is looked up in a thread of `lookups`, for as long as its servers take.

    Raises Rejected if any address of the host is private, OSError if there is none.
    """
    loop = asyncio.get_running_loop()
    lookup = partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
    results = await loop.run_in_executor(lookups, lookup)
    addresses = [str(place[0]).partition("%")[0] for *_, place in results]
    if target.host not in trusted:
        for address in addresses:
            refuse_private(ipaddress.ip_address(address))
    return addresses[0]


def refuse_private(address: IPAddress) -> None:
    """Check an address that a webhook would reach. Raises Rejected for one that is not on the public internet, or that
    a gateway or tunnel turns into the IPv4 address in it."""
    if not address.is_global or address.is_multicast:
        raise Rejected(f"webhooks are not sent to private addresses: {_ASK}")
    if isinstance(address, ipaddress.IPv6Address):
        interface = int(address) >> 32 & 0xFFFFFFFF
        embeds_ipv4 = any(address in network for network in _TUNNELS) or interface & ~_FLAGS == _ISATAP
        if address not in _GLOBAL_UNICAST or embeds_ipv4:
            raise Rejected(f"webhooks are not sent to private or translated addresses: {_ASK}")


_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses of the internet (RFC 4291). All others are special: IPv4-compatible (::/96), IPv4-mapped
(::ffff:0:0/96), IPv4-translated (::ffff:0:0:0/96), NAT64 (64:ff9b::/96, 64:ff9b:1::/48), site-local (fec0::/10)."""
_TUNNELS = tuple(map(ipaddress.ip_network, ("2001::/32", "2002::/16")))
"""Addresses that hold an IPv4 one in their prefix: Teredo (RFC 4380), 6to4 (RFC 3056)."""
_ISATAP = 0x5EFE
"""Begins the second half of addresses that hold an IPv4 one at their end (RFC 5214)."""
_FLAGS = 0x03000000
"""Bits of that half which say how unique it is."""
_NAMES_INSIDE = frozenset({"localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "arpa"})
"""Last parts of names that lead to no host on the internet (RFC 6761, 6762, 8375)."""


def _literal(host: str) -> IPAddress | None:
    """The address that a host is, also in the forms that the system's resolver takes: 127.1, 0x7f000001."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        with suppress(OSError):
            return ipaddress.IPv4Address(socket.inet_aton(host))
        return None
