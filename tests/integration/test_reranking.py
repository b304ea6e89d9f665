"""Search with RAGKV_RERANKER=qcache: the engine has a say in the order, and searching does without it."""

import msgspec
import pytest

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.errors import Rejected
from ragkv.heads import heads_for, write_heads
from ragkv.parts import Parts
from ragkv.settings import Settings
from tests.echo_engine import EchoEngine
from tests.over_http import Client, upload
from tests.unit.test_heads import FOUND

ASKED = {"question": "How many wheels had the analytical engine?", "top_k": 3}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, reranker="qcache")


@pytest.fixture
def heads(parts: Parts) -> None:
    """Heads of the served model."""
    write_heads(parts.settings.heads_file, msgspec.structs.replace(FOUND, model_fingerprint=parts.model_fingerprint))


@pytest.fixture
def retrieved(client: Client, ingest: IngestParts, parts: Parts) -> list[str]:
    """Texts of all passages there are, as retrieval alone orders them."""
    for number in range(4):
        body = f"Note {number}: the analytical engine had {number + 3} wheels.".encode()
        ingest_document(str(upload(client, body, f"{number}.txt").json()["id"]), ingest)
    ref = parts.default_collection
    found = parts.retriever.search(ref.tenant_id, ref.collection_id, ASKED["question"], 20, 2)
    assert len(found) == 4
    return [passage.chunk.text for passage in found]


def texts(client: Client) -> list[str]:
    return [passage["text"] for passage in client.post("/v1/search", json=ASKED).json()["passages"]]


@pytest.mark.usefixtures("heads")
def test_passages_come_in_both_orders(client: Client, retrieved: list[str]):
    """The engine of these tests finds the last ones best."""
    assert texts(client) == [retrieved[0], retrieved[3], retrieved[1]]


@pytest.mark.usefixtures("heads")
def test_a_vector_store_is_searched_as_questions_search_it(client: Client, retrieved: list[str], parts: Parts):
    body = {"query": ASKED["question"], "max_num_results": 3}
    found = client.post(f"/v1/vector_stores/{parts.default_collection.collection_id}/search", json=body).json()["data"]

    assert [one["content"][0]["text"] for one in found] == texts(client) == [retrieved[0], retrieved[3], retrieved[1]]


@pytest.mark.usefixtures("heads")
def test_while_the_engine_fails_they_come_as_retrieved(client: Client, retrieved: list[str], engine: EchoEngine):
    engine.fail_after = 0

    assert texts(client) == retrieved[:3]


def test_a_model_whose_heads_nobody_found_says_what_to_do(parts: Parts):
    parts.__dict__["model_fingerprint"] = "another"

    with pytest.raises(Rejected, match="calibrate-heads"):
        assert parts.searcher


def test_the_embedded_models_heads_come_with_ragkv(parts: Parts):
    heads = heads_for(parts.model_fingerprint, parts.settings.heads_file)

    assert heads.objections() == []
    assert max(layer for layer, _ in heads.heads) < parts.layout.layers
