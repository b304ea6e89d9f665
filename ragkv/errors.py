"""Everything that can go wrong, as a tree by what the caller can do about it.

RagKVError
  NotFound        404   no such document, collection or passage
  Conflict        409   the state does not allow it now
  Rejected        422   the input will never do: say what to change
    TooLarge      413   too many bytes
    Unsupported   415   a file type or a model that is not supported, with the reason
  Unavailable     503   engine, index, broker or database is away: retry
  Corrupt         -     a stored block is not what its key says: recompute, never leaves the service
"""


class RagKVError(Exception):
    """Base of the tree. The message is shown to users: it says what to do."""


class NotFound(RagKVError):
    """There is no such thing, or it belongs to someone else."""


class Conflict(RagKVError):
    """The thing is not in a state that allows this now."""


class Rejected(RagKVError):
    """The input cannot be accepted as it is."""


class TooLarge(Rejected):
    """More bytes or tokens than the settings allow."""


class Unsupported(Rejected):
    """A file type or a model that ragkv does not support."""


class Unavailable(RagKVError):
    """Something ragkv depends on is away; the same call may succeed later."""


class Corrupt(RagKVError):
    """Stored bytes do not match their checksum or header."""
