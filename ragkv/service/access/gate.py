"""Authentication: on this machine, no key is needed until the first one is created; from then on, by key."""

from ragkv.errors import Unauthorised
from ragkv.service.access.rate import RateLimit
from ragkv.service.access.sessions import Holder
from ragkv.service.access.sign_in import Rights
from ragkv.service.base.caller import KEY_SCOPES, Caller
from ragkv.service.base.database import Database
from ragkv.service.keys.keys import any_key, authenticate, is_like_a_key, recognise

NO_KEY = "an API key is needed: send it as `Authorization: Bearer rk_...`; `ragkv keys create --name NAME` creates one"


class Gate:
    """Turns keys into callers.

    Without a key the caller is `owner_id`, the default tenant, with every scope: only if `open_without_keys`, which a
    service that other machines can reach must not be, and only until the first key is made. Until then clients may
    send any placeholder; a value that looks like a key is authenticated all the same.
    """

    def __init__(
        self,
        database: Database,
        limit: RateLimit,
        owner_id: str,
        *,
        open_without_keys: bool,
        tenant_limit: RateLimit | None = None,
        rights: Rights | None = None,
    ) -> None:
        """`rights`: those of people who signed in, where they can."""
        self._database = database
        self._limit = limit
        self._tenant_limit = tenant_limit
        self._rights = rights
        self._owner = Caller(owner_id, None, frozenset(KEY_SCOPES))
        self._may_be_open = open_without_keys

    def admit(self, key: str | None) -> Caller:
        """Authenticate a request and count it against its key's limits. Raises Unauthorised, Throttled, or Unavailable
        when the database is away."""
        if key is not None and (is_like_a_key(key) or not self.is_open()):
            return self.log_in(key)
        if key is None and not self.is_open():
            raise Unauthorised(NO_KEY)
        return self._owner

    def log_in(self, key: str) -> Caller:
        """The caller of a key, whether or not one is needed now. Counts and raises like `admit`."""
        return self._counted(authenticate(key, self._database))

    def readmit(self, holder: Holder) -> Caller:
        """The caller of a session, whose holder may have lost their rights since. Raises like `admit`."""
        return self._counted(self.recall(holder))

    def recall(self, holder: Holder) -> Caller:
        """The caller of a session. Counts no request. Raises Unauthorised, Unavailable."""
        if isinstance(holder, str):
            return recognise(holder, self._database)
        if self._rights is None:
            raise Unauthorised("sign-in was switched off: log in with an API key")
        return self._rights.caller_of(holder)

    def confirm(self, caller: Caller) -> None:
        """Check again that a caller is admitted. Raises Unauthorised once the caller would not be admitted any longer.
        Counts no request."""
        if caller.key_id is not None:
            recognise(caller.key_id, self._database)
        elif not self.is_open():
            raise Unauthorised(NO_KEY)

    def is_open(self) -> bool:
        """Whether requests need no key now."""
        self._may_be_open = self._may_be_open and not any_key(self._database)
        return self._may_be_open

    def _counted(self, caller: Caller) -> Caller:
        assert caller.identity is not None
        self._limit.take(caller.identity)
        if self._tenant_limit is not None:
            self._tenant_limit.take(f"tenant:{caller.tenant_id}")
        return caller
