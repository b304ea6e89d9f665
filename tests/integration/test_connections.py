"""Requests as clients write them, byte by byte: offers of other protocols, malformed ones, broken bodies."""

import logging
import shutil
import subprocess
import time
from collections.abc import Iterator

import httpx
import pytest

from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.parts import Parts
from tests.support.over_http import answer_to, opened, serving, wait_until

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@pytest.fixture
def served(parts: Parts, redis_server: EmbeddedRedis) -> Iterator[httpx.Client]:
    with serving(parts) as client:
        yield client


def naming(name: str, offer: bytes = OFFER, version: bytes = b"1.1", *, chunked: bool = False) -> bytes:
    """A request that makes a collection of this name."""
    body = b'{"name": "%s"}' % name.encode()
    framed = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n%s"
    head = b"POST /v1/collections HTTP/%s\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%s" % (version, offer)
    return head + framed % (len(body), body)


def names_of(served: httpx.Client) -> set[str]:
    return {item["name"] for item in served.get("/v1/collections").json()["items"]} - {"default"}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")]


def collection_statuses(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Status of each request of the access log that would make a collection."""
    records = [record for record in caplog.records if record.name == "ragkv.access"]
    return [vars(record)["status"] for record in records if vars(record)["route"] == "/v1/collections"]


class TestOffers:
    """`Upgrade` is ignored (RFC 9110, 7.8)."""

    def test_the_body_behind_an_offer_is_read(
        self, served: httpx.Client, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ):
        close = OFFER.replace(b"Upgrade,", b"close, Upgrade,")
        for case, sent in {
            "plain": naming("plain") + PROBE,
            "chunked": naming("chunked", chunked=True) + PROBE,
            "closing": naming("closing", close),
            "old": naming("old", close, b"1.0"),
            "other": naming("other", b"Upgrade: TLS/1.2, h2c\r\nConnection: upgrade\r\n") + PROBE,
            "websocket": naming("websocket", b"Connection: Upgrade\r\nUpgrade: websocket\r\n") + PROBE,
        }.items():
            with subtests.test(case):
                answer = answer_to(served, sent)

                assert answer.startswith(b"HTTP/1.1 201")
                assert answer.count(b"200 OK") == (PROBE in sent)
                assert case in names_of(served)
        assert messages(caplog) == []

    def test_offers_one_behind_the_other_are_each_answered(self, served: httpx.Client):
        names = [f"a{number}" for number in range(5)]

        answer = answer_to(served, b"".join(map(naming, names)) + PROBE)

        assert answer.count(b"201 Created") == len(names)
        assert names_of(served) == set(names)

    def test_a_body_that_comes_later_in_pieces_is_read(self, served: httpx.Client):
        sent = naming("slowly") + PROBE
        with opened(served, sent[:40]) as connection:
            for piece in (sent[40:-90], sent[-90:-80], sent[-80:]):
                time.sleep(0.05)
                connection.sendall(piece)
            received = b""
            while more := connection.recv(65536):
                received += more

        assert received.startswith(b"HTTP/1.1 201")

    def test_a_tunnel_is_refused(self, served: httpx.Client):
        assert answer_to(served, b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n").startswith(
            b"HTTP/1.1 400"
        )

    @pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
    def test_curl_that_offers_http_2_is_answered(self, served: httpx.Client):
        command = ["curl", "--silent", "--http2", "--json", '{"name": "curled"}', f"{served.base_url}/v1/collections"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

        assert names_of(served) == {"curled"}


class TestMalformed:
    def test_a_malformed_request_is_the_clients_fault_in_the_log(
        self, served: httpx.Client, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ):
        caplog.set_level(logging.INFO, "ragkv.access")
        whole = naming("x", b"", chunked=True)
        for case, sent in {
            "request line": b"{}: 1\r\n\r\n",
            "address": b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n",
            "address behind an offer": b"GET http://[ HTTP/1.1\r\nHost: a\r\n" + OFFER + b"\r\n",
            "chunk": whole.replace(b"\r\n0\r\n", b"\r\nzz\r\n"),
            "chunk behind an offer": naming("x", chunked=True).replace(b"\r\n0\r\n", b"\r\nzz\r\n"),
            "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        }.items():
            with subtests.test(case):
                assert answer_to(served, sent).startswith(b"HTTP/1.1 400")
        opened(served, whole[:-10]).close()

        wait_until(lambda: len(collection_statuses(caplog)) == 3)
        assert collection_statuses(caplog) == [499] * 3
