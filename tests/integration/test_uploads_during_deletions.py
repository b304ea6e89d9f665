"""Uploads between the steps of a deletion: what was acknowledged stays; and changes of what another transaction deletes
or changes. On SQLite and on a real PostgreSQL."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sqlalchemy import event, func, select, update
from sqlalchemy.orm import Session

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.answer.question import Answer, Question, Timings, Usage
from ragkv.errors import Conflict, NotFound, Unavailable
from ragkv.ids import new_id, utc_now
from ragkv.retrieve.index import Point, Vectors
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.service.base.database import now_of
from ragkv.service.base.page import PageRequest
from ragkv.service.base.status import Status
from ragkv.service.base.tables import (
    ApiKeyRow,
    Base,
    ChunkRow,
    CollectionRow,
    DataSourceRow,
    DocumentRow,
    EvaluationRow,
    FeedbackPassageRow,
    FeedbackRow,
    JobRow,
    KVEntryRow,
    WebhookDeliveryRow,
    WebhookRow,
)
from ragkv.service.base.tenants import CollectionRef, hold_collection
from ragkv.service.checks.cleaning import clean
from ragkv.service.checks.consistency_statements import ready_without_kv
from ragkv.service.checks.kv_checks import entries_without_file
from ragkv.service.collections.collections import amend_collection, make_collection
from ragkv.service.collections.statements import collection_changed
from ragkv.service.data_sources.data_sources import (
    add_data_source,
    change_data_source,
    remove_data_source,
    request_sync,
    retry_files,
)
from ragkv.service.data_sources.sync_lease import SyncLease
from ragkv.service.data_sources.syncing import sync_now
from ragkv.service.documents.changes import retry_document
from ragkv.service.documents.chunk_statements import name_kv
from ragkv.service.documents.documents import delete_document, document_file, label, store_document
from ragkv.service.documents.listing import DocumentFilter, matching_ids
from ragkv.service.documents.mail_attachments import document_detail, settle_attachments
from ragkv.service.documents.metadata import Metadata
from ragkv.service.documents.statements import claim, document_by_id, forget_documents, locked, start_over
from ragkv.service.evaluations.outcome import GivenQuestion
from ragkv.service.evaluations.runs import RunRequest, cancel_run, start_run
from ragkv.service.files.attachments import Attach, attach_files, detach_file, entry_of, set_metadata
from ragkv.service.files.file_batches import attach_batch, cancel_batch
from ragkv.service.files.stores import list_stores
from ragkv.service.files.uploads import keep_file
from ragkv.service.keys.keys import issue_key, revoke_key
from ragkv.service.kv_admin.entry_statements import KVOwner, keep_entries
from ragkv.service.kv_admin.eviction import evict
from ragkv.service.kv_admin.rules import KVRulePatch, change_rule
from ragkv.service.kv_admin.usage import pin
from ragkv.service.parts import Parts
from ragkv.service.questions.feedback import give_feedback
from ragkv.service.questions.statements import add_feedback, record_question
from ragkv.service.webhooks.statements import READY_EVENT, announce
from ragkv.service.webhooks.webhooks import make_webhook
from tests.conftest import ingest_over
from tests.support.qdrant_server import QdrantServer

MOST_TRANSACTIONS = 40


@pytest.fixture
def parts(parts_on_either: Parts) -> Parts:
    return parts_on_either


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    server = QdrantServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def index(parts: Parts, server: QdrantServer) -> Iterator[QdrantIndex]:
    """The index of `parts`, on the server."""
    index = parts.server_index = QdrantIndex.connect(server.url)
    index.ensure(2)
    yield index
    parts.server_index = None
    index.close()


@contextmanager
def before_transaction(number: int, act: Callable[[], None], parts: Parts) -> Iterator[list[bool]]:
    """`act` runs before the transaction of this number begins. Gives whether there was one."""
    seen, acted = [0], [False]

    def count(connection: object) -> None:
        seen[0] += not acted[0]
        if seen[0] == number and not acted[0]:
            acted[0] = True
            act()

    event.listen(parts.database.engine, "engine_connect", count)  # a listener of "begin" would hold SQLite's lock
    yield acted
    event.remove(parts.database.engine, "engine_connect", count)


@contextmanager
def before_statement(number: int, act: Callable[[], None], parts: Parts) -> Iterator[list[bool]]:
    """`act` runs before the statement of this number. Gives whether there was one."""
    seen, acted = [0], [False]

    def count(*arguments: object) -> None:
        seen[0] += not acted[0]
        if seen[0] == number and not acted[0]:
            acted[0] = True
            act()

    event.listen(parts.database.engine, "before_cursor_execute", count)
    yield acted
    event.remove(parts.database.engine, "before_cursor_execute", count)


def at_each_transaction(attempt: Callable[[int], bool]) -> None:
    """Every moment of a deletion: `attempt` says whether its deletion had a transaction of the number."""
    numbers = range(1, MOST_TRANSACTIONS)
    last = next(number for number in numbers if not attempt(number))
    assert last > 3


def stored(name: str, body: bytes, parts: Parts) -> str:
    return store_document(parts.default_collection, name, io.BytesIO(body), parts.intake).document_id


def mail_with(body: bytes, subject: str, parts: Parts) -> str:
    """A mail that was read, with this file attached."""
    mail_id = stored(f"{subject}.eml", subject.encode(), parts)
    with parts.database.reading() as session:
        mail = session.get_one(DocumentRow, mail_id)
    settle_attachments(mail, [("a.md", body)], parts.intake, parts.removal)
    return mail_id


def attachment_of(mail_id: str, parts: Parts) -> str:
    (attachment,) = document_detail(parts.default_collection.tenant_id, mail_id, parts.database).attachments
    return str(attachment.document_id)


def content(document_id: str, parts: Parts) -> bytes:
    return document_file(parts.default_collection.tenant_id, document_id, parts.database, parts.files)[0].read_bytes()


def test_an_attachment_that_is_uploaded_while_its_mail_is_deleted_stays(parts: Parts, index: QdrantIndex):
    """With its points on the index server."""
    ref = parts.default_collection
    vectors = Vectors(np.array([1, 0], np.float32), np.array([], np.uint32), np.array([], np.float32))

    def attempt(number: int) -> bool:
        body, uploaded = b"file %d" % number, list[str]()
        mail_id = mail_with(body, f"mail {number}", parts)
        attached = attachment_of(mail_id, parts)
        index.upsert(ref.tenant_id, ref.collection_id, [Point(f"{attached}:0", attached, "", vectors)])
        with before_transaction(number, lambda: uploaded.append(stored("a.md", body, parts)), parts) as acted:
            delete_document(ref.tenant_id, mail_id, parts.removal)
        assert [content(document_id, parts) for document_id in uploaded] == [body] * acted[0]
        assert (attached in {held.document_id for held in index.held()}) == (attached in uploaded)
        return acted[0]

    at_each_transaction(attempt)


def test_a_mail_that_comes_while_another_with_the_same_file_is_deleted_keeps_its_attachment(parts: Parts):
    tenant_id = parts.default_collection.tenant_id

    def attempt(number: int) -> bool:
        body, others = b"file %d" % number, list[str]()
        mail_id = mail_with(body, f"mail {number}", parts)
        other = f"other {number}"
        with before_transaction(number, lambda: others.append(mail_with(body, other, parts)), parts) as acted:
            delete_document(tenant_id, mail_id, parts.removal)
        assert [content(attachment_of(one, parts), parts) for one in others] == [body] * acted[0]
        return acted[0]

    at_each_transaction(attempt)


def test_a_file_that_is_attached_while_one_with_the_same_bytes_is_detached_stays(parts: Parts):
    ref = parts.default_collection

    def attempt(number: int) -> bool:
        body = b"file %d" % number
        one, two = (
            keep_file(
                ref.tenant_id, name, "assistants", io.BytesIO(body), parts.database, parts.settings, parts.files
            ).id
            for name in ("1.md", "2.md")
        )
        attach_files(ref, [Attach(one)], parts.intake)
        with before_transaction(number, lambda: attach_files(ref, [Attach(two)], parts.intake), parts) as acted:
            detach_file(ref, one, parts.removal)
        with pytest.raises(NotFound):
            entry_of(ref, one, parts.database)
        if acted[0]:
            assert content(entry_of(ref, two, parts.database).document.id, parts) == body
        return acted[0]

    at_each_transaction(attempt)


def test_a_document_that_is_uploaded_while_a_sync_deletes_it_stays(parts: Parts, tmp_path: Path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "keep.md").write_bytes(b"# Keep\n")
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed=str(inbox))
    ref = parts.default_collection
    source = add_data_source(ref.tenant_id, ref.collection_id, str(inbox), 15, parts.database, parts.settings)

    def attempt(number: int) -> bool:
        body, uploaded = b"file %d" % number, list[str]()
        (inbox / "a.md").write_bytes(body)
        sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
        (inbox / "a.md").unlink()
        with before_transaction(number, lambda: uploaded.append(stored("a.md", body, parts)), parts) as acted:
            assert (
                sync_now(source.id, parts.intake, parts.removal, parts.worker_counters, lambda tally: True).deleted == 1
            )
        assert [content(document_id, parts) for document_id in uploaded] == [body] * acted[0]
        return acted[0]

    at_each_transaction(attempt)


def test_attachments_of_a_deleted_mail_go_with_the_sweep_if_the_index_goes_away_in_between(
    parts: Parts, index: QdrantIndex, server: QdrantServer
):
    tenant_id = parts.default_collection.tenant_id

    def attempt(number: int) -> bool:
        mail_id = mail_with(b"file %d" % number, f"mail {number}", parts)
        with before_transaction(number, server.stop, parts) as acted, suppress(Unavailable):
            delete_document(tenant_id, mail_id, parts.removal)
        server.stop()
        server.start()
        clean(parts.database, parts.removal, parts.server_index)
        with parts.database.reading() as session:
            left = set(session.scalars(select(DocumentRow.name)))
        assert left in (set(), {f"mail {number}.eml", "a.md"})
        if left:
            delete_document(tenant_id, mail_id, parts.removal)
        return acted[0]

    at_each_transaction(attempt)


def beside(
    change: Callable[[Session], object],
    attempt: Callable[[], Any],
    parts: Parts,
    then: Callable[[Session], object] = lambda session: None,
) -> Any:
    """What comes of an attempt that begins before the transaction of a change has ended; `then` is its last part."""
    with ThreadPoolExecutor(1) as threads:
        with parts.database.writing() as session:
            change(session)
            session.flush()
            attempted = threads.submit(attempt)
            wait([attempted], timeout=0.5)
            then(session)
        return attempted.result(timeout=20)


def failed(body: bytes, parts: Parts) -> str:
    document_id = stored("a.md", body, parts)
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).where(DocumentRow.id == document_id).values(status=Status.FAILED))
    return document_id


def attached(metadata: Metadata, parts: Parts) -> tuple[str, str]:
    """The ids of a file and of its document."""
    ref = parts.default_collection
    file_id = keep_file(
        ref.tenant_id, "a.md", "assistants", io.BytesIO(b"# A"), parts.database, parts.settings, parts.files
    ).id
    attach_files(ref, [Attach(file_id, metadata)], parts.intake)
    return file_id, entry_of(ref, file_id, parts.database).document.id


def test_kv_of_a_document_that_is_being_finished_stays_when_another_with_the_same_text_is_deleted(
    parts: Parts, loaded: IngestParts
):
    """It is named, but not committed yet, when the deletion begins."""
    ref, ingest = parts.default_collection, ingest_over(parts, loaded)
    deleted, finished = (stored(f"{number}.md", b"# Ada\n\nThe same." + b"\n" * number, parts) for number in (1, 2))
    for document_id in (deleted, finished):
        ingest_document(document_id, ingest)
    with parts.database.writing() as session:
        (entry,) = session.scalars(select(KVEntryRow)).all()
        row = {name: getattr(entry, name) for name in ("key", "tenant_id", "num_tokens", "num_bytes")}
        of_finished = ChunkRow.document_id == finished
        chunk_id = session.scalars(select(ChunkRow.id).where(of_finished)).one()
        session.execute(update(ChunkRow).where(of_finished).values(kv_key=None))

    with ThreadPoolExecutor() as deleting:
        with parts.database.writing() as finishing:
            finishing.execute(keep_entries(finishing.get_bind().dialect.name, [row]))
            finishing.connection().execute(name_kv(), [{"chunk": chunk_id, "key": row["key"]}])
            gone = deleting.submit(delete_document, ref.tenant_id, deleted, parts.removal)
            wait([gone], timeout=0.5)
        gone.result(timeout=30)

    with parts.database.reading() as session:
        assert session.scalars(select(KVEntryRow.key)).all() == [row["key"]]
    assert row["key"] in parts.kv_store


def test_kv_that_is_evicted_while_its_document_is_finished_leaves_no_record(parts: Parts, loaded: IngestParts):
    """At each moment of it, a worker that waits for the database among them."""
    ref, ingest = parts.default_collection, ingest_over(parts, loaded)
    document_id = stored("a.md", b"# Ada", parts)
    ingest_document(document_id, ingest)
    with parts.database.reading() as session:
        (entry,) = session.scalars(select(KVEntryRow)).all()
    row = {name: getattr(entry, name) for name in ("key", "tenant_id", "num_tokens", "num_bytes")}
    kv = parts.kv_store.path(entry.key).read_bytes()

    def attempt(number: int) -> bool:
        with parts.database.writing() as session:
            session.execute(keep_entries(session.get_bind().dialect.name, [row]))
            session.execute(update(DocumentRow).values(status=Status.SEARCHABLE, kv_evicted=False, attempts=0))
        parts.kv_store.path(entry.key).write_bytes(kv)

        with before_transaction(
            number, lambda: evict(KVOwner(ref.tenant_id), parts.database, parts.kv_store, parts.worker_counters), parts
        ) as acted:
            ingest_document(document_id, ingest)
        assert list(entries_without_file(parts.database, parts.kv_store)) == []
        assert list(parts.database.scalars(ready_without_kv())) == []
        return acted[0]

    at_each_transaction(attempt)


def test_a_document_that_is_retried_while_it_is_deleted_is_gone(parts: Parts):
    document_id = failed(b"# A", parts)
    retried = partial(retry_document, parts.default_collection.tenant_id, document_id, parts.database, parts.queue)

    with pytest.raises(NotFound):
        beside(lambda session: session.execute(forget_documents([document_id])), retried, parts)


def test_a_document_that_another_is_retrying_is_not_retried(parts: Parts):
    document_id = failed(b"# A", parts)
    retried = partial(retry_document, parts.default_collection.tenant_id, document_id, parts.database, parts.queue)

    with pytest.raises(Conflict):
        beside(lambda session: session.execute(start_over(document_id)), retried, parts)
    with parts.database.reading() as session:
        assert session.scalar(select(func.count()).select_from(JobRow)) == 1


@pytest.mark.parametrize("is_attached", [False, True])
def test_a_document_that_another_is_retrying_is_not_begun_again_by_an_upload(parts: Parts, is_attached: bool):
    """The worker that took it meanwhile keeps it."""
    document_id = failed(b"# A", parts)
    upload = partial(mail_with, b"# A", "mail", parts) if is_attached else partial(stored, "a.md", b"# A", parts)

    def retried_and_taken(session: Session) -> None:
        moment = now_of(session)
        session.execute(start_over(document_id))
        session.execute(claim(document_id, "worker", moment, moment + timedelta(minutes=1)))

    beside(retried_and_taken, upload, parts)
    with parts.database.reading() as session:
        document = session.get_one(DocumentRow, document_id)
        jobs = select(func.count()).where(JobRow.document_id == document_id)
        assert (document.lease_owner, session.scalar(jobs)) == ("worker", 1)


def test_attributes_of_a_file_that_is_detached_meanwhile_are_refused(parts: Parts):
    file_id, document_id = attached({}, parts)
    given = partial(set_metadata, parts.default_collection, file_id, {"year": 2024}, parts.database)

    with pytest.raises(NotFound):
        beside(lambda session: session.execute(forget_documents([document_id])), given, parts)


@pytest.mark.parametrize("attaches", [False, True])
def test_filters_find_what_a_document_shows_though_two_give_it_metadata(parts: Parts, attaches: bool):
    """Also where the second gives what it had before the first."""
    ref = parts.default_collection
    file_id, document_id = attached({"year": 2023}, parts)

    def found(year: int) -> frozenset[str]:
        return matching_ids(DocumentFilter(ref.tenant_id, metadata={"year": year}), parts.database)

    given = {"year": 2023}
    second = (
        partial(attach_files, ref, [Attach(file_id, given)], parts.intake)
        if attaches
        else partial(set_metadata, ref, file_id, given, parts.database)
    )
    beside(lambda session: label(session, session.get_one(DocumentRow, document_id), {"year": 2024}), second, parts)
    assert entry_of(ref, file_id, parts.database).document.metadata == {"year": 2023}
    assert (found(2023), found(2024)) == ({document_id}, frozenset())


def test_a_list_that_begins_at_a_collection_that_is_deleted_meanwhile_has_no_such_place(parts: Parts):
    """Or is read as it was before: it is no error of the service."""
    tenant_id = parts.default_collection.tenant_id
    make_collection(tenant_id, "first", parts.database)
    lists: list[list[str] | None] = []

    def attempt(number: int) -> bool:
        made = make_collection(tenant_id, f"papers {number}", parts.database).id

        def delete() -> None:
            with parts.database.writing() as session:
                session.delete(session.get_one(CollectionRow, made))

        page = None
        with before_statement(number, delete, parts) as acted, suppress(NotFound):
            page = list_stores(tenant_id, PageRequest(after=made), parts.database)
        if acted[0]:
            lists.append(page and [store.name for store in page.items])
        return acted[0]

    at_each_transaction(attempt)
    assert lists[0] is None
    assert lists[-1] == ["first", "default"]
    assert all(names in (lists[0], lists[-1]) for names in lists)


def deleted(kind: type[Base], found_id: str) -> Callable[[Session], None]:
    return lambda session: session.delete(session.get_one(kind, found_id))


def source_of(folder: Path, parts: Parts) -> str:
    """The id of a data source."""
    folder.mkdir()
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed=str(folder))
    ref = parts.default_collection
    return add_data_source(ref.tenant_id, ref.collection_id, str(folder), 15, parts.database, parts.settings).id


CHANGES_OF_A_DATA_SOURCE: list[Callable[..., object]] = [
    partial(change_data_source, paused=True),
    partial(request_sync, confirm=False),
    retry_files,
]


@pytest.mark.parametrize("change", CHANGES_OF_A_DATA_SOURCE, ids=["change", "sync", "retry"])
def test_a_data_source_that_is_removed_while_it_is_changed_is_gone(
    parts: Parts, tmp_path: Path, change: Callable[..., object]
):
    source_id = source_of(tmp_path / "inbox", parts)
    changed = partial(change, parts.default_collection.tenant_id, source_id, database=parts.database)

    with pytest.raises(NotFound):
        beside(deleted(DataSourceRow, source_id), changed, parts)


def test_a_collection_that_is_deleted_while_it_is_changed_is_gone(parts: Parts):
    """Its name, its rule for KV, whether its KV is pinned, a batch of its files."""
    tenant_id = parts.default_collection.tenant_id

    def fresh() -> CollectionRef:
        return CollectionRef(tenant_id, make_collection(tenant_id, "papers", parts.database).id, b"")

    def owner(ref: CollectionRef) -> KVOwner:
        return KVOwner(tenant_id, ref.collection_id)

    def batch(ref: CollectionRef) -> Callable[[], object]:
        file_id = keep_file(
            tenant_id, "a.md", "assistants", io.BytesIO(b"# A"), parts.database, parts.settings, parts.files
        ).id
        return partial(cancel_batch, ref, attach_batch(ref, [Attach(file_id)], parts.intake).id, parts.removal)

    changes: list[Callable[[CollectionRef], Callable[[], object]]] = [
        lambda ref: partial(amend_collection, tenant_id, ref.collection_id, parts.database, name="other"),
        lambda ref: partial(change_rule, owner(ref), KVRulePatch(format="int8"), parts),
        lambda ref: partial(pin, owner(ref), parts.database, parts.settings, pinned=True),
        batch,
    ]
    for change in changes:
        ref = fresh()
        attempt = change(ref)
        with pytest.raises(NotFound):
            beside(deleted(CollectionRow, ref.collection_id), attempt, parts)


def test_a_document_that_is_deleted_while_its_kv_is_pinned_is_gone(parts: Parts):
    ref = parts.default_collection
    document_id = stored("a.md", b"# A", parts)
    pinned = partial(
        pin, KVOwner(ref.tenant_id, ref.collection_id, document_id), parts.database, parts.settings, pinned=True
    )

    with pytest.raises(NotFound):
        beside(lambda session: session.execute(forget_documents([document_id])), pinned, parts)


def feedback(answer_id: str, parts: Parts) -> FeedbackRow:
    ref = parts.default_collection
    return FeedbackRow(
        answer_id=answer_id,
        tenant_id=ref.tenant_id,
        collection_id=ref.collection_id,
        question="Who?",
        answer="Ada.",
        num_passages=1,
        rating="up",
        asked_at=utc_now(),
    )


def test_feedback_that_is_removed_while_it_is_changed_is_gone(parts: Parts):
    ref, answer_id = parts.default_collection, new_id()
    with parts.database.writing() as session:
        session.add(feedback(answer_id, parts))
    place = (parts.recent_answers, parts.source, parts.database)
    given = partial(give_feedback, ref.tenant_id, answer_id, "down", None, None, *place)

    with pytest.raises(NotFound):
        beside(deleted(FeedbackRow, answer_id), given, parts)


def test_an_evaluation_that_is_deleted_while_it_is_cancelled_is_gone(parts: Parts):
    ref, run_id = parts.default_collection, new_id()
    row = EvaluationRow(
        id=run_id,
        tenant_id=ref.tenant_id,
        collection_id=ref.collection_id,
        kind="retrieval",
        source="given",
        state="queued",
        total=1,
    )
    with parts.database.writing() as session:
        session.add(row)

    with pytest.raises(NotFound):
        beside(deleted(EvaluationRow, run_id), partial(cancel_run, ref.tenant_id, run_id, parts.database), parts)


def test_a_document_is_announced_to_no_webhook_that_is_deleted_meanwhile(parts: Parts):
    tenant_id = parts.default_collection.tenant_id
    webhook_id = make_webhook(tenant_id, "https://example.com/", None, frozenset(), parts.database).webhook.id
    document_id = stored("a.md", b"# A", parts)

    def announced() -> None:
        with parts.database.writing() as session:
            announce(session, document_id, READY_EVENT)

    beside(deleted(WebhookRow, webhook_id), announced, parts)

    with parts.database.reading() as session:
        assert session.scalars(select(WebhookDeliveryRow.id)).all() == []


def test_a_key_that_is_removed_while_it_is_revoked_is_gone(parts: Parts):
    key_id = issue_key(parts.default_collection.tenant_id, "old", ["read"], parts.database).view.id

    with pytest.raises(NotFound):
        beside(deleted(ApiKeyRow, key_id), partial(revoke_key, key_id, parts.database), parts)


def test_what_is_made_for_a_collection_that_is_deleted_meanwhile_is_refused(parts: Parts, tmp_path: Path):
    """A data source, a webhook, an evaluation: at each moment of making them."""
    tenant_id = parts.default_collection.tenant_id
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed=str(inbox))
    given = RunRequest("retrieval", "given", questions=[GivenQuestion(question="Who?", gold=("Ada",))])
    makers: list[Callable[[str], object]] = [
        lambda to: add_data_source(tenant_id, to, str(inbox), 15, parts.database, parts.settings),
        lambda to: make_webhook(tenant_id, "https://example.com/", to, frozenset(), parts.database),
        lambda to: start_run(tenant_id, to, given, parts.database),
    ]

    def delete(collection_id: str) -> None:
        with parts.database.writing() as session:
            deleted(CollectionRow, collection_id)(session)

    for make in makers:
        for number in range(1, MOST_TRANSACTIONS):
            made = make_collection(tenant_id, f"papers {number}", parts.database).id
            with before_transaction(number, partial(delete, made), parts) as acted, suppress(NotFound):
                make(made)
            if not acted[0]:
                break
            with parts.database.reading() as session:
                assert session.get(CollectionRow, made) is None
        delete(made)


def test_feedback_on_an_answer_whose_document_is_deleted_meanwhile_is_refused(parts: Parts):
    answer_id = new_id()
    gone = FeedbackPassageRow(answer_id=answer_id, ordinal=0, document_id=new_id(), title="", text="Ada did.")

    with pytest.raises(Conflict), parts.database.writing() as session:
        add_feedback(session, feedback(answer_id, parts), [gone])


def test_a_question_whose_collection_is_deleted_meanwhile_is_not_recorded(parts: Parts):
    question = Question(parts.default_collection.tenant_id, new_id(), "Who?")
    answer = Answer(question.id, "Ada.", "stop", (), (), Timings(*[1.0] * 7), Usage(*[1] * 7))

    with pytest.raises(NotFound):
        record_question(question, answer, "model", parts.database)


def test_a_data_source_that_is_paused_or_removed_while_a_worker_is_about_to_sync_it_is_left_alone(
    parts: Parts, tmp_path: Path
):
    mine = parts.default_collection.tenant_id, source_of(tmp_path / "inbox", parts), parts.database

    with before_transaction(2, partial(change_data_source, *mine, paused=True), parts) as acted:
        assert SyncLease.take_next(parts.database, "worker") is None
    assert acted[0]
    with parts.database.reading() as session:
        assert session.get_one(DataSourceRow, mine[1]).lease_owner is None

    assert change_data_source(*mine, paused=False).status == "waiting"
    with before_transaction(2, partial(remove_data_source, *mine), parts) as acted:
        assert SyncLease.take_next(parts.database, "worker") is None
    assert acted[0]


def test_a_sync_that_is_requested_while_another_ends_is_due(parts: Parts, tmp_path: Path):
    source_id = source_of(tmp_path / "inbox", parts)
    lease = SyncLease.take(parts.database, source_id, "worker")
    assert lease is not None

    def request(session: Session) -> None:
        session.get_one(DataSourceRow, source_id).next_at = now_of(session)

    beside(request, partial(lease.end, is_whole=True), parts)
    assert SyncLease.take_next(parts.database, "worker") is not None


def test_a_file_whose_document_is_deleted_while_a_sync_reads_it_is_noted_without(parts: Parts, tmp_path: Path):
    """The next sync reads it again."""
    lease = SyncLease.take(parts.database, source_of(tmp_path / "inbox", parts), "worker")
    assert lease is not None
    document_id = stored("a.md", b"# A", parts)
    note = partial(lease.record, "a.md", "1", 1, document_id, None)
    beside(lambda session: session.execute(forget_documents([document_id])), note, parts)
    note()
    assert lease.known(["a.md"])["a.md"].document_id is None


@pytest.mark.parametrize("is_uploaded_too", [False, True])
def test_a_file_that_becomes_searchable_while_its_batch_is_cancelled_stays(parts: Parts, is_uploaded_too: bool):
    ref = parts.default_collection
    file_id, document_id = attached({}, parts)
    if is_uploaded_too:
        assert stored("a.md", b"# A", parts) == document_id
    batch_id = attach_batch(ref, [Attach(file_id)], parts.intake).id
    searchable = update(DocumentRow).where(DocumentRow.id == document_id).values(status=Status.SEARCHABLE)
    cancel = partial(cancel_batch, ref, batch_id, parts.removal)

    progress = beside(lambda session: session.execute(searchable), cancel, parts)
    assert (progress.num_missing, progress.statuses) == (0, {Status.SEARCHABLE: 1})
    assert entry_of(ref, file_id, parts.database).document.id == document_id


def test_what_adds_documents_and_what_changes_one_do_not_wait_for_each_other(parts: Parts):
    """A file that is attached, with one that is there; an attachment of a mail."""
    ref = parts.default_collection
    mail_id = stored("mail.eml", b"mail", parts)
    with parts.database.reading() as session:
        mail = session.get_one(DocumentRow, mail_id)
    names = ("new.md", "there.md")
    files = [
        keep_file(
            ref.tenant_id, name, "assistants", io.BytesIO(name.encode()), parts.database, parts.settings, parts.files
        ).id
        for name in names
    ]
    there = stored("there.md", b"there.md", parts)
    attempts: dict[str, Callable[[], object]] = {
        there: partial(attach_files, ref, [Attach(file_id) for file_id in files], parts.intake),
        mail_id: partial(settle_attachments, mail, [("a.md", b"# A")], parts.intake, parts.removal),
    }

    for document_id, attempt in attempts.items():

        def change(session: Session, one: str = document_id) -> None:
            session.scalars(locked(document_by_id(ref.tenant_id, one))).one()

        beside(change, attempt, parts, lambda session: session.execute(collection_changed(ref.collection_id)))
    assert entry_of(ref, files[0], parts.database)
    assert attachment_of(mail_id, parts)


def test_a_collection_may_be_renamed_while_documents_are_added(parts: Parts):
    """Their rows refer to its row, which they change at the end."""
    tenant_id = parts.default_collection.tenant_id
    collection_id = make_collection(tenant_id, "papers", parts.database).id
    renamed = partial(amend_collection, tenant_id, collection_id, parts.database, name="reports")

    view = beside(
        lambda session: hold_collection(session, collection_id),
        renamed,
        parts,
        lambda session: session.execute(collection_changed(collection_id)),
    )
    assert view.name == "reports"


def test_files_that_are_attached_and_documents_that_are_changed_together_do_not_wait_for_each_other(parts: Parts):
    ref = parts.default_collection
    bodies = [b"# A", b"# B"]
    of_body = {stored("a.md", body, parts): body for body in bodies}
    first, second = sorted(of_body)
    files = [
        keep_file(
            ref.tenant_id, "a.md", "assistants", io.BytesIO(of_body[one]), parts.database, parts.settings, parts.files
        ).id
        for one in (second, first)
    ]

    def lock(document_id: str) -> Callable[[Session], object]:
        return lambda session: session.scalars(locked(document_by_id(ref.tenant_id, document_id))).one()

    attached = partial(attach_files, ref, [Attach(file_id, {"year": 2024}) for file_id in files], parts.intake)
    beside(lock(first), attached, parts, lock(second))
    assert {entry_of(ref, file_id, parts.database).document.id for file_id in files} == {first, second}
