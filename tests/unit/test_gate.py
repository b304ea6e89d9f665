"""The gate: who needs a key, and which."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragkv.errors import Unauthorised
from ragkv.service.access.gate import Gate
from ragkv.service.access.rate import RateLimit
from ragkv.service.base.caller import KEY_SCOPES
from ragkv.service.base.database import Database
from ragkv.service.base.redis import connect
from ragkv.settings import Settings
from tests.conftest import copy_template
from tests.support.issued_keys import issue_key_by_name


@pytest.fixture
def settings(tmp_path: Path, sqlite_template: Path) -> Settings:
    settings = Settings(data_dir=tmp_path)
    copy_template(sqlite_template, settings.database)
    return settings


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database)
    yield database
    database.close()


def gate_of(settings: Settings, database: Database, *, open_without_keys: bool = True) -> Gate:
    """A gate without limits, which needs no Redis."""
    unlimited = RateLimit(connect(settings), 0, fails_open=False)
    return Gate(database, unlimited, "owner", open_without_keys=open_without_keys)


def test_without_any_key_everybody_is_the_owner_but_who_sends_a_wrong_one(settings: Settings, database: Database):
    gate = gate_of(settings, database)

    for placeholder in (None, "", "none", "sk-1234"):
        caller = gate.admit(placeholder)
        assert (caller.tenant_id, caller.scopes, caller.identity) == ("owner", frozenset(KEY_SCOPES), None)
    with pytest.raises(Unauthorised):
        gate.admit("rk_" + "0" * 40)


def test_once_there_is_a_key_or_other_machines_reach_it_a_right_one_is_needed(settings: Settings, database: Database):
    gates = [gate_of(settings, database, open_without_keys=is_open) for is_open in (True, False)]
    owner = gates[0].admit(None)
    issued = issue_key_by_name("default", "first", ["read"], database)

    for gate in gates:
        for wrong in (None, "", "none", issued.key + "0"):
            with pytest.raises(Unauthorised):
                gate.admit(wrong)
        assert gate.admit(issued.key).scopes == {"read"}
        gate.confirm(gate.admit(issued.key))
        with pytest.raises(Unauthorised):
            gate.confirm(owner)
