"""All errors, as a tree by what the caller can do about them.

RagKVError
  Unauthorised    401   no API key, or one that is wrong, expired or revoked: send another
  Forbidden       403   the API key does not allow this: ask for one that does
  NotFound        404   no such document, collection or passage
  Conflict        409   the state does not allow it now
  Rejected        422   the input will never do: say what to change
    TooLarge      413   too many bytes, characters, tokens or parts, or too much work to read
      QuotaExceeded 413 more than a tenant may have
    Unsupported   415   a file type, a kind of body or a model that is not supported, with the reason
  Throttled       429   too many requests of a key, a tenant or an address: wait
  Unavailable     503   engine, index, broker or database is away: retry
    OutOfSpace    507   the disk is nearly full: make room, then retry
  Corrupt         -     a stored block is not what its key says: recompute, never leaves the service
"""


class RagKVError(Exception):
    """Base of the tree. The message is shown to users: it says what to do."""


class Unauthorised(RagKVError):
    """It is not known who asks."""


class Forbidden(RagKVError):
    """It is known who asks, and they may not."""


class NotFound(RagKVError):
    """There is no such thing, or it belongs to someone else."""


class Conflict(RagKVError):
    """The thing is not in a state that allows this now."""


class Rejected(RagKVError):
    """The input cannot be accepted as it is."""


class TooLarge(Rejected):
    """More bytes, characters, tokens, parts or work than ragkv or the settings allow."""


class QuotaExceeded(TooLarge):
    """More bytes or documents than a tenant may have: the same input is accepted once others are deleted."""


class Unsupported(Rejected):
    """A file type, a kind of body or a model that ragkv does not support."""


class Throttled(RagKVError):
    """Too many requests of a key, a tenant or an address, or too many at once. The same call succeeds in
    `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float = 60.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(RagKVError):
    """Something ragkv depends on is away; the same call may succeed in `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutOfSpace(Unavailable):
    """The disk under the data folder has no room for more."""


class Corrupt(RagKVError):
    """Stored bytes do not match their checksum or header."""
