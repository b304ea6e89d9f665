"""Dashboard sessions: a random token stands for the API key that was used to log in, or for the person who signed
in."""

import hashlib
import hmac
import secrets

import msgspec

from ragkv.service.base.caller import Person
from ragkv.service.base.redis import Redis, reporting

_PREFIX = "ragkv:session:"
LIFETIME_S = 12 * 60 * 60
TOKEN_CHARS = 64
"""256 random bits in hexadecimal digits."""


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """A person, the groups that they were in when they signed in, and the tenant they work in.

    id_token: which the provider wants to see again when they sign out.
    """

    person: Person
    groups: tuple[str, ...]
    tenant_id: str
    id_token: str | None = None


Holder = str | SignedIn
"""Who holds a session: an API key, by its id, or a person."""


class Sessions:
    """Kept in Redis: the SHA-256 of a token -> its holder. Each raises Unavailable when Redis is away.

    A session says only who it began with. What they may do is asked at each request.
    """

    def __init__(self, client: Redis) -> None:
        self._client = client

    def begin(self, holder: Holder, lifetime_s: int = LIFETIME_S) -> str:
        """The token of a new session. It ends after its lifetime, or with `end`."""
        token = secrets.token_hex(TOKEN_CHARS // 2)
        with reporting(self._client):
            self._client.set(_place(token), _encoded(holder), ex=lifetime_s)
        return token

    def holder(self, token: str) -> Holder | None:
        """The holder of a session; None once it has ended."""
        if len(token) != TOKEN_CHARS:
            return None
        with reporting(self._client):
            encoded = self._client.get(_place(token))
        if not isinstance(encoded, bytes):
            return None
        return msgspec.json.decode(encoded, type=SignedIn) if encoded.startswith(b"{") else encoded.decode()

    def change(self, token: str, holder: Holder) -> None:
        """Another holder for a session that has not ended, which ends no later for it."""
        with reporting(self._client):
            self._client.set(_place(token), _encoded(holder), xx=True, keepttl=True)

    def end(self, token: str) -> None:
        with reporting(self._client):
            self._client.delete(_place(token))

    def end_all(self) -> None:
        with reporting(self._client):
            for place in self._client.scan_iter(f"{_PREFIX}*", count=1000):
                self._client.delete(place)


def csrf_token(token: str, holder: Holder) -> str:
    """The CSRF token of a session: known to its pages, not to those of another site, nor to pages of the tenant that
    its person worked in before."""
    tenant_id = holder.tenant_id if isinstance(holder, SignedIn) else ""
    return hmac.new(token.encode(), f"csrf{tenant_id}".encode(), hashlib.sha256).hexdigest()


def _encoded(holder: Holder) -> bytes:
    """The id of a key as it is, a person as a JSON object, so that no id is taken for one."""
    return holder.encode() if isinstance(holder, str) else msgspec.json.encode(holder)


def _place(token: str) -> str:
    return f"{_PREFIX}{hashlib.sha256(token.encode()).hexdigest()}"
