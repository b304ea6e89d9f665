"""Tenants never meet: every route of the service is tried with another tenant's ids. The routes are the app's own
list."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from api.access.auth import PUBLIC, Requires
from api.app import create_app
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.base.caller import KEY_SCOPES
from ragkv.service.parts import Parts
from tests.support.issued_keys import issue_key_by_name
from tests.support.openai_bodies import openai_bodies, openai_ids
from tests.support.over_http import Client, upload

SECRET = b"# Treasure\n\nThe xanadu chest lies under the third palm of the western beach.\n"
QUESTION = "Where does the xanadu chest lie?"
NOBODYS = ("/schema", "/admin/login", "/admin/sign-in", "/admin/static")
"""For everybody, and about nobody: test_sessions.py and test_sign_in.py look at them."""


@dataclass
class Owner:
    """A tenant with one of everything. `ids` by the names that paths and bodies give them."""

    key: str
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: HTTPRouteHandler

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def guards(self) -> list[Requires]:
        return [guard for guard in self.handler.resolve_guards() if isinstance(guard, Requires)]

    @property
    def is_public(self) -> bool:
        return bool(self.handler.opt.get(PUBLIC))


OF_THE_WHOLE_SERVICE = {
    "GET /metrics",
    "GET /v1/writer",
    "PUT /v1/writer",
    "DELETE /v1/writer",
}
"""For whoever runs the service: the default tenant."""


def routes_of(app: Any) -> Iterator[Route]:
    for route in app.routes:
        if isinstance(route, HTTPRoute) and not route.path.startswith(NOBODYS):
            for method, (handler, _) in route.route_handler_map.items():
                if method not in ("OPTIONS", "HEAD"):
                    path = route.path_format.replace(":str", "").replace(":path", "").replace(":int", "")
                    yield Route(str(method), path, handler)


def bodies(ids: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Bodies for each route: requests that would succeed for the owner of the ids. One without an entry gets no
    body."""
    collection = ids["collection"]
    chosen = (
        {"collection": collection},
        {"collection": collection, "document_ids": [ids["document_id"]]},
        {"filter": {"place": "beach"}},
    )
    return {
        "POST /v1/collections": [{"json": {"name": "mine"}}],
        "PUT /v1/writer": [{"json": {"name": "embedded"}}],
        "PATCH /v1/collections/{collection}": [{"json": {"name": "renamed"}}],
        "GET /v1/collections/{collection}/events": [{"params": {"until": "finished"}}],
        "GET /v1/documents": [
            {},
            {"params": {"collection": collection}},
            {"params": {"metadata": '{"place": "beach"}'}},
        ],
        "POST /v1/documents": [
            {"files": {"file": ("a.md", b"mine")}},
            {"files": {"file": ("b.md", b"mine too")}, "data": {"collection": collection}},
        ],
        "POST /v1/documents/batch": [
            {"files": [("files", ("c.md", b"one")), ("files", ("d.md", b"two"))]},
            {"files": [("files", ("e.md", b"three"))], "data": {"collection": collection}},
        ],
        "PUT /v1/documents/{document_id}": [{"files": {"file": ("f.md", SECRET)}}],
        "GET /v1/documents/{document_id}/boxes": [{"params": {"start": 0, "end": 5}}],
        "GET /v1/documents/{document_id}/text": [{"params": {"start": 12, "end": 20}}],
        "PUT /v1/questions/retention": [{"json": {"days": 7}}],
        "PATCH /v1/documents/{document_id}": [{"json": {"metadata": {"place": "beach"}}}],
        "PATCH /v1/documents/{document_id}/kv": [{"json": {"pinned": True}}],
        "PATCH /v1/collections/{collection}/kv": [{"json": {"pinned": True}}],
        "PATCH /v1/collections/{collection}/kv/rule": [{"json": {"when": "nth_use", "uses": 2}}],
        "POST /v1/search": [{"json": {"question": QUESTION} | more} for more in ({}, *chosen)],
        "POST /v1/ask": [{"json": {"question": QUESTION} | more} for more in ({}, *chosen)],
        "PUT /v1/answers/{answer_id}/feedback": [{"json": {"rating": "up", "correction": "Below the third palm."}}],
        "GET /v1/questions": [{}, {"params": {"collection": collection}}, {"params": {"rating": "any"}}],
        "GET /v1/questions/export": [{}, {"params": {"collection": collection}}],
        "GET /v1/questions/evaluation": [{}, {"params": {"collection": collection}}],
        "GET /v1/evaluations": [{}, {"params": {"collection": collection}}],
        "POST /v1/evaluations": [
            {"json": {"source": "logged"}},
            {"json": {"collection": collection, "source": "given", "questions": [{"question": QUESTION}]}},
        ],
        "POST /v1/keys": [{"json": {"name": "x"}}],
        "POST /v1/data-sources": [{"json": {"location": "/srv/docs", "collection": collection}}],
        "PATCH /v1/data-sources/{data_source_id}": [{"json": {"paused": True}}],
        "POST /v1/data-sources/{data_source_id}/sync": [{"json": {}}],
        "POST /v1/webhooks": [
            {"json": {"url": "https://example.com/hook"} | more} for more in ({}, {"collection": collection})
        ],
        "POST /mcp": [
            {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}}
            for name, given in (
                ("search", {"question": QUESTION}),
                ("ask", {"question": QUESTION, "filter": {"place": "beach"}}),
                ("list_documents", {}),
                ("add_document", {"name": "g.md", "text": "mine as well"}),
                ("data_sources", {}),
            )
        ],
    } | openai_bodies(ids)


@pytest.fixture
def owner(client: Client, parts: Parts, ingest: IngestParts) -> Owner:
    """Whose things they are."""
    issued = issue_key_by_name("owner", "x", ["admin"], parts.database)
    owner = Owner(issued.key)
    made = client.post("/v1/collections", json={"name": "maps"}, headers=owner.headers).json()
    form = {"collection": made["id"], "metadata": '{"place": "beach"}'}
    document_id = upload(client, SECRET, "treasure.md", data=form, headers=owner.headers).json()["id"]
    notes = upload(
        client, b"# Notes\n\nBuy rope.\n", "notes.md", data={"metadata": '{"place": "beach"}'}, headers=owner.headers
    )
    for document in (document_id, notes.json()["id"]):
        ingest_document(document, ingest)
    owner.ids |= {"document_id": document_id, "key_id": issued.view.id, "collection": made["id"]}
    hook = {"url": "https://example.com/treasure", "collection": made["id"]}
    owner.ids["webhook_id"] = client.post("/v1/webhooks", json=hook, headers=owner.headers).json()["webhook"]["id"]
    source = {"location": "/srv/maps", "collection": made["id"]}
    parts.settings = msgspec.structs.replace(parts.settings, data_sources_allowed="/srv")
    owner.ids["data_source_id"] = client.post("/v1/data-sources", json=source, headers=owner.headers).json()["id"]
    asked = client.post("/v1/ask", json={"question": QUESTION, "collection": made["id"]}, headers=owner.headers).json()
    owner.ids["answer_id"] = asked["id"]
    client.put(f"/v1/answers/{asked['id']}/feedback", json={"rating": "up"}, headers=owner.headers)
    run = {"collection": made["id"]}
    owner.ids["run_id"] = client.post("/v1/evaluations", json=run, headers=owner.headers).json()["id"]
    owner.ids |= openai_ids(client, owner.headers, ingest)
    return owner


@pytest.fixture
def stranger(client: Client, parts: Parts, ingest: IngestParts) -> Owner:
    """Who tries. They have a document of their own, so that asking is possible."""
    stranger = Owner(issue_key_by_name("stranger", "x", ["admin"], parts.database).key)
    ingest_document(
        upload(
            client,
            b"# Mine\n\nNothing.\n",
            "mine.md",
            data={"metadata": '{"place": "beach"}'},
            headers=stranger.headers,
        ).json()["id"],
        ingest,
    )
    return stranger


def requests(route: Route, ids: dict[str, str]) -> Iterator[dict[str, Any]]:
    for body in bodies(ids).get(route.name, [{}]):
        yield {"method": route.method, "url": route.path.format(**ids, number=1), **body}


def test_every_way_in_says_which_scope_it_needs_or_that_it_is_public(parts: Parts):
    for route in routes_of(create_app(parts)):
        assert len(route.guards) == (not route.is_public), route.name
    public = {route.path for route in routes_of(create_app(parts)) if route.is_public}
    assert public == {"/", "/health", "/healthz", "/readyz"}


def test_no_way_in_leads_to_another_tenants_things(client: Client, owner: Owner, stranger: Owner):
    """Another's id is not found, and no answer shows anything of theirs."""
    for route in routes_of(client.app):
        for request in requests(route, owner.ids):
            response = client.request(**request, headers=stranger.headers)

            names_owner = any(value in repr(request) for value in owner.ids.values())
            if names_owner:
                assert response.status_code == 404, (route.name, response.text)
            elif route.name in OF_THE_WHOLE_SERVICE:
                assert response.status_code == 403, (route.name, response.text)
            else:
                assert response.status_code < 300, (route.name, response.text)
            for value in (*owner.ids.values(), "palm", "treasure.md", "rope", "notes.md", "pearls", "reef.md"):
                assert names_owner or value not in response.text, (route.name, value)
    shown = client.get(f"/v1/documents/{owner.ids['document_id']}", headers=owner.headers).json()
    assert (shown["status"], shown["name"]) == ("ready", "treasure.md"), "nothing that the stranger did had an effect"


def test_passages_of_another_tenants_document_are_not_found(client: Client, owner: Owner, stranger: Owner):
    """Asked for by the document's id alone."""
    for route in ("search", "ask"):
        body = {"question": QUESTION, "document_ids": [owner.ids["document_id"]]}
        assert client.post(f"/v1/{route}", json=body, headers=stranger.headers).status_code == 404


def test_every_way_in_works_for_the_owner(client: Client, owner: Owner):
    """The same requests, so that what a stranger gets 404 for is there: first those that wait until all is read, last
    those that remove things. 409 is for the document that is to be tried again, though it did not fail, and
    422 for the pages of a document that is no PDF (test_pages.py looks at those of one that is).
    """
    theirs = (route for route in routes_of(client.app) if route.name not in OF_THE_WHOLE_SERVICE)
    for route in sorted(theirs, key=_events_first_and_deletes_last):
        for request in requests(route, owner.ids):
            response = client.request(**request, headers=owner.headers)
            allowed = response.status_code < 300 or (route.path.endswith("/retry") and response.status_code == 409)
            is_no_pdf = route.path.endswith(("/pages/{number}", "/boxes")) and response.status_code == 422
            assert allowed or is_no_pdf, (route.name, response.text)


def test_every_way_in_needs_a_key(client: Client, owner: Owner):
    for route in routes_of(client.app):
        for request in requests(route, owner.ids):
            refused = client.request(**request, follow_redirects=False).status_code == 401
            assert refused == (not route.is_public), route.name


def test_every_way_in_needs_its_scope(client: Client, owner: Owner, parts: Parts, subtests: pytest.Subtests):
    """403 comes before anything is looked at."""
    for scope in KEY_SCOPES:
        with subtests.test(scope):
            headers = {"Authorization": f"Bearer {issue_key_by_name('owner', 'x', [scope], parts.database).key}"}
            for route in routes_of(client.app):
                narrower = route.guards and KEY_SCOPES.index(route.guards[0].scope) > KEY_SCOPES.index(scope)
                for request in requests(route, dict.fromkeys(owner.ids, "0" * 32)) if narrower else ():
                    assert client.request(**request, headers=headers).status_code == 403, route.name


def test_a_scrapers_key_opens_metrics_alone(client: Client, owner: Owner, parts: Parts):
    headers = {"Authorization": f"Bearer {issue_key_by_name('default', 'prometheus', ['metrics'], parts.database).key}"}
    opened = {
        route.name
        for route in routes_of(client.app)
        for request in requests(route, dict.fromkeys(owner.ids, "0" * 32))
        if not route.is_public and client.request(**request, headers=headers).status_code != 403
    }

    assert opened == {"GET /metrics"}


def _events_first_and_deletes_last(route: Route) -> tuple[bool, bool, bool, int]:
    """What lies within another thing goes before it, a collection after its documents, and the key last of all."""
    holds_others = "{collection}" in route.path or route.path.endswith("{vector_store_id}")
    depth = -route.path.count("/")
    return route.method == "DELETE", not route.path.endswith("/events"), "key" in route.path, depth + 10 * holds_others
