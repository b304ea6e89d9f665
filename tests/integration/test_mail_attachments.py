"""Attachments of mails: documents of their own, which come and go with their mails."""

from email.message import EmailMessage
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from sqlalchemy import select

from ingest.local import ingest_files
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.errors import Conflict
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tables import DocumentRow
from ragkv.service.data_sources.data_sources import add_data_source
from ragkv.service.data_sources.syncing import sync_now
from ragkv.service.documents import mail_attachments
from ragkv.service.documents.changes import replace_document
from ragkv.service.documents.documents import document_view
from ragkv.service.documents.mail_attachments import MAX_DEPTH, settle_attachments
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.files.attachments import Attach, attach_files, detach_file
from ragkv.service.files.uploads import keep_file
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.over_http import Client, upload

PLAN = b"# Plan\n\nThe bridge over the Zambezi is built of steel.\n"


@pytest.fixture(params=["migrated_sqlite_url", "migrated_postgres_url"], ids=["sqlite_url", "postgres_url"])
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """On each kind of database."""
    return msgspec.structs.replace(settings, database_url=request.getfixturevalue(request.param))


def mail(subject: str, **attached: bytes | EmailMessage) -> EmailMessage:
    """Names with two underscores stand for those with a dot."""
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "zoe@example.org"
    message.set_content(f"Words about {subject}.")
    for name, body in attached.items():
        if isinstance(body, EmailMessage):
            message.add_attachment(body)
        else:
            message.add_attachment(body, "application", "octet-stream", filename=name.replace("__", "."))
    return message


def read_all(ingest: IngestParts) -> None:
    """Until nothing waits, as workers do."""
    while waiting := stuck_ids(ingest.parts.database):
        for document_id in waiting:
            ingest_document(document_id, ingest)


def send(client: Client, ingest: IngestParts, message: EmailMessage, **form: Any) -> str:
    """Upload a mail and read it with what is attached."""
    document_id: str = upload(client, message.as_bytes(), f"{message['Subject']}.eml", data=form).json()["id"]
    read_all(ingest)
    return document_id


def shown(client: Client, document_id: str) -> dict[str, Any]:
    response = client.get(f"/v1/documents/{document_id}")
    assert response.status_code == 200, response.text
    return response.json()


def names(client: Client) -> set[str]:
    return {one["name"] for one in client.get("/v1/documents").json()["items"]}


def test_each_attachment_is_a_document_and_the_two_know_each_other(client: Client, ingest: IngestParts):
    """One that cannot be read fails by itself, with the reason."""
    made = mail(
        "bridges", plan__md=PLAN, files__7z=b"7z\xbc\xaf\x27\x1c", inner=mail("forwarded", notes__txt=b"Steel.")
    )
    mail_id = send(client, ingest, made, metadata='{"project": "zambezi"}')

    view = shown(client, mail_id)
    assert (view["status"], view["attached_to"]) == ("ready", [])
    found = {one["name"]: one for one in view["attachments"]}
    assert [(one["name"], one["status"]) for one in view["attachments"]] == [
        ("plan.md", "ready"), ("files.7z", "failed"), ("forwarded.eml", "ready"),
    ]  # fmt: skip
    assert "archive" in found["files.7z"]["error"]
    assert found["plan.md"]["bytes"] == len(PLAN)
    plan = shown(client, found["plan.md"]["document_id"])
    assert plan["attached_to"] == [{"id": mail_id, "name": "bridges.eml"}]
    assert (plan["collection_id"], plan["metadata"]) == (view["collection_id"], {"project": "zambezi"})
    (notes,) = shown(client, found["forwarded.eml"]["document_id"])["attachments"]
    assert (notes["name"], notes["status"]) == ("notes.txt", "ready")
    assert client.get(f"/v1/documents/{plan['id']}/file").content == PLAN
    page = client.get(f"/admin/documents/{mail_id}").text
    assert f'href="/admin/documents/{plan["id"]}"' in page
    assert f'href="/admin/documents/{mail_id}"' in client.get(f"/admin/documents/{plan['id']}").text


def test_attachments_follow_their_mails_metadata(client: Client, ingest: IngestParts):
    """With those of mails within it: a filter finds none of them by what the mail no longer is. Values that were set by
    hand stay, and so do other documents."""
    inner = mail("inner", deep__md=b"# Deep\n\nThe bridge is deep.\n")
    own, by_hand = b"# Own\n\nThe bridge is ours.\n", b"# Note\n\nThe bridge was noted.\n"
    parts_of_mail = {"plan__md": PLAN, "inner": inner, "own__md": own, "by_hand__md": by_hand}
    first = send(client, ingest, mail("first", **parts_of_mail), metadata='{"audience": "everyone", "year": 1}')
    send(
        client,
        ingest,
        mail("second", shared__md=b"# Two\n\nThe bridge has two.\n"),
        metadata='{"audience": "everyone"}',
    )
    upload(client, own, "own.md")
    ids = {one["name"]: one["document_id"] for one in shown(client, first)["attachments"]}
    (deep,) = shown(client, ids["inner.eml"])["attachments"]
    client.patch(f"/v1/documents/{ids['by_hand.md']}", json={"metadata": {"audience": "staff"}})

    patch = {"metadata": {"audience": "board", "year": None, "topic": ["bridges"]}}
    assert client.patch(f"/v1/documents/{first}", json=patch).status_code == 200
    changed = {"audience": "board", "topic": ["bridges"]}
    assert shown(client, ids["plan.md"])["metadata"] == changed
    assert shown(client, ids["inner.eml"])["metadata"] == shown(client, deep["document_id"])["metadata"] == changed
    assert shown(client, ids["by_hand.md"])["metadata"] == changed | {"audience": "staff"}
    assert shown(client, ids["own.md"])["metadata"] == {"audience": "everyone", "year": 1}

    def found(audience: str) -> set[str]:
        asked = {"question": "Which bridge?", "filter": {"audience": audience}, "top_k": 20}
        passages = client.post("/v1/search", json=asked).json()["passages"]
        return {shown(client, passage["document_id"])["name"] for passage in passages}

    assert found("everyone") == {"own.md", "second.eml", "shared.md"}
    assert found("board") == {"first.eml", "plan.md", "inner.eml", "deep.md"}


def test_attachments_follow_from_1_to_true(client: Client, ingest: IngestParts):
    first = send(client, ingest, mail("first", plan__md=PLAN), metadata='{"public": 1}')
    (plan,) = shown(client, first)["attachments"]

    client.patch(f"/v1/documents/{first}", json={"metadata": {"public": True}})

    assert shown(client, plan["document_id"])["metadata"]["public"] is True


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
def test_an_attachment_of_two_mails_keeps_its_metadata(client: Client, ingest: IngestParts):
    first = send(client, ingest, mail("first", plan__md=PLAN), metadata='{"audience": "everyone"}')
    send(client, ingest, mail("second", plan__md=PLAN))
    client.patch(f"/v1/documents/{first}", json={"metadata": {"audience": "board"}})

    (plan,) = shown(client, first)["attachments"]
    assert shown(client, plan["document_id"])["metadata"] == {"audience": "everyone"}


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
def test_attachments_of_a_mail_uploaded_again_with_other_metadata_follow(client: Client, ingest: IngestParts):
    made = mail("bridges", plan__md=PLAN)
    mail_id = send(client, ingest, made, metadata='{"audience": "everyone"}')
    send(client, ingest, made, metadata='{"audience": "board"}')

    (plan,) = shown(client, mail_id)["attachments"]
    assert shown(client, plan["document_id"])["metadata"] == {"audience": "board"}


def test_attachments_that_come_after_a_change_of_metadata_have_the_new_one(
    client: Client, ingest: IngestParts, parts: Parts
):
    """The worker read the mail before."""
    mail_id = send(client, ingest, mail("bridges"), metadata='{"audience": "everyone"}')
    with parts.database.reading() as session:
        before = session.get_one(DocumentRow, mail_id)
    client.patch(f"/v1/documents/{mail_id}", json={"metadata": {"audience": "board"}})
    (plan,) = settle_attachments(before, [("plan.md", PLAN)], parts.intake, parts.removal)

    assert shown(client, plan)["metadata"] == {"audience": "board"}


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
def test_attachments_are_recorded_and_announced_as_other_documents_are(client: Client, ingest: IngestParts):
    hook = client.post("/v1/webhooks", json={"url": "https://example.com/hook"}).json()["webhook"]["id"]
    mail_id = send(client, ingest, mail("bridges", plan__md=PLAN))
    plan = shown(client, mail_id)["attachments"][0]["document_id"]

    deliveries = client.get(f"/v1/webhooks/{hook}/deliveries").json()["items"]
    assert {(one["document_id"], one["event"]) for one in deliveries} == {
        (mail_id, "document.ready"), (plan, "document.ready"),
    }  # fmt: skip
    (event,) = client.get("/v1/audit", params={"resource": plan}).json()["items"]
    assert (event["action"], event["within"], event["client"]) == ("Add an attachment", mail_id, "worker")
    client.delete(f"/v1/documents/{mail_id}")
    actions = [one["action"] for one in client.get("/v1/audit", params={"resource": plan}).json()["items"]]
    assert actions == ["Delete a document", "Add an attachment"]


def test_the_same_mail_again_adds_nothing(client: Client, ingest: IngestParts, parts: Parts):
    """Uploaded again, or read again; and what was deleted since does not come back."""
    made = mail("bridges", plan__md=PLAN, again__md=PLAN, other__md=b"# Other\n\nWords.\n")
    mail_id = send(client, ingest, made)
    assert send(client, ingest, made) == mail_id
    assert names(client) == {"bridges.eml", "plan.md", "other.md"}

    other = shown(client, mail_id)["attachments"][1]["document_id"]
    assert client.delete(f"/v1/documents/{other}").status_code == 204
    with parts.database.reading() as session:
        row = session.get_one(DocumentRow, mail_id)
    assert (
        settle_attachments(row, [("plan.md", PLAN), ("other.md", b"# Other\n\nWords.\n")], parts.intake, parts.removal)
        == []
    )
    assert names(client) == {"bridges.eml", "plan.md"}
    assert [(one["name"], one["status"]) for one in shown(client, mail_id)["attachments"]] == [
        ("plan.md", "ready"), ("other.md", None),
    ]  # fmt: skip


def test_attachments_go_with_the_last_mail_that_has_them(client: Client, ingest: IngestParts):
    """With all that lies in mails within it; not what was uploaded too."""
    inner = mail("inner", deep__md=b"# Deep\n\nWords.\n")
    first = send(client, ingest, mail("first", plan__md=PLAN, own__md=b"# Own\n\nWords.\n", inner=inner))
    second = send(client, ingest, mail("second", plan__md=PLAN))
    upload(client, b"# Own\n\nWords.\n", "own.md")

    assert client.delete(f"/v1/documents/{first}").status_code == 204
    assert names(client) == {"second.eml", "plan.md", "own.md"}
    (plan,) = shown(client, second)["attachments"]
    assert [one["id"] for one in shown(client, plan["document_id"])["attached_to"]] == [second]
    assert client.delete(f"/v1/documents/{second}").status_code == 204
    assert names(client) == {"own.md"}


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
@pytest.mark.parametrize("body", [PLAN, b"# New plan\n\nOf stone.\n"], ids=["the same bytes", "others"])
def test_an_attachment_that_was_replaced_stays_when_its_mail_goes(client: Client, ingest: IngestParts, body: bytes):
    mail_id = send(client, ingest, mail("bridges", plan__md=PLAN))
    plan = shown(client, mail_id)["attachments"][0]["document_id"]
    replaced = client.put(f"/v1/documents/{plan}", files={"file": ("new.md", body)})
    assert replaced.status_code == 202

    assert client.delete(f"/v1/documents/{mail_id}").status_code == 204
    read_all(ingest)
    assert client.get(f"/v1/documents/{plan}/file").content == body


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
def test_another_file_in_the_mails_place_has_other_attachments(client: Client, ingest: IngestParts):
    mail_id = send(client, ingest, mail("first", plan__md=PLAN, same__md=b"# Same\n\nWords.\n"))
    form = {"files": {"file": ("second.eml", mail("second", same__md=b"# Same\n\nWords.\n").as_bytes())}}
    client.put(f"/v1/documents/{mail_id}", **form)
    read_all(ingest)
    assert names(client) == {"second.eml", "same.md"}


@pytest.mark.parametrize("body", [b"# Late\n\nWords.\n", b""], ids=["kept", "refused"])
def test_attachments_of_a_mail_that_was_replaced_meanwhile_do_not_come(
    client: Client, ingest: IngestParts, parts: Parts, body: bytes
):
    """A worker may still be at those of the file before."""
    mail_id = send(client, ingest, mail("bridges", plan__md=PLAN))
    with parts.database.reading() as session:
        before = session.get_one(DocumentRow, mail_id)
    replacement = mail("bridges", other__md=b"# Other\n\nWords.\n").as_bytes()
    replace_document(before.tenant_id, mail_id, "bridges.eml", BytesIO(replacement), parts.intake, parts.removal)
    read_all(ingest)
    for late in ([("late.md", body)], []):
        with pytest.raises(Conflict, match="replaced"):
            settle_attachments(before, late, parts.intake, parts.removal)
    assert names(client) == {"bridges.eml", "other.md"}
    assert [one["name"] for one in shown(client, mail_id)["attachments"]] == ["other.md"]


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
def test_what_has_no_room_or_lies_too_deep_is_named_with_the_reason(client: Client, ingest: IngestParts, parts: Parts):
    """The mail itself is ready all the same."""
    made = mail("bottom", plan__md=PLAN)
    for depth in range(MAX_DEPTH):
        made = mail(f"mail {depth}", inner=made)
    document_id = send(client, ingest, made)
    for _ in range(MAX_DEPTH):
        (one,) = shown(client, document_id)["attachments"]
        document_id = one["document_id"]
        assert one["status"] == "ready"
    (one,) = shown(client, document_id)["attachments"]
    assert (one["document_id"], one["error"]) == (
        None,
        f"it is nested more than {MAX_DEPTH} mails deep: upload it separately",
    )

    parts.settings = msgspec.structs.replace(parts.settings, max_tenant_documents=MAX_DEPTH + 2)
    mail_id = send(client, ingest, mail("bridges", plan__md=PLAN))
    (plan,) = shown(client, mail_id)["attachments"]
    assert "RAGKV_MAX_TENANT_DOCUMENTS" in plan["error"]
    assert "not kept" in client.get(f"/admin/documents/{mail_id}").text
    tenant_id = parts.default_collection.tenant_id
    assert document_view(tenant_id, mail_id, parts.database).status == "ready"


def test_an_uploaded_mail_has_no_more_than_so_many_attachments_on_all_levels(
    client: Client, ingest: IngestParts, monkeypatch: pytest.MonkeyPatch
):
    """The first one too many says so, and how many follow it; each uploaded mail has its own, once more."""
    monkeypatch.setattr(mail_attachments, "MAX_IN_UPLOAD", 7)

    def inner(name: str) -> EmailMessage:
        return mail(name, **{f"{name}{n}__md": f"# {name} {n}\n\nWords.".encode() for n in range(4)})

    outer = send(client, ingest, mail("outer", one=inner("one"), two=inner("two")))
    assert len(names(client)) == 1 + 7, "two mails, and five of their eight files"
    within = [shown(client, one["document_id"])["attachments"] for one in shown(client, outer)["attachments"]]
    kept = [one["name"] for files in within for one in files if one["document_id"]]
    (refused,) = (one for files in within for one in files if not one["document_id"])
    assert len(kept) == 5
    assert "more than 7 attachments" in refused["error"]
    assert "2 more files" in refused["error"]

    client.delete(f"/v1/documents/{outer}")
    other = send(client, ingest, inner("other"))
    assert [one["status"] for one in shown(client, other)["attachments"]] == ["ready"] * 4


@pytest.mark.parametrize("settings", ["migrated_sqlite_url"], indirect=True)
def test_a_mail_read_without_a_queue_brings_its_attachments(ingest: IngestParts, parts: Parts, tmp_path: Path):
    """`ragkv ingest`: those of mails within it as well; one that cannot be read is named as a failure."""
    file = tmp_path / "bridges.eml"
    file.write_bytes(mail("bridges", plan__md=PLAN, inner=mail("inner", files__7z=b"7z\xbc\xaf\x27\x1c")).as_bytes())
    tally = ingest_files([file], ingest, Console(file=StringIO()))

    assert tally.read == 3
    assert [path for path, _ in tally.failures] == [file / "inner.eml" / "files.7z"]
    assert ingest_files([file], ingest, Console(file=StringIO())).known == 1


def test_attachments_go_with_a_mail_that_a_data_source_lost(
    parts: Parts, ingest: IngestParts, tmp_path: Path, redis_server: EmbeddedRedis
):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed=str(inbox))
    ref = parts.default_collection
    source = add_data_source(ref.tenant_id, ref.collection_id, str(inbox), 15, parts.database, parts.settings)
    (inbox / "bridge.eml").write_bytes(mail("bridges", plan__md=PLAN).as_bytes())
    for _ in range(2):
        sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
        read_all(ingest)
    assert in_database(parts) == {"bridge.eml", "plan.md"}

    (inbox / "bridge.eml").unlink()
    (inbox / "other.md").write_bytes(b"# Other\n\nSomething else.\n")
    sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    assert in_database(parts) == {"other.md"}


@pytest.mark.parametrize("goes_first", ["bridge.eml", "plan.md"])
def test_an_attachment_that_is_a_data_sources_file_too_stays_until_both_are_gone(
    parts: Parts, ingest: IngestParts, tmp_path: Path, redis_server: EmbeddedRedis, goes_first: str
):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed=str(inbox))
    ref = parts.default_collection
    source = add_data_source(ref.tenant_id, ref.collection_id, str(inbox), 15, parts.database, parts.settings)
    for name, body in (("keep.md", b"# Keep"), ("bridge.eml", mail("bridges", plan__md=PLAN).as_bytes())):
        (inbox / name).write_bytes(body)
    sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    read_all(ingest)
    (inbox / "plan.md").write_bytes(PLAN)
    sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)

    (inbox / goes_first).unlink()
    sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    assert in_database(parts) == {"keep.md", "bridge.eml", "plan.md"} - {goes_first} | {"plan.md"}
    for left in {"bridge.eml", "plan.md"} - {goes_first}:
        (inbox / left).unlink()
    sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
    assert in_database(parts) == {"keep.md"}


def test_an_attachment_that_was_attached_to_the_collection_as_a_file_too_goes_with_its_mail(
    client: Client, ingest: IngestParts, parts: Parts
):
    mail_id = send(client, ingest, mail("bridges", plan__md=PLAN))
    ref = parts.default_collection
    file = keep_file(ref.tenant_id, "plan.md", "assistants", BytesIO(PLAN), parts.database, parts.settings, parts.files)
    attach_files(ref, [Attach(file.id)], parts.intake)

    detach_file(ref, file.id, parts.removal)
    assert names(client) == {"bridges.eml", "plan.md"}
    client.delete(f"/v1/documents/{mail_id}")
    assert names(client) == set()


def in_database(parts: Parts) -> set[str]:
    """Names of all documents."""
    with parts.database.reading() as session:
        return set(session.scalars(select(DocumentRow.name)))
