"""The audit log: changes by requests of every kind, in order, of each tenant alone. On SQLite and on a real
PostgreSQL."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import DBAPIError

from api.app import create_app
from ragkv.cli.keys import keys as keys_command
from ragkv.errors import Unavailable
from ragkv.ids import new_id, utc_now
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.service.audit.log import Change, list_audit, record_change
from ragkv.service.audit.statements import AuditFilter
from ragkv.service.base.database import Database
from ragkv.service.base.tables import AuditRow, DataSourceRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.checks.pruning import prune
from ragkv.service.keys.keys import issue_key
from ragkv.service.parts import Parts
from tests.integration.filled import add_documents, add_files
from tests.integration.test_tenants import routes_of
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import HERE, Client, assert_problem, upload


@pytest.fixture
def key(parts: Parts) -> tuple[str, dict[str, str]]:
    """(id, headers) of a key that may do everything."""
    issued = issue_key(parts.default_collection.tenant_id, "boss", ["admin"], parts.database)
    return issued.view.id, {"Authorization": f"Bearer {issued.key}"}


def events(client: Client, headers: dict[str, str], **params: Any) -> list[dict[str, Any]]:
    return client.get("/v1/audit", headers=headers, params=params).json()["items"]


def told(listed: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """(action, resource), oldest first."""
    return [(event["action"], event["resource"]) for event in reversed(listed)]


def test_the_log_says_who_did_what_to_which_thing(client: Client, key: tuple[str, dict[str, str]]):
    key_id, headers = key
    collection = client.post("/v1/collections", json={"name": "papers"}, headers=headers).json()["id"]
    document = upload(client, headers=headers | {"X-Request-ID": "r-1"}, data={"collection": "papers"}).json()["id"]
    files = [("files", ("c.md", b"one")), ("files", ("d.md", b"two"))]
    both = [one["document"]["id"] for one in client.post("/v1/documents/batch", files=files, headers=headers).json()]
    client.patch(f"/v1/documents/{document}", json={"name": "b.md"}, headers=headers)
    other = client.post("/v1/keys", json={"name": "x"}, headers=headers).json()["view"]["id"]
    client.delete(f"/v1/keys/{other}", headers=headers)
    store = client.post("/v1/vector_stores", json={"name": "store"}, headers=headers).json()["id"]
    file = client.post("/v1/files", files={"file": ("e.md", b"three")}, data={"purpose": "assistants"}, headers=headers)
    attached = client.post(f"/v1/vector_stores/{store}/files", json={"file_id": file.json()["id"]}, headers=headers)
    client.delete(f"/v1/documents/{document}", headers=headers)
    client.delete("/v1/collections/papers", headers=headers)

    listed = events(client, headers)
    several = [event for event in listed if event["action"] == "Upload several documents"]
    assert {event["resource"] for event in several} == set(both)
    assert told([event for event in listed if event not in several]) == [
        ("Create a collection", collection),
        ("Upload a document", document),
        ("Update a document", document),
        ("Create an API key", other),
        ("Revoke an API key", other),
        ("Create a vector store", store),
        ("Upload a file", file.json()["id"]),
        ("Attach a file", attached.json()["id"]),
        ("Delete a document", document),
        ("Delete a collection", "papers"),
    ]
    assert {(event["key_id"], event["key_name"]) for event in listed} == {(key_id, "boss")}
    assert [(e["action"], e["request_id"]) for e in events(client, headers, resource=document)][-1] == (
        "Upload a document",
        "r-1",
    )
    assert [e["within"] for e in listed if e["action"] == "Attach a file"] == [store]


def test_reading_asking_and_what_was_refused_are_not_changes(client: Client, key: tuple[str, dict[str, str]]):
    _, headers = key
    client.get("/v1/documents", headers=headers)
    client.post("/v1/search", json={"question": "Who?"}, headers=headers)
    client.delete(f"/v1/documents/{new_id()}", headers=headers)
    client.post("/v1/collections", json={"name": ""}, headers=headers)
    client.post("/v1/collections", json={"name": "x"})

    assert events(client, headers) == []


@pytest.mark.parametrize(
    ("path", "action"),
    [("/v1/collections/papers", "Delete a collection"), ("/v1/vector_stores/papers", "Delete a vector store")],
)
def test_a_deletion_that_fails_half_way_is_a_change(
    client: Client, parts: Parts, key: tuple[str, dict[str, str]], path: str, action: str
):
    _, headers = key
    made = client.post("/v1/collections", json={"name": "papers"}, headers=headers).json()
    upload(client, headers=headers, data={"collection": "papers"})
    with parts.database.writing() as session:
        mine = {"tenant_id": parts.default_collection.tenant_id, "collection_id": made["id"]}
        session.add(DataSourceRow(**mine, location="/srv/papers", interval_minutes=0, watch=False))
    before = events(client, headers)

    parts.server_index = QdrantIndex.connect("http://127.0.0.1:9")  # nothing listens there
    assert client.delete(path, headers=headers).status_code == 503
    assert client.delete(path, headers=headers).status_code == 503
    parts.server_index.close()
    parts.server_index = None
    assert client.delete(path, headers=headers).status_code in (200, 204)

    assert told(events(client, headers)[: -len(before)]) == [
        (f"{action}, answered with 503", "papers"),  # its data source is gone; the second time nothing was
        (action, "papers"),
    ]


@pytest.fixture
def away(parts: Parts) -> Iterator[QdrantIndex]:
    """An index server that does not answer, in use once a test sets it."""
    index = QdrantIndex.connect("http://127.0.0.1:9")  # nothing listens there
    yield index
    parts.server_index = None
    index.close()


@pytest.fixture
def file(client: Client, key: tuple[str, dict[str, str]]) -> str:
    """The id of a file in the vector stores `a` and `b`."""
    form = {"files": {"file": ("a.md", b"x")}, "data": {"purpose": "assistants"}}
    made = str(client.post("/v1/files", **form, headers=key[1]).json()["id"])
    for name in "ab":
        client.post("/v1/vector_stores", json={"name": name, "file_ids": [made]}, headers=key[1])
    return made


def test_a_file_deleted_from_some_of_its_collections_is_a_change(
    client: Client,
    parts: Parts,
    key: tuple[str, dict[str, str]],
    file: str,
    away: QdrantIndex,
    monkeypatch: pytest.MonkeyPatch,
):
    _, headers = key
    before = events(client, headers)
    steps = iter([lambda *_: None, away.delete_from_collection])

    def away_from_the_second_on(*documents: Any) -> None:
        next(steps)(*documents)

    monkeypatch.setattr(away, "delete_from_collection", away_from_the_second_on)
    parts.server_index = away
    assert client.delete(f"/v1/files/{file}", headers=headers).status_code == 503
    parts.server_index = None
    assert client.delete(f"/v1/files/{file}", headers=headers).status_code == 200

    assert told(events(client, headers)[: -len(before)]) == [
        ("Delete a file, answered with 503", file),
        ("Delete a file", file),
    ]


def test_a_batch_that_is_cancelled_and_keeps_its_files_is_a_change(
    client: Client, parts: Parts, key: tuple[str, dict[str, str]], file: str, away: QdrantIndex
):
    _, headers = key
    batches = "/v1/vector_stores/a/file_batches"
    batch = client.post(batches, json={"file_ids": [file]}, headers=headers).json()["id"]
    before = events(client, headers)

    parts.server_index = away
    assert client.post(f"{batches}/{batch}/cancel", headers=headers).status_code == 503
    assert client.post(f"{batches}/{batch}/cancel", headers=headers).status_code == 503

    assert told(events(client, headers)[: -len(before)]) == [("Cancel a file batch, answered with 503", batch)]


@pytest.mark.parametrize(
    ("step", "action"),
    [
        ("ragkv.service.documents.removal.discard_unnamed", "Delete a document"),
        ("ragkv.service.documents.removal.discard_unnamed", "Delete a collection"),
        ("ragkv.service.collections.collections.forget_answers", "Delete a collection"),
        ("ragkv.service.documents.removal.discard_unnamed", "Detach a file"),
        ("ragkv.service.files.attachments.discard_unnamed", "Delete a file"),
    ],
)
def test_a_deletion_that_fails_after_its_commit_is_a_change(
    client: Client,
    key: tuple[str, dict[str, str]],
    file: str,
    step: str,
    action: str,
    monkeypatch: pytest.MonkeyPatch,
):
    _, headers = key
    document = client.get("/v1/documents?collection=a", headers=headers).json()["items"][0]["id"]
    if step == "ragkv.service.collections.collections.forget_answers":
        client.delete(f"/v1/documents/{document}", headers=headers)
    path = {
        "Delete a document": f"/v1/documents/{document}",
        "Delete a collection": "/v1/collections/a",
        "Detach a file": f"/v1/vector_stores/a/files/{file}",
        "Delete a file": f"/v1/files/{file}",
    }[action]
    before = events(client, headers)

    def unavailable(*_: object) -> None:
        raise Unavailable("the disk is away")

    monkeypatch.setattr(step, unavailable)
    assert client.delete(path, headers=headers).status_code == 503

    resource = path.rpartition("/")[2]
    assert told(events(client, headers)[: -len(before)]) == [(f"{action}, answered with 503", resource)]


def test_a_change_that_fails_after_its_commit_is_recorded(
    client: Client, parts: Parts, key: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
):
    _, headers = key
    document = upload(client, headers=headers).json()["id"]
    add_documents(parts.database, parts.default_collection, documents=1, chunks=1, prefix="d")
    add_files(parts)
    rule, other = "/v1/collections/default/kv/rule", {"file": ("b.md", b"# Other\n\nText.")}
    client.patch(rule, json={"when": "never"}, headers=headers)
    before = events(client, headers)

    def unavailable(*_: object) -> None:
        raise Unavailable("the disk is away")

    for step in (
        "ragkv.service.kv_admin.rules.rebuild_missing",
        "ragkv.kv.store.KVStore.delete",
        "ragkv.service.documents.changes.discard_unnamed",
    ):
        monkeypatch.setattr(step, unavailable)
    assert client.patch(rule, json={"when": "upload"}, headers=headers).status_code == 503
    assert client.delete("/v1/collections/default/kv", headers=headers).status_code == 503
    assert client.put(f"/v1/documents/{document}", files=other, headers=headers).status_code == 503
    assert client.put(f"/v1/documents/{document}", headers=headers).status_code == 415

    assert told(events(client, headers)[: -len(before)]) == [
        ("Update a collection's rule for KV, answered with 503", "default"),
        ("Evict a collection's KV, answered with 503", "default"),
        ("Replace a document's file, answered with 503", document),
    ]


def test_a_login_says_nothing_of_the_page_that_it_leads_to(client: Client, key: tuple[str, dict[str, str]]):
    _, headers = key
    document = upload(client, headers=headers).json()["id"]
    form = {"key": headers["Authorization"].partition(" ")[2], "next": f"/admin/documents/{document}"}

    led = client.post("/admin/login", data=form, headers={"Origin": HERE}, follow_redirects=False)

    assert led.headers["location"] == form["next"]
    client.cookies.clear()
    assert told(events(client, headers)) == [("Upload a document", document), ("Log in", None)]


def test_the_dashboards_logins_and_an_agents_documents_are_changes(
    client: Client, parts: Parts, key: tuple[str, dict[str, str]]
):
    key_id, headers = key
    secret = headers["Authorization"].partition(" ")[2]
    client.post("/admin/login", data={"key": secret}, headers={"Origin": HERE}, follow_redirects=False)
    client.post("/admin/login", data={"key": "rk_wrong"}, headers={"Origin": HERE})
    client.cookies.clear()
    for name, given in (("search", {"question": "Who?"}), ("add_document", {"name": "a.md", "text": "mine"})):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}
        assert client.post("/mcp", json=call, headers=headers).status_code == 200

    (document,) = client.get("/v1/documents", headers=headers).json()["items"]
    assert told(events(client, headers)) == [("Log in", None), ("Add a document", document["id"])]
    assert {event["key_id"] for event in events(client, headers)} == {key_id}


def test_the_command_line_is_in_the_log(
    settings_on_disk: dict[str, str], client: Client, parts: Parts, key: tuple[str, dict[str, str]]
):
    made = CliRunner().invoke(keys_command, ["create", "--name", "cli"], env=settings_on_disk)
    assert made.exit_code == 0, made.output
    key_id = made.stdout.split("_")[1]
    CliRunner().invoke(keys_command, ["revoke", key_id], env=settings_on_disk)

    listed = events(client, key[1])
    assert told(listed) == [("Create an API key", key_id), ("Revoke an API key", key_id)]
    assert {(event["client"], event["key_id"]) for event in listed} == {("command line", None)}


@pytest.fixture
def settings_on_disk(parts: Parts) -> dict[str, str]:
    """The environment of a command that uses the service's data."""
    return {"RAGKV_DATA_DIR": str(parts.settings.data_dir), "RAGKV_DATABASE_URL": parts.settings.database}


def test_pages_and_filters_and_the_export_have_the_same_events(
    client: Client, parts: Parts, key: tuple[str, dict[str, str]]
):
    key_id, headers = key
    tenant_id = parts.default_collection.tenant_id
    for i in range(450):
        change = Change(tenant_id, key_id, f"Do {i}", "POST /x", "192.0.2.1", ["papers" if i % 2 else "maps"])
        record_change(change, parts.database)

    first = client.get("/v1/audit", headers=headers, params={"limit": 200}).json()
    second = client.get("/v1/audit", headers=headers, params={"limit": 200, "cursor": first["next"]}).json()
    exported = client.get("/v1/audit/export", headers=headers)
    lines = [json.loads(line) for line in exported.text.splitlines()]
    assert exported.headers["content-type"].startswith("application/jsonl")
    assert len(lines) == 450
    assert lines[:400] == first["items"] + second["items"]
    assert len(events(client, headers, resource="papers", limit=200)) == 200
    assert len(client.get("/v1/audit/export", headers=headers, params={"resource": "papers"}).text.splitlines()) == 225
    assert events(client, headers, key_id="0" * 16) == []
    middle = lines[200]["at"]
    before, since = events(client, headers, until=middle, limit=200), events(client, headers, since=middle, limit=200)
    assert max(event["at"] for event in before) < middle <= min(event["at"] for event in since)
    assert events(client, headers, since="2026-01-01T00:00:00", limit=1), "a time without a zone is UTC"
    assert_problem(client.get("/v1/audit", headers=headers, params={"cursor": "x"}), 422)
    for moment in ("0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "0", "yesterday", ""):
        for path in ("/v1/audit", "/v1/audit/export"):
            assert_problem(client.get(path, headers=headers, params={"since": moment}), 422)
    page = client.get("/admin/audit", headers=headers, params={"resource": "papers"})
    assert page.status_code == 200 and "Do 449" in page.text


def test_another_tenant_sees_nothing_of_it(client: Client, parts: Parts, key: tuple[str, dict[str, str]]):
    upload(client, headers=key[1])
    stranger = {"Authorization": f"Bearer {issue_key_by_name('other', 'x', ['admin'], parts.database).key}"}

    assert events(client, stranger) == []
    assert client.get("/v1/audit/export", headers=stranger).text == ""


def test_a_change_whose_record_fails_is_made_and_logged(
    client: Client, key: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def away(change: Change, database: Database) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr("api.access.auditing.record_change", away)
    assert upload(client, headers=key[1]).status_code == 202
    assert "a change was not recorded" in caplog.text


def test_every_route_that_changes_something_has_a_name_for_it(parts: Parts):
    """Its own summary: what the log shows is never the name of a function."""
    for route in routes_of(create_app(parts)):
        if route.method != "GET" and route.guards and route.guards[0].scope != "read":
            assert route.handler.summary, route.name


def test_events_cannot_be_changed(database: Database):
    tenant_id = ensure_collection(database).tenant_id
    record_change(Change(tenant_id, None, "Do", "POST /x", "here"), database)

    with pytest.raises((DBAPIError, Unavailable)), database.writing() as session:
        session.execute(update(AuditRow).values(action="Something else"))
    assert list_audit(AuditFilter(tenant_id), 1, None, database).items[0].action == "Do"


def test_names_are_cut_and_storable(database: Database):
    tenant_id = ensure_collection(database).tenant_id
    record_change(Change(tenant_id, None, "Do", "POST /x", "here", ["a\x00" * 500], "b" * 500), database)

    (event,) = list_audit(AuditFilter(tenant_id), 1, None, database).items
    assert (len(event.resource or ""), len(event.within or "")) == (200, 200)


def test_old_events_go_after_their_retention(database: Database):
    tenant_id = ensure_collection(database).tenant_id
    with database.writing() as session:
        session.add_all(
            AuditRow(tenant_id=tenant_id, at=utc_now() - timedelta(days=days), action="Do", route="", client="")
            for days in (0, 300, 400)
        )

    assert prune(0, database).audit_events == 0
    assert prune(0, database, 365).audit_events == 1
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(AuditRow)) == 2
    with database.writing() as session:
        session.execute(delete(AuditRow))
