"""Streams of progress: what they cost, whom they tell, and how they end."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import event as sql_event
from sqlalchemy import update

from api.access.session import COOKIE
from api.http.draining import Draining
from api.v1.watching import POLL_EVERY_S, Update, Watchers
from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.documents.statements import progress_in_collection
from ragkv.service.documents.watch import MARGIN, CollectionWatch, DocumentProgress
from ragkv.service.keys.keys import revoke_key
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import assert_problem, events_of, serving, upload, wait_until

CONFIRM_EVERY_S = 0.2
EVENTS = "/v1/collections/default/events"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, max_streams=4)


@pytest.fixture
def served(parts: Parts, redis_server: EmbeddedRedis) -> Iterator[httpx.Client]:
    with serving(parts, confirm_every_s=CONFIRM_EVERY_S) as client:
        yield client


@pytest.fixture
def key(parts: Parts) -> str:
    return issue_key_by_name("default", "x", ["admin"], parts.database).key


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def queued(parts: Parts, number: int) -> None:
    """Documents that wait to be read."""
    ref = parts.default_collection
    with parts.database.writing() as session:
        session.add_all(
            DocumentRow(
                tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256=str(i), name=f"{i}", num_bytes=1
            )
            for i in range(number)
        )


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    asked: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        asked.append(statement)

    sql_event.listen(database.engine, "before_cursor_execute", note)
    yield asked
    sql_event.remove(database.engine, "before_cursor_execute", note)


class Reader:
    """A client of a stream, in a thread. `text`: what came so far."""

    def __init__(self, served: httpx.Client, path: str = EVENTS, headers: dict[str, str] | None = None) -> None:
        self._args: dict[str, Any] = {"url": str(served.base_url).rstrip("/") + path, "headers": headers or {}}
        self.text = ""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with httpx.stream("GET", **self._args, timeout=20) as response:
            for piece in response.iter_text():
                self.text += piece

    @property
    def events(self) -> list[tuple[str, Any]]:
        return list(events_of(self.text)) if self.text else []

    def ended(self) -> list[tuple[str, Any]]:
        """All events, once the stream has ended by itself."""
        self._thread.join(timeout=20)
        assert not self._thread.is_alive(), "the stream goes on"
        return self.events


@pytest.fixture
def readers(served: httpx.Client, parts: Parts) -> Iterator[list[Reader]]:
    """Four streams of one collection, ended by the first key that is made."""
    readers = [Reader(served) for _ in range(4)]
    yield readers
    issue_key_by_name("default", "first", ["admin"], parts.database)
    for reader in readers:
        reader.ended()


def test_streams_of_one_collection_share_one_look(parts: Parts, readers: list[Reader]):
    queued(parts, 300)
    wait_until(lambda: all(len(reader.events) == 300 for reader in readers))
    with statements(parts.database) as asked:
        time.sleep(4 * POLL_EVERY_S)

    looks = [statement for statement in asked if "documents.updated_at" in statement]
    assert 1 <= len(looks) <= 6
    assert not any("documents.metadata" in statement for statement in looks)


def test_a_look_reads_what_changed_and_not_what_waits(parts: Parts):
    queued(parts, 50)
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(updated_at=utc_now() - timedelta(hours=1)))
    watch = CollectionWatch(parts.database, parts.default_collection.collection_id)

    assert len(watch.look()) == 50
    with parts.database.reading() as session:
        waiting = progress_in_collection(watch._collection_id, utc_now() - MARGIN, unfinished_too=False)
        assert session.execute(waiting).all() == []
    assert (watch.look(), len(watch.state()), watch.is_idle) == ([], 50, False)


def test_a_key_has_a_limit_of_streams_and_a_closed_one_makes_room(served: httpx.Client, key: str):
    with ExitStack() as open_streams:
        for _ in range(4):
            first = open_streams.enter_context(served.stream("GET", EVENTS, headers=bearer(key)))
            assert first.status_code == 200
        refused = served.get(EVENTS, headers=bearer(key))
        assert_problem(refused, 429, "RAGKV_MAX_STREAMS")
        assert int(refused.headers["retry-after"]) > 0
    wait_until(lambda: _status(served, key) == 200)


def _status(served: httpx.Client, key: str) -> int:
    with served.stream("GET", EVENTS, headers=bearer(key)) as response:
        return response.status_code


@pytest.mark.parametrize("path", ["collection", "document"])
def test_a_stream_ends_when_its_key_is_revoked(served: httpx.Client, parts: Parts, key: str, path: str):
    document_id = upload(served, headers=bearer(key)).json()["id"]
    reader = Reader(served, EVENTS if path == "collection" else f"/v1/documents/{document_id}/events", bearer(key))
    wait_until(lambda: reader.events)
    revoke_key(key.split("_")[1], parts.database)

    name, problem = reader.ended()[-1]
    assert (name, problem["status"]) == ("error", 401)
    assert "revoked" in problem["detail"]


def test_a_stream_ends_with_its_session(served: httpx.Client, parts: Parts, key: str):
    token = parts.sessions.begin(key.split("_")[1])
    reader = Reader(served, headers={"cookie": f"{COOKIE}={token}"})
    upload(served, headers=bearer(key))
    wait_until(lambda: reader.events)
    parts.sessions.end(token)

    name, problem = reader.ended()[-1]
    assert (name, problem["status"]) == ("error", 401)


def test_a_stream_that_needed_no_key_ends_when_there_is_one(served: httpx.Client, parts: Parts):
    reader = Reader(served)
    upload(served)
    wait_until(lambda: reader.events)
    issue_key_by_name("default", "first", ["admin"], parts.database)

    assert reader.ended()[-1][0] == "error"


def test_a_stream_ends_when_its_collection_is_deleted(served: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ragkv.service.documents.watch.WHOLE_EVERY", timedelta())
    made = served.post("/v1/collections", json={"name": "papers"}).json()["id"]
    reader = Reader(served, "/v1/collections/papers/events")
    upload(served, data={"collection": "papers"})
    wait_until(lambda: reader.events)
    assert served.delete("/v1/collections/papers").status_code < 300

    assert reader.ended()[-1] == ("deleted", {"id": made})


def test_a_stream_that_comes_later_is_told_of_all_that_waits(served: httpx.Client, parts: Parts, key: str):
    upload(served, headers=bearer(key))
    first = Reader(served, headers=bearer(key))
    wait_until(lambda: first.events)
    later = Reader(served, headers=bearer(key))
    wait_until(lambda: later.events)
    assert later.events == first.events
    revoke_key(key.split("_")[1], parts.database)
    assert [reader.ended()[-1][0] for reader in (first, later)] == ["error", "error"]


def test_a_stream_that_comes_during_a_look_is_told_of_all_that_waits_by_the_next():
    """News of that look alone would be too little: a stream until all is finished could end, though more waits."""
    seen = [DocumentProgress(f"{i}", f"{i}", Status.ACCEPTED, "", 0, 0, None) for i in range(3)]
    looking, go_on = threading.Event(), threading.Event()

    class Looks:
        """The first gives two documents, the second, during which another stream comes, the end of one of them."""

        number = 0
        is_idle = False

        def look(self) -> list[DocumentProgress]:
            self.number += 1
            if self.number == 1:
                return seen[:2]
            if self.number == 2:
                looking.set()
                go_on.wait(20)
                return [msgspec.structs.replace(seen[0], status=Status.READY)]
            return []

        def state(self) -> list[DocumentProgress]:
            return seen[:2] if self.number == 1 else seen[1:2]

    async def told() -> tuple[list[Update], list[Update]]:
        watchers, looks = Watchers(Draining()), Looks()
        with watchers.subscribe("papers", lambda: looks) as first:
            await first.wait(20)
            assert len(first.take()) == 2
            await asyncio.to_thread(looking.wait, 20)
            with watchers.subscribe("papers", lambda: looks) as later:
                go_on.set()
                await first.wait(20)
                assert not later.started
                await later.wait(20)
                return first.take(), later.take()

    ended, waiting = asyncio.run(told())
    assert [(one.progress.id, one.progress.status) for one in ended] == [("0", "ready")]
    assert [(one.progress.id, one.progress.status) for one in waiting] == [("1", "accepted")]
