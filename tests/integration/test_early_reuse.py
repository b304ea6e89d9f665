"""A question about a document whose prefill is under way: answered at once, with the KV that comes in time."""

import asyncio
import io
import threading
import time

import msgspec
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.answer.incoming import IncomingKV
from ragkv.answer.question import Answer, Question
from ragkv.kv import prefilling
from ragkv.observe import metrics
from ragkv.service.base.status import Status
from ragkv.service.documents.documents import store_document
from ragkv.service.parts import Parts
from tests.integration.test_turns import status
from tests.support.documents import LONG
from tests.support.echo_engine import EchoEngine


class Halting:
    """The real model, which stops before its second batch until it may go on."""

    def __init__(self, prefiller):
        self.prefiller = prefiller
        self.batches = 0
        self.halted, self.may_go_on = threading.Event(), threading.Event()

    def prefill(self, *args):
        self.batches += 1
        if self.batches == 1:
            time.sleep(1)
        if self.batches == 2:
            self.halted.set()
            assert self.may_go_on.wait(60)
        return self.prefiller.prefill(*args)


@pytest.fixture
def halting(parts: Parts, ingest: IngestParts, engine: EchoEngine, monkeypatch: pytest.MonkeyPatch) -> Halting:
    """A worker whose first batch takes a second, so that the next ones are expected to; on a busy machine they may take
    much longer."""
    monkeypatch.setattr(prefilling, "LONGEST", 60.0)
    engine.stitches = engine.started = True
    monkeypatch.setattr("ingest.turn.BATCH_TOKENS", 200)
    parts.settings = msgspec.structs.replace(parts.settings, kv_wait_ms=60_000.0)
    halting = ingest.prefiller = Halting(ingest.prefiller)
    return halting


def ask(parts: Parts) -> tuple[Answer, float]:
    """An answer about all of the document, and the seconds that it took."""
    ref = parts.default_collection

    async def answer() -> Answer:
        question = Question(ref.tenant_id, ref.collection_id, "Where stood engine number 7?", top_k=50, hops=1)
        *_, last = [event async for event in parts.answerer.stream(question)]
        return last

    began = time.perf_counter()
    return asyncio.run(answer()), time.perf_counter() - began


def in_time() -> float:
    return metrics._kv_awaited.labels("in_time")._value.get()


def test_kv_that_is_being_computed_is_awaited_where_that_is_sooner(
    parts: Parts, ingest: IngestParts, halting: Halting, monkeypatch: pytest.MonkeyPatch
):
    """The worker goes on once the question waits."""
    look = IncomingKV._look_again

    def waits(incoming: IncomingKV, keys: set[str]) -> tuple[set[str], set[str]]:
        halting.may_go_on.set()
        return look(incoming, keys)

    monkeypatch.setattr(IncomingKV, "_look_again", waits)
    parts.load_cost.computed(1000, seconds=1000.0)
    document_id = store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts.intake).document_id
    outcomes: list[IngestOutcome] = []
    worker = threading.Thread(target=lambda: outcomes.append(ingest_document(document_id, ingest)))
    worker.start()
    assert halting.halted.wait(60)
    before = in_time()

    answer, _ = ask(parts)

    halting.may_go_on.set()
    worker.join()
    assert outcomes == [IngestOutcome.READY]
    assert in_time() - before >= 2
    assert answer.usage.failed_chunks == 0
    assert {passage.source for passage in answer.kv} <= {"disk", "host"}


def test_what_is_recomputed_sooner_is_not_awaited(parts: Parts, ingest: IngestParts, halting: Halting):
    parts.load_cost.computed(1_000_000, seconds=1.0)
    document_id = store_document(parts.default_collection, "engines.md", io.BytesIO(LONG), parts.intake).document_id
    worker = threading.Thread(target=ingest_document, args=(document_id, ingest))
    worker.start()
    assert halting.halted.wait(60)

    answer, took = ask(parts)

    assert not halting.may_go_on.is_set()
    assert took < 30.0
    assert answer.usage.failed_chunks >= 2
    assert answer.passages
    halting.may_go_on.set()
    worker.join()
    assert status(parts, "default", document_id) is Status.READY
    assert ask(parts)[0].usage.failed_chunks == 0
