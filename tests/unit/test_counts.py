"""Counts in messages."""

import msgspec
import pytest

from api.access.concurrency import ConcurrencyLimits
from ragkv.errors import Throttled
from ragkv.service.base.caller import Caller
from ragkv.settings import Settings


def test_a_limit_of_one_is_named_in_the_singular(settings: Settings):
    limits = ConcurrencyLimits(msgspec.structs.replace(settings, max_questions=1, max_uploads=1))
    caller = Caller("tenant", None, frozenset())

    with (
        limits.question(caller),
        pytest.raises(Throttled, match="at most 1 question of a tenant"),
        limits.question(caller),
    ):
        pass
    with limits.upload(caller), pytest.raises(Throttled, match="at most 1 upload of a tenant"), limits.upload(caller):
        pass
