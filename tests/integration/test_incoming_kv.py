"""A question about a document whose KV ingestion has not computed yet: the engine computes what it needs, once."""

import asyncio
import io

import msgspec
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.answer.question import Answer, Question
from ragkv.engine.protocol import Prefill
from ragkv.errors import Unavailable
from ragkv.observe import metrics
from ragkv.service.documents.documents import store_document
from ragkv.service.kv_admin.rules import KVOwner, KVRulePatch, change_rule
from ragkv.service.parts import Parts
from tests.support.documents import LONG, kv_files
from tests.support.echo_engine import EchoEngine


class Counting:
    """A prefiller that counts the chunks it is asked for."""

    def __init__(self, prefiller):
        self.prefiller = prefiller
        self.chunks = 0

    def prefill(self, batch, keys):
        self.chunks += len(batch)
        self.prefiller.prefill(batch, keys)


class Away:
    def prefill(self, batch, keys):
        raise Unavailable("the engine is away")


@pytest.fixture
def document_id(parts: Parts, ingest: IngestParts, engine: EchoEngine) -> str:
    """A searchable document whose KV waits."""
    engine.stitches = engine.started = True
    document_id = store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts.intake).document_id
    prefiller, ingest.prefiller = ingest.prefiller, Away()
    with pytest.raises(Unavailable):
        ingest_document(document_id, ingest)
    ingest.prefiller = Counting(prefiller)
    return document_id


def ask(parts: Parts) -> Answer:
    """An answer about three passages."""
    ref = parts.default_collection

    async def answer() -> Answer:
        question = Question(ref.tenant_id, ref.collection_id, "Where stood engine number 7?", top_k=3, hops=1)
        *_, last = [event async for event in parts.answerer.stream(question)]
        return last

    return asyncio.run(answer())


def computed(outcome: str) -> float:
    return metrics.kv_computed.labels(outcome)._value.get()


def test_what_it_needs_is_stored_and_ingestion_computes_the_rest(parts: Parts, ingest: IngestParts, document_id: str):
    before = computed("stored")

    answer = ask(parts)

    assert len(answer.passages) == 3
    assert answer.usage.failed_chunks == 0
    assert {passage.source for passage in answer.kv} <= {"disk", "host"}
    assert computed("stored") - before == len(kv_files(parts)) == 3
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    assert 0 < ingest.prefiller.chunks == len(kv_files(parts)) - 3


def test_what_comes_while_ingestion_computes_is_not_computed_again(
    parts: Parts, ingest: IngestParts, document_id: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
    count = ingest.prefiller.prefill

    def asked_meanwhile(batch, keys):
        if not ingest.prefiller.chunks:
            ask(parts)
        count(batch, keys)

    monkeypatch.setattr(ingest.prefiller, "prefill", asked_meanwhile)
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    assert len(kv_files(parts)) - 3 <= ingest.prefiller.chunks < len(kv_files(parts))


@pytest.mark.usefixtures("document_id")
class TestRecomputedInPlace:
    def assert_in_place(self, parts: Parts, *, failed: int = 0) -> None:
        before = computed("failed")
        answer = ask(parts)
        assert answer.text
        assert answer.usage.failed_chunks == 3
        assert not kv_files(parts)
        assert computed("failed") - before == failed

    def test_what_a_rule_does_not_want(self, parts: Parts):
        ref = parts.default_collection
        change_rule(KVOwner(ref.tenant_id, ref.collection_id), KVRulePatch(when="never"), parts)
        self.assert_in_place(parts)

    def test_what_the_disk_has_no_room_for(self, parts: Parts):
        parts.settings = msgspec.structs.replace(parts.settings, min_free_bytes=1 << 60)
        self.assert_in_place(parts, failed=3)

    def test_what_the_engine_fails_at(self, parts: Parts, engine: EchoEngine, monkeypatch: pytest.MonkeyPatch):
        async def fails(prefill: Prefill) -> None:
            raise Unavailable("no KV is computed")

        monkeypatch.setattr(engine, "prefill", fails)
        self.assert_in_place(parts, failed=3)

    def test_what_is_computed_sooner_than_it_is_stored(self, parts: Parts):
        parts.load_cost.computed(1_000_000, seconds=1.0)
        self.assert_in_place(parts)
