"""The planning page: a plan for the served model and known ones, and a word for what cannot be."""

import pytest

from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.tables import CollectionRow
from ragkv.service.collections.collections import num_documents
from ragkv.service.parts import Parts
from tests.support.over_http import Client, upload


def test_the_served_model_is_planned_for(client: Client):
    text = client.get("/admin/kv/plan").text

    assert "22.5 KiB" in text or "22 KiB" in text
    assert text.count("<tr") == 1 + 4 * 3


def test_figures_of_the_form_take_the_place_of_usual_ones(client: Client):
    asked = {"model": "Llama-3.1-8B", "disk": "2", "documents": "50", "recomputed": "0"}

    text = client.get("/admin/kv/plan", params=asked).text

    assert "RAGKV_KV_FORMAT=int4" in text
    assert 'name="documents" type="number" min="0" step="1" required value="50"' in text


def test_the_documents_of_all_collections_are_counted(client: Client, parts: Parts):
    tenant_id = parts.default_collection.tenant_id
    names = [f"c{number:03}" for number in range(MAX_PAGE + 1)]
    with parts.database.writing() as session:
        session.add_all(CollectionRow(tenant_id=tenant_id, name=name) for name in names)
    for body, collection in ((b"first", "default"), (b"last", names[-1])):
        upload(client, body, "a.txt", data={"collection": collection}).raise_for_status()

    assert num_documents(tenant_id, parts.database) == 2
    text = client.get("/admin/kv/plan").text
    assert 'name="documents" type="number" min="0" step="1" required value="2"' in text


def test_what_cannot_be_is_said_beside_the_form(client: Client, subtests: pytest.Subtests):
    for asked, said in [
        ({"model": "/etc"}, "no model /etc"),
        ({"model": "../../secrets"}, "no model"),
        ({"tokens": "many"}, "tokens: give a number"),
        ({"tokens": "nan"}, "tokens: give a number"),
        ({"documents": "1e999"}, "documents: give a number"),
        ({"disk": "1e-310"}, "disk: give a number from 1e-06"),
        ({"network": "5e-324"}, "network: give a number"),
        ({"context": "0"}, "must be 1 or more"),
        ({"disk": "0"}, "above 0"),
        ({"recomputed": "1"}, "must be at least 0 and below 1"),
    ]:
        with subtests.test(asked=asked):
            response = client.get("/admin/kv/plan", params=asked)

            assert response.status_code == 200
            assert said in response.text
            assert "<table>" not in response.text


def test_a_figure_that_cannot_be_leaves_the_others_as_typed(client: Client):
    text = client.get("/admin/kv/plan", params={"documents": "50", "disk": "1e13"}).text

    assert "disk: give a number" in text
    assert 'value="50"' in text
    assert 'value="1e+13"' in text
