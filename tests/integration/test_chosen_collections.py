"""Pages of the dashboard that choose or name collections."""

import pytest

from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.tables import CollectionRow
from ragkv.service.parts import Parts
from tests.support.over_http import ADA, Client, upload


def test_a_collection_that_is_not_there_is_said_to_be_none(client: Client, subtests: pytest.Subtests):
    """Everything would pass for what was asked of it."""
    for path in ("/admin/questions", "/admin/evaluations", "/admin/kv"):
        with subtests.test(path=path):
            assert client.get(path, params={"collection": "gone"}).status_code == 404
            assert client.get(path, params={"collection": "default"}).status_code == 200


def test_a_webhook_names_its_collection_among_any_number(client: Client, parts: Parts):
    names = [f"c{number:03}" for number in range(MAX_PAGE + 1)]
    with parts.database.writing() as session:
        session.add_all(CollectionRow(tenant_id=parts.default_collection.tenant_id, name=name) for name in names)
    hook = {"url": "https://example.com/hook", "collection": names[-1]}
    client.post("/v1/webhooks", json=hook).raise_for_status()

    assert f'<td data-label="Collection">{names[-1]}</td>' in client.get("/admin/webhooks").text


def test_the_playground_and_evaluations_begin_with_a_collection_that_has_documents(client: Client):
    """Not with the default one where that is empty: each first question would find nothing."""
    client.post("/v1/collections", json={"name": "empty"}).raise_for_status()
    client.post("/v1/collections", json={"name": "papers"}).raise_for_status()
    upload(client, ADA, "ada.md", data={"collection": "papers"})
    assert "selected>papers (1 document)<" in client.get("/admin/playground").text
    assert "selected>empty (0 documents)<" in client.get("/admin/playground", params={"collection": "empty"}).text
    assert "selected>papers</option>" in client.get("/admin/evaluations").text
    upload(client, ADA, "ada.md")
    assert "selected>default (1 document)<" in client.get("/admin/playground").text
