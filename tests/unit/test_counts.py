"""Counts in messages."""

import asyncio

import msgspec
import pytest

from api.access import concurrency
from api.access.concurrency import ConcurrencyLimits
from api.http.draining import Draining
from ragkv.errors import Throttled
from ragkv.service.base.caller import Caller
from ragkv.settings import Settings


def test_a_limit_of_one_is_named_in_the_singular(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(concurrency, "MOST_WAITING", 0)
    limits = ConcurrencyLimits(msgspec.structs.replace(settings, max_questions=1, max_uploads=1), Draining())
    caller = Caller("tenant", None, frozenset())

    async def ask_twice() -> None:
        with await limits.question(caller):
            await limits.question(caller)

    with pytest.raises(Throttled, match="at most 1 question of a tenant"):
        asyncio.run(ask_twice())
    with limits.upload(caller), pytest.raises(Throttled, match="at most 1 upload of a tenant"), limits.upload(caller):
        pass
