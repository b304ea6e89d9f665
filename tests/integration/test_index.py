"""Both kinds of index hold to the same facts: this process's memory, and Qdrant in its client's local mode and on a
server.

The server is the one that RAGKV_TEST_QDRANT_URL names, or `tests.support.qdrant_server`.
"""

import asyncio
import http.server
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from ragkv.engine.remote import RemoteEngine
from ragkv.errors import Rejected, Unavailable
from ragkv.retrieve import qdrant, sparse
from ragkv.retrieve.index import Point, Vectors
from ragkv.retrieve.memory import MemoryIndex
from ragkv.retrieve.qdrant import COLLECTION, DENSE, SCROLL, QdrantIndex
from tests.support.qdrant_server import QdrantServer

QDRANT_URL = os.environ.get("RAGKV_TEST_QDRANT_URL")
DIM = 4


INDEXES = {
    "memory": MemoryIndex,
    "local": lambda: QdrantIndex(QdrantClient(location=":memory:"), "Qdrant in this process"),
}


@pytest.fixture(scope="module")
def qdrant_url():
    if QDRANT_URL:
        yield QDRANT_URL
        return
    server = QdrantServer()
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(params=["memory", "local", "server"])
def index(request):
    on_server = request.param == "server"
    index = QdrantIndex.connect(request.getfixturevalue("qdrant_url")) if on_server else INDEXES[request.param]()
    index.ensure(DIM)
    yield index
    index.close()


@pytest.fixture
def tenant():
    """A tenant of its own for each test: a server keeps what earlier tests wrote."""
    return f"tenant-{uuid.uuid4().hex}"


def dense(*values: float) -> np.ndarray:
    vector = np.array([*values, *[0.0] * (DIM - len(values))], np.float32)
    return vector / np.linalg.norm(vector)


def point(chunk_id: str, text: str, vector: np.ndarray, document_id: str = "d") -> Point:
    return Point(chunk_id, document_id, "title", Vectors(vector, *sparse.document_vectors([text])[0]))


def query(text: str, vector: np.ndarray) -> Vectors:
    return Vectors(vector, *sparse.query_vector(text))


def ids(hits) -> list[str]:
    return [hit.chunk_id for hit in hits]


THREE = [
    point("bank", "the river bank", dense(1)),
    point("ship", "a ship on the river", dense(1, 1), "e"),
    point("tax", "income tax law", dense(0, 1), "e"),
]


def test_dense_search_orders_by_cosine(index, tenant):
    index.upsert(tenant, "c", THREE)
    assert ids(index.search(tenant, "c", query("", dense(1, 0.1)), 3, "dense")) == ["bank", "ship", "tax"]


def test_sparse_search_finds_only_shared_terms(index, tenant):
    index.upsert(tenant, "c", THREE)
    assert ids(index.search(tenant, "c", query("Ships", dense(1)), 3, "sparse")) == ["ship"]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "sparse"])
def test_only_chunks_of_the_documents_asked_for_are_found(index, tenant, mode):
    index.upsert(tenant, "c", THREE)
    found = index.search(tenant, "c", query("the river bank ship tax", dense(1)), 3, mode, frozenset(["e", "nowhere"]))

    assert set(ids(found)) == {"ship", "tax"}
    assert index.search(tenant, "c", query("river", dense(1)), 3, mode, frozenset()) == []


def test_a_rare_term_outweighs_a_common_one(index, tenant):
    """Modifier.IDF is at work: both texts share one term with the question."""
    common = [point(f"r{i}", "river", dense(1)) for i in range(8)]
    index.upsert(tenant, "c", [*common, point("rare", "glacier", dense(1))])
    assert ids(index.search(tenant, "c", query("river glacier", dense(1)), 1, "sparse")) == ["rare"]


def test_a_term_rare_for_one_tenant_stays_rare_whatever_others_store(index, tenant):
    """In-memory and on servers since Qdrant 1.19, IDF is counted over the collection searched."""
    index.upsert(tenant, "c", [*[point(f"r{i}", "river", dense(1)) for i in range(8)], point("g", "glacier", dense(1))])
    before = index.search(tenant, "c", query("river glacier", dense(1)), 9, "sparse")
    index.upsert(f"{tenant}-other", "c", [point(f"g{i}", "glacier", dense(1)) for i in range(50)])
    assert index.search(tenant, "c", query("river glacier", dense(1)), 9, "sparse")[0] == before[0]


def test_each_term_has_its_holders_unless_it_has_too_many(index, tenant):
    index.upsert(tenant, "c", [*THREE, point("port", "a river port by the river", dense(1))])
    index.upsert(tenant, "other", [point("other", "law", dense(1))])
    terms = np.array([sparse.term_id(word) for word in ("river", "law", "glacier")], np.uint32), np.ones(3, np.float32)

    def holders(limit, document_ids=None):
        return [set(ids(hits)) for hits in index.holders(tenant, "c", terms, limit, document_ids)]

    assert holders(3) == [{"bank", "ship", "port"}, {"tax"}, set()]
    assert holders(2) == [set(), {"tax"}, set()]
    assert holders(2, frozenset("d")) == [{"bank", "port"}, set(), set()]
    assert index.holders(tenant, "nowhere", terms, 3) == [[], [], []]
    (alone,) = index.search(tenant, "c", query("law", dense(1)), 1, "sparse")
    (held,) = index.holders(tenant, "c", terms, 1)[1]
    assert (held.chunk_id, held.document_id) == ("tax", "e")
    assert held.score == pytest.approx(alone.score, rel=1e-5)


def test_hybrid_search_puts_first_what_both_searches_like(index, tenant):
    index.upsert(tenant, "c", THREE)
    hits = index.search(tenant, "c", query("river ship", dense(1, 1)), 3)
    assert ids(hits)[0] == "ship"
    assert hits[0].score == pytest.approx(1.0), "reciprocal rank fusion: 1/2 for each first place"
    assert hits[0].document_id == "e"


def test_a_question_without_terms_is_searched_by_its_dense_vector(index, tenant):
    index.upsert(tenant, "c", THREE)
    assert ids(index.search(tenant, "c", query("of the", dense(0, 1)), 1)) == ["tax"]


def test_a_chunk_without_terms_is_found_by_its_dense_vector(index, tenant):
    index.upsert(tenant, "c", [point("sign", "...", dense(0, 0, 1)), *THREE])
    assert ids(index.search(tenant, "c", query("river", dense(0, 0, 1)), 1, "dense")) == ["sign"]


def test_upserting_twice_changes_nothing(index, tenant):
    index.upsert(tenant, "c", THREE)
    before = index.search(tenant, "c", query("river", dense(1)), 9)
    index.upsert(tenant, "c", THREE)
    assert index.search(tenant, "c", query("river", dense(1)), 9) == before


def test_more_points_than_one_batch_all_arrive(index, tenant):
    index.upsert(tenant, "c", [point(str(i), f"word{i}", dense(1, i)) for i in range(600)])
    assert len(index.search(tenant, "c", query("", dense(1)), 1000, "dense")) == 600


def test_tenants_and_collections_never_see_each_other(index, tenant):
    """The same chunk id may exist in each of them."""
    other = f"{tenant}-other"
    index.upsert(tenant, "c", [point("x", "river", dense(1))])
    index.upsert(other, "c", [point("x", "river", dense(1)), point("y", "river", dense(1))])
    index.upsert(tenant, "c2", [point("z", "river", dense(1))])
    assert ids(index.search(tenant, "c", query("river", dense(1)), 9)) == ["x"]
    assert set(ids(index.search(other, "c", query("river", dense(1)), 9))) == {"x", "y"}
    assert index.dense_of(tenant, "c", ["y", "z"]) == {}


def test_deleting_a_document_leaves_the_others(index, tenant):
    index.upsert(tenant, "c", THREE)
    index.upsert(f"{tenant}-other", "c", THREE)
    index.delete_from_collection(tenant, "c", ["e"])
    assert ids(index.search(tenant, "c", query("river", dense(1)), 9)) == ["bank"]
    assert len(index.search(f"{tenant}-other", "c", query("river", dense(1)), 9)) == 3


def test_deleting_a_collection_leaves_the_others(index, tenant):
    index.upsert(tenant, "c", THREE)
    index.upsert(tenant, "kept", THREE)
    index.delete_collection(tenant, "c")
    assert index.search(tenant, "c", query("river", dense(1)), 9) == []
    assert len(index.search(tenant, "kept", query("river", dense(1)), 9, "dense")) == 3


def test_a_collection_that_does_not_exist_has_no_hits(index, tenant):
    assert index.search(tenant, "nowhere", query("river", dense(1)), 9) == []
    index.delete_from_collection(tenant, "nowhere", ["nothing"])
    index.delete_collection(tenant, "nowhere")


def test_dense_vectors_come_back_as_stored(index, tenant):
    index.upsert(tenant, "c", THREE)
    got = index.dense_of(tenant, "c", ["ship", "unknown"])
    assert list(got) == ["ship"]
    np.testing.assert_allclose(got["ship"], dense(1, 1), atol=1e-6)


@pytest.mark.parametrize("index", ["memory", "server"], indirect=True)
def test_threads_may_write_and_search_at_once(index, tenant):
    """Qdrant's local mode, which only tests use, is for one thread."""

    def work(number: int) -> None:
        for i in range(20):
            index.upsert(tenant, "c", [point(f"{number}-{i}", "river", dense(1, i))])
            index.search(tenant, "c", query("river", dense(1)), 5)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert len(index.search(tenant, "c", query("", dense(1)), 100, "dense")) == 80


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")
def test_memory_ranks_and_scores_as_qdrant_does(mode):
    """The same question finds the same, whichever holds the vectors."""
    random = np.random.default_rng(7)
    words = [f"word{i}" for i in range(60)]
    texts = [" ".join(random.choice(words, size=random.integers(3, 90))) for _ in range(300)]
    points = [point(str(i), text, dense(*random.normal(size=DIM))) for i, text in enumerate(texts)]
    asked = query(" ".join(words[:7]), dense(*random.normal(size=DIM)))
    found = []
    for name in ("memory", "local"):
        index = INDEXES[name]()
        index.ensure(DIM)
        index.upsert("t", "c", points)
        found.append({hit.chunk_id: hit.score for hit in index.search("t", "c", asked, 80, mode)})
        index.close()
    in_memory, in_qdrant = found
    assert len(in_memory) == 80
    assert in_memory == pytest.approx(in_qdrant, rel=1e-4)


def test_a_server_that_is_away_is_unavailable():
    index = QdrantIndex.connect("http://127.0.0.1:9")
    for call in (
        lambda: index.ensure(DIM),
        lambda: index.search("t", "c", query("river", dense(1)), 1),
        lambda: index.delete_from_collection("t", "c", ["d"]),
        index.ping,
    ):
        with pytest.raises(Unavailable, match=r"the Qdrant server \(RAGKV_QDRANT_URL\) does not answer"):
            call()


def test_a_server_is_asked_without_the_proxy_of_others(qdrant_url, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    QdrantIndex.connect(qdrant_url).ensure(DIM)


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def test_a_refused_key_is_named_in_the_error():
    with http.server.HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = QdrantIndex.connect(f"http://127.0.0.1:{server.server_port}", "wrong")
        with pytest.raises(Unavailable, match="RAGKV_QDRANT_API_KEY"):
            index.ensure(DIM)
        server.shutdown()


class _Drips(_Refuses):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b" " * 100)
                time.sleep(0.1)


@pytest.mark.parametrize(("limit", "value"), [("TIMEOUT_S", 1), ("MAX_ANSWER_BYTES", 500)])
def test_an_answer_that_does_not_end_is_given_up(limit: str, value: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(qdrant, limit, value)
    with http.server.HTTPServer(("127.0.0.1", 0), _Drips) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(Unavailable, match="does not answer"):
            QdrantIndex.connect(f"http://127.0.0.1:{server.server_port}").ping()
        server.shutdown()


@pytest.mark.parametrize(
    "asked",
    [
        lambda url: QdrantIndex.connect(url).ping(),
        lambda url: asyncio.run(RemoteEngine(url, None, 100).start()),
    ],
    ids=["qdrant", "engine"],
)
def test_clients_are_not_told_where_a_server_is_that_is_away(
    asked: Callable[[str], None], caplog: pytest.LogCaptureFixture
):
    """The operator is, by the log."""
    with pytest.raises(Unavailable, match=r"does not answer|no vLLM server answers") as raised:
        asked("http://internal.example.invalid:9")

    assert "internal" not in str(raised.value)
    assert "internal.example.invalid" in caplog.text


def test_another_vector_length_is_rejected(qdrant_url):
    index = QdrantIndex.connect(qdrant_url)
    index.ensure(DIM)
    with pytest.raises(Rejected, match="RAGKV_ENCODER"):
        index.ensure(DIM + 1)


def test_indexes_that_a_killed_process_did_not_make_are_made_by_the_next():
    server = QdrantServer()
    server.start()
    client = QdrantClient(url=server.url, check_compatibility=False)
    client.create_collection(COLLECTION, {DENSE: models.VectorParams(size=DIM, distance=models.Distance.COSINE)})
    index = QdrantIndex.connect(server.url)
    index.ensure(DIM)
    made = client.get_collection(COLLECTION).payload_schema
    before = server.requests
    index.ensure(DIM)

    assert made.keys() == {"tenant_id", "collection_id", "document_id"}
    assert server.requests - before == 2, "what is there is not made again"
    server.stop()


def test_a_server_that_lost_its_collection_finds_nothing_which_is_no_answer():
    server = QdrantServer()
    server.start()
    index = QdrantIndex.connect(server.url)
    index.ensure(DIM)
    QdrantClient(url=server.url, check_compatibility=False).delete_collection(COLLECTION)
    for call in (
        lambda: index.search("t", "c", query("river", dense(1)), 1),
        lambda: index.upsert("t", "c", THREE),
        index.ping,
    ):
        with pytest.raises(Unavailable, match="fsck --repair"):
            call()
    server.stop()


def test_a_server_tells_how_many_points_there_are_of_each_document(qdrant_url, tenant):
    """More documents than one page of its answer holds."""
    index = QdrantIndex.connect(qdrant_url)
    index.ensure(DIM)
    points = [point(str(i), "river", dense(1), f"d{i % 3}") for i in range(SCROLL + 2)]
    index.upsert(tenant, "c", points)
    held = {place.document_id: count for place, count in index.held().items() if place.tenant_id == tenant}

    assert held == {"d0": 334, "d1": 334, "d2": 334}


def test_a_server_that_was_away_for_a_while_serves_again(tenant):
    """The same client goes on: nothing it holds has to be made anew."""
    server = QdrantServer()
    server.start()
    index = QdrantIndex.connect(server.url)
    index.ensure(DIM)
    index.upsert(tenant, "c", THREE)
    server.stop()
    with pytest.raises(Unavailable):
        index.search(tenant, "c", query("river", dense(1)), 3)
    server.start()

    assert len(index.search(tenant, "c", query("", dense(1)), 3, "dense")) == 3
    server.stop()
