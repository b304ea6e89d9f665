"""HEAD where GET is, and the ways that lead people and machines in."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute

from api.admin.responses import PATH
from api.http.sse import EVENT_STREAM
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.parts import Parts
from tests.support.over_http import ADA, Client, answer_to, serving, upload

PASSING = frozenset({"date", "x-request-id", "content-length", "set-cookie"})
"""Headers that differ between two requests; `content-length` where the body tells the time."""
PROBE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
EVENTS = "/v1/collections/default/events"


@pytest.fixture
def served(parts: Parts, redis_server: EmbeddedRedis) -> Iterator[httpx.Client]:
    with serving(parts) as client:
        yield client


def lasting(response: httpx.Response) -> dict[str, Any]:
    headers = {name: value for name, value in response.headers.items() if name not in PASSING}
    return headers | {"status": response.status_code, "sized": "content-length" in response.headers}


def test_head_is_get_without_the_body_everywhere(client: Client, answerable: str, subtests: pytest.Subtests):
    ids = {"collection": "default", "document_id": answerable, "vector_store_id": "default"}
    paths = [
        route.path_format for route in client.app.routes if isinstance(route, HTTPRoute) and "GET" in route.methods
    ]
    for path in (path.replace(":str", "").replace(":path", "").replace(":int", "") for path in paths):
        names = {part.partition("}")[0] for part in path.split("{")[1:]}
        url = path.format_map({name: ids.get(name, "1") for name in names})
        if url.endswith("/events"):
            continue
        with subtests.test(url):
            head, got = (client.request(method, url, follow_redirects=False) for method in ("HEAD", "GET"))

            assert lasting(head) == lasting(got)
            assert head.content == b""
    assert len(paths) > 60


def test_head_of_a_stream_ends_and_takes_no_place(served: httpx.Client):
    began = time.monotonic()
    for _ in range(30):  # more than there are streams for one caller
        head = served.head(EVENTS)
        assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, EVENT_STREAM)
    assert time.monotonic() - began < 10


def test_nothing_lies_on_the_connection_behind_head(served: httpx.Client):
    document_id = upload(served, ADA * 1000).json()["id"]
    paths = ("/healthz", "/v1/documents", f"/v1/documents/{document_id}/file", EVENTS, "/nowhere", "/v1/ask", "/")
    heads = b"".join(b"HEAD %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode() for path in paths)

    *answers, last = answer_to(served, heads + PROBE).split(b"HTTP/1.1 ")[1:]

    assert [answer[:3] for answer in answers] == [b"200", b"200", b"200", b"200", b"404", b"405", b"302"]
    assert all(answer.endswith(b"\r\n\r\n") and answer.count(b"\r\n\r\n") == 1 for answer in answers)
    assert b"content-length: %d\r\n" % (len(ADA) * 1000) in answers[2]
    assert last.endswith(b'{"status":"ok"}')


def test_the_log_tells_head_from_get_and_gives_each_status_as_a_number(
    client: Client, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "ragkv.access")
    client.head("/v1/documents")
    upload(client)

    records = [vars(record) for record in caplog.records if record.name == "ragkv.access"]
    assert [(record["method"], record["route"], repr(record["status"])) for record in records] == [
        ("HEAD", "/v1/documents", "200"),
        ("POST", "/v1/documents", "202"),
    ]


def test_what_a_path_refuses_names_head_as_well(client: Client):
    assert client.patch("/v1/documents").headers["allow"].count("GET, HEAD") == 1
    refused = client.head("/v1/ask")
    assert (refused.status_code, refused.content, "GET" in refused.headers["allow"]) == (405, b"", False)


def test_the_root_leads_to_the_dashboard(client: Client):
    assert client.get("/", follow_redirects=False).headers["location"] == PATH
    assert client.get("/", headers={"accept": "text/html"}).url.path == PATH
