"""Rules for KV: a collection's format, and KV from the upload on, from the nth use on, or never."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise

import msgspec
import pytest
from sqlalchemy import event, select

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.errors import Unavailable
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import Compression, CompressionMethod, KVWhen
from ragkv.service.base.status import Status
from ragkv.service.base.tables import ChunkRow, JobRow
from ragkv.service.documents.chunk_statements import to_chunk
from ragkv.service.documents.documents import DocumentView, document_view, store_document
from ragkv.service.documents.job_statements import KEEP
from ragkv.service.documents.requeue import refresh_outdated_kv
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.eviction import evict
from ragkv.service.kv_admin.rules import KVRulePatch, change_rule, keep_hot, rule_view
from ragkv.service.kv_admin.usage import held_kv, rebuild_document
from ragkv.service.parts import Parts
from tests.support.documents import LONG, use
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import Client, assert_problem

RULE = "/v1/collections/default/kv/rule"


@pytest.fixture
def owner(parts: Parts) -> KVOwner:
    return KVOwner(parts.default_collection.tenant_id, collection_id=parts.default_collection.collection_id)


def stored(parts: Parts) -> str:
    return store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts.intake).document_id


def view(parts: Parts, document_id: str) -> DocumentView:
    return document_view(parts.default_collection.tenant_id, document_id, parts.database)


def chunk_ids(parts: Parts, document_id: str) -> list[str]:
    with parts.database.reading() as session:
        mine = select(ChunkRow.id).where(ChunkRow.document_id == document_id).order_by(ChunkRow.ordinal)
        return list(session.scalars(mine))


def formats(parts: Parts) -> set[KVFormat]:
    """Of all chunks' KV that is used."""
    with parts.database.reading() as session:
        keys = session.scalars(select(ChunkRow.kv_key).where(ChunkRow.kv_key.is_not(None))).all()
    return {parts.kv_store.shape(key).format for key in keys}


@contextmanager
def failing_after_the_first_commit(parts: Parts) -> Iterator[None]:
    """The database goes away between two transactions."""
    commits = count(1)

    def fail(connection: object) -> None:
        if next(commits) > 1:
            raise Unavailable("the database is away")

    event.listen(parts.database.engine, "commit", fail)
    yield
    event.remove(parts.database.engine, "commit", fail)


class TestFormat:
    def test_a_collection_has_another_than_the_service(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        change_rule(owner, KVRulePatch(format="int4"), parts)
        ingest_document(stored(parts), ingest)

        assert formats(parts) == {KVFormat.INT4}

    def test_what_there_is_is_converted_and_back_again(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        for wanted, kv_format in (("int8", KVFormat.INT8), ("default", KVFormat.BF16)):
            change_rule(owner, KVRulePatch(format=wanted), parts)
            assert view(parts, document_id).status is Status.SEARCHABLE
            assert ingest_document(document_id, ingest) is IngestOutcome.READY
            assert formats(parts) == {kv_format}

    def test_a_change_that_marked_no_document_is_made_up_for_when_it_is_sent_again(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        with failing_after_the_first_commit(parts), pytest.raises(Unavailable):
            change_rule(owner, KVRulePatch(format="int8"), parts)
        assert (rule_view(owner, parts.database, parts.settings).format, view(parts, document_id).status) == (
            KVFormat.INT8,
            Status.READY,
        )

        change_rule(owner, KVRulePatch(format="int8"), parts)
        assert view(parts, document_id).status is Status.SEARCHABLE

    @pytest.mark.parametrize("other", [{"format": "int8"}, {"compress": "h2o"}], ids=["format", "compression"])
    def test_documents_of_other_collections_stay_as_they_are(
        self, other: dict[str, str], parts: Parts, ingest: IngestParts, client: Client
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        client.post("/v1/collections", json={"name": "papers"})

        assert client.patch("/v1/collections/papers/kv/rule", json=other).status_code == 200
        assert view(parts, document_id).status is Status.READY


class TestCompression:
    def kept(self, parts: Parts) -> list[tuple[int, int]]:
        """(tokens with KV, tokens) of all chunks whose KV is used."""
        with parts.database.reading() as session:
            rows = session.scalars(select(ChunkRow).where(ChunkRow.kv_key.is_not(None)).order_by(ChunkRow.ordinal))
            return [(parts.kv_store.shape(row.kv_key).tokens, to_chunk(row).num_tokens) for row in rows]

    def test_a_collection_keeps_kv_of_a_share_of_each_chunks_tokens(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner
    ):
        change_rule(owner, KVRulePatch(compress="streaming", keep=0.25, format="int8"), parts)
        document_id = stored(parts)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY

        sizes = self.kept(parts)
        assert len(sizes) > 1
        assert [left for left, _ in sizes] == [round(0.25 * tokens) for _, tokens in sizes]
        assert formats(parts) == {KVFormat.INT8}

    def test_a_change_prefills_again_and_back_again(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        keys = [set(parts.kv_store.keys())]
        for patch, share in (
            (KVRulePatch(compress="streaming"), 0.5),
            (KVRulePatch(keep=0.3), 0.3),
            (KVRulePatch(compress="snapkv"), 0.3),
            (KVRulePatch(compress="none"), 1),
        ):
            change_rule(owner, patch, parts)
            assert view(parts, document_id).status is Status.SEARCHABLE
            assert ingest_document(document_id, ingest) is IngestOutcome.READY
            assert [left for left, _ in self.kept(parts)] == [round(share * tokens) for _, tokens in self.kept(parts)]
            keys.append(set(parts.kv_store.keys()))
        assert all(before < after for before, after in pairwise(keys[:4]))
        assert keys[4] == keys[3]  # that of all tokens was still there

    def test_a_ratio_without_a_method_changes_nothing(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        document_id = stored(parts)
        ingest_document(document_id, ingest)

        change_rule(owner, KVRulePatch(keep=0.3), parts)
        assert view(parts, document_id).status is Status.READY

    def test_questions_look_it_up_by_their_collections_rule(self, parts: Parts, owner: KVOwner, client: Client):
        client.post("/v1/collections", json={"name": "papers"})
        papers = client.get("/v1/collections/papers").json()["id"]
        change_rule(owner, KVRulePatch(compress="laq", keep=0.3), parts)

        assert parts.kv_keys_of(owner.tenant_id, owner.collection_id).compression == Compression(
            CompressionMethod.LAQ, 0.3
        )
        assert parts.kv_keys_of(owner.tenant_id, papers).compression is None

    def test_the_services_own_is_that_of_collections_without_one(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner
    ):
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        parts.settings = msgspec.structs.replace(parts.settings, kv_compress=CompressionMethod.STREAMING)

        assert refresh_outdated_kv(parts.database, parts.settings, parts.index_fingerprint, parts.kv_fingerprint) == 1
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert all(left < tokens for left, tokens in self.kept(parts))

    def test_a_prompt_holds_what_is_kept_and_says_what_is_left_out(
        self, client: Client, parts: Parts, ingest: IngestParts, owner: KVOwner, engine: EchoEngine
    ):
        engine.stitches = True
        change_rule(owner, KVRulePatch(compress="streaming", keep=0.25), parts)
        ingest_document(stored(parts), ingest)
        asked = {"question": "Which engine stood in hall 3?", "policy": "none"}

        some, every, full = (
            client.post("/v1/ask", json=asked | more).json()
            for more in ({}, {"policy": "head", "recompute_ratio": 1.0}, {"mode": "full"})
        )

        omitted = [passage["omitted_tokens"] for passage in some["passages"]]
        assert full["usage"]["prompt"] - some["usage"]["prompt"] == sum(omitted) > 0
        assert every["usage"]["prompt"] == full["usage"]["prompt"]
        assert {p["omitted_tokens"] for p in (*every["passages"], *full["passages"])} == {0}
        assert [p["text"] for p in some["passages"]] == [p["text"] for p in full["passages"]]
        assert (some["usage"]["failed_chunks"], every["usage"]["failed_chunks"]) == (0, 0)


class TestNever:
    def test_no_kv_is_computed_until_somebody_asks_for_it(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        change_rule(owner, KVRulePatch(when="never"), parts)
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        seen = view(parts, document_id)
        assert (seen.status, seen.kv_evicted, held_kv(owner, parts.database).files) == (Status.SEARCHABLE, True, 0)
        use(parts, *chunk_ids(parts, document_id) * 9)
        assert keep_hot(parts.database, parts.settings) == 0

        rebuild_document(owner.tenant_id, document_id, parts.database, parts.queue)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert view(parts, document_id).status is Status.READY

    def test_a_later_rule_whose_documents_are_not_queued_says_what_to_do(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner
    ):
        change_rule(owner, KVRulePatch(when="never"), parts)
        ingest_document(stored(parts), ingest)
        with failing_after_the_first_commit(parts), pytest.raises(Unavailable, match=r"POST .*/kv/rebuild"):
            change_rule(owner, KVRulePatch(when="upload"), parts)

        assert rule_view(owner, parts.database, parts.settings).when is KVWhen.UPLOAD

    def test_a_later_rule_has_it_computed(self, parts: Parts, ingest: IngestParts, owner: KVOwner):
        change_rule(owner, KVRulePatch(when="never"), parts)
        document_id = stored(parts)
        ingest_document(document_id, ingest)

        change_rule(owner, KVRulePatch(when="default"), parts)
        ingest_document(document_id, ingest)
        assert view(parts, document_id).status is Status.READY


class TestNthUse:
    @pytest.fixture
    def document_id(self, parts: Parts, ingest: IngestParts, owner: KVOwner) -> str:
        change_rule(owner, KVRulePatch(when="nth_use", uses=2), parts)
        document_id = stored(parts)
        ingest_document(document_id, ingest)
        return document_id

    def test_the_chunk_that_was_used_so_often_gets_kv_and_no_other(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        hot, lukewarm, *_ = chunk_ids(parts, document_id)
        use(parts, hot, lukewarm)
        assert keep_hot(parts.database, parts.settings) == 0
        use(parts, hot)
        assert keep_hot(parts.database, parts.settings) == 1
        with parts.database.reading() as session:
            assert KEEP in session.scalars(select(JobRow.kind)).all()
        ingest_document(document_id, ingest)

        held = held_kv(owner, parts.database)
        assert (held.stored_chunks, held.chunks > 2) == (1, True)
        assert view(parts, document_id).status is Status.SEARCHABLE
        assert keep_hot(parts.database, parts.settings) == 0
        use(parts, lukewarm)
        assert keep_hot(parts.database, parts.settings) == 1
        ingest_document(document_id, ingest)
        assert held_kv(owner, parts.database).stored_chunks == 2

    def test_a_document_whose_chunks_are_all_used_is_ready(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        use(parts, *chunk_ids(parts, document_id) * 2)
        keep_hot(parts.database, parts.settings)
        assert ingest_document(document_id, ingest) is IngestOutcome.READY
        assert view(parts, document_id).status is Status.READY

    def test_evicted_kv_is_to_be_used_so_often_again(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        hot = chunk_ids(parts, document_id)[0]
        use(parts, hot, hot)
        keep_hot(parts.database, parts.settings)
        ingest_document(document_id, ingest)
        use(parts, *[hot] * 9)
        evict(owner, parts.database, parts.kv_store, parts.worker_counters)

        assert keep_hot(parts.database, parts.settings) == 0
        use(parts, hot, hot)
        assert keep_hot(parts.database, parts.settings) == 1

    def test_what_had_no_room_is_not_tried_at_every_sweep(
        self, parts: Parts, ingest: IngestParts, document_id: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("ingest.keep_kv.make_room_for", lambda *arguments: False)
        hot = chunk_ids(parts, document_id)[0]
        use(parts, hot, hot)
        keep_hot(parts.database, parts.settings)
        ingest_document(document_id, ingest)

        assert keep_hot(parts.database, parts.settings) == 0

    def test_kv_that_a_change_of_compression_outdates_is_made_again_and_no_more(
        self, parts: Parts, ingest: IngestParts, owner: KVOwner, document_id: str
    ):
        change_rule(owner, KVRulePatch(compress="streaming"), parts)
        hot = chunk_ids(parts, document_id)[0]
        use(parts, hot, hot)
        keep_hot(parts.database, parts.settings)
        ingest_document(document_id, ingest)
        before = held_kv(owner, parts.database)

        change_rule(owner, KVRulePatch(keep=0.2), parts)
        ingest_document(document_id, ingest)

        after = held_kv(owner, parts.database)
        assert (before.stored_chunks, after.stored_chunks) == (1, 1)
        assert after.bytes < before.bytes
        assert (view(parts, document_id).status, view(parts, document_id).kv_evicted) == (Status.SEARCHABLE, True)
        assert refresh_outdated_kv(parts.database, parts.settings, parts.index_fingerprint, parts.kv_fingerprint) == 0


class TestMeanwhile:
    """A rule that is changed while a worker computes KV."""

    @pytest.mark.parametrize(
        ("before", "after", "kv_format"),
        [
            (KVRulePatch(), KVRulePatch(format="int8"), KVFormat.INT8),
            (KVRulePatch(when="never"), KVRulePatch(when="default"), KVFormat.BF16),
        ],
        ids=["format", "when"],
    )
    def test_the_document_is_ready_by_the_rule_as_it_is_then(
        self,
        parts: Parts,
        ingest: IngestParts,
        owner: KVOwner,
        before: KVRulePatch,
        after: KVRulePatch,
        kv_format: KVFormat,
    ):
        change_rule(owner, before, parts)
        document_id = stored(parts)
        changes = [after]

        def changing(stage: str, done: int, total: int) -> None:
            if stage == "prefill" and done == total and changes:
                change_rule(owner, changes.pop(), parts)

        assert ingest_document(document_id, ingest, changing) is IngestOutcome.READY
        assert (changes, view(parts, document_id).status, formats(parts)) == ([], Status.READY, {kv_format})
        assert refresh_outdated_kv(parts.database, parts.settings, parts.index_fingerprint, parts.kv_fingerprint) == 0


class TestOverHTTP:
    def test_it_is_shown_and_changed(self, client: Client):
        assert client.get(RULE).json() == {
            "format": "bf16",
            "when": "upload",
            "uses": 2,
            "write": "through",
            "compress": "none",
            "keep": 0.5,
            "own": [],
        }
        changed = client.patch(
            RULE,
            json=(
                rule := {
                    "format": "int4",
                    "when": "nth_use",
                    "uses": 5,
                    "write": "back",
                    "compress": "laq",
                    "keep": 0.3,
                }
            ),
        ).json()
        assert changed == rule | {"own": list(rule)}
        back = {"when": "default", "uses": 0, "write": "default", "compress": "default", "keep": 0}
        assert client.patch(RULE, json=back).json()["own"] == ["format"]
        shown = {
            "format": "int4",
            "when": "upload",
            "uses": 2,
            "write": "through",
            "compress": "none",
            "keep": 0.5,
            "own": ["format"],
        }
        assert client.get(RULE).json() == shown

    def test_what_is_no_rule_is_refused(self, client: Client, subtests: pytest.Subtests):
        for body in [
            {"format": "int3"},
            {"when": "soon"},
            {"uses": -1},
            {"uses": 1001},
            {"write": "never"},
            {"kind": 1},
            {"compress": "zip"},
            {"keep": 1},
            {"keep": -0.1},
            {"keep": "half"},
        ]:
            with subtests.test(body=body):
                assert_problem(client.patch(RULE, json=body), 400)
                assert client.get(RULE).json()["own"] == []

    def test_a_collection_that_is_not_there(self, client: Client):
        assert_problem(client.get("/v1/collections/nothing/kv/rule"), 404)
