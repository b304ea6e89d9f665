"""What one client, one key or one tenant may take of the service: the rest is there for the others."""

import json
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import msgspec
import pytest

from api.access import concurrency
from api.access.admission import Refusals
from api.access.tarpit import AT_ONCE
from api.http.files import FIELD_BYTES
from api.http.server import TimedProtocol
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.errors import Throttled
from ragkv.observe import metrics
from ragkv.service.access.rate import RateLimit
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.redis import connect
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.echo_engine import EchoEngine
from tests.support.issued_keys import issue_key_by_name
from tests.support.over_http import (
    ADA,
    Client,
    answer_to,
    assert_problem,
    client_of,
    opened,
    serving,
    upload,
    wait_until,
)

GRACE_S = 0.4
QUESTION = {"question": "Who wrote the first program?"}
FORM = b"POST /v1/documents HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\nContent-Type: multipart/form-data; boundary=x\r\n"

FILE = b'Content-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n'


def key_of(parts: Parts, tenant: str) -> dict[str, str]:
    key = issue_key_by_name(tenant, "x", ["admin"], parts.database).key
    return {"authorization": f"Bearer {key}"}


def timed(client: Client, headers: dict[str, str], status: int) -> float:
    began = time.monotonic()
    assert client.get("/v1/documents", headers=headers).status_code == status
    return time.monotonic() - began


class TestRates:
    def test_more_keys_do_not_make_more_requests(self, parts: Parts, settings: Settings, redis_server: EmbeddedRedis):
        parts.settings = msgspec.structs.replace(settings, tenant_requests_per_minute=3)
        keys, other = [key_of(parts, "default") for _ in range(2)], key_of(parts, "other")
        with client_of(parts) as client:
            codes = [client.get("/v1/documents", headers=keys[i % 2]).status_code for i in range(3)]
            refused = [client.get("/v1/documents", headers=key) for key in keys]
            passed = client.get("/v1/documents", headers=other)

        assert codes == [200] * 3
        for response in refused:
            assert_problem(response, 429, "RAGKV_TENANT_REQUESTS_PER_MINUTE")
        assert passed.status_code == 200

    def test_who_is_refused_again_and_again_is_answered_late_and_nobody_else(
        self, parts: Parts, settings: Settings, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        late_s = 3.0  # far longer than an answer takes
        monkeypatch.setattr("api.access.tarpit.LONGEST_S", late_s)
        parts.settings = msgspec.structs.replace(settings, refusals_per_minute=1)
        wrong, right = {"authorization": "Bearer rk_wrong"}, key_of(parts, "default")
        with client_of(parts) as client:
            seconds = [timed(client, wrong, 401) for _ in range(AT_ONCE + 1)]
            other = timed(client, right, 200)

        assert max(seconds[:AT_ONCE]) < late_s <= seconds[AT_ONCE]
        assert other < late_s

    def test_a_clock_that_is_set_back_makes_nobody_wait(self, settings: Settings, redis_server: EmbeddedRedis):
        client = connect(settings)
        client.set("ragkv:rate:a", str((int(time.time()) + 3600) * 1_000_000))
        limit = RateLimit(client, 2, fails_open=False)
        limit.take("a")
        limit.take("a")

        with pytest.raises(Throttled) as refused:
            limit.take("a")
        assert refused.value.retry_after_s <= 30

    def test_a_refusal_is_remembered_for_a_moment(self):
        refusals = Refusals()
        refusals.note("rk_1", Throttled("wait", retry_after_s=1.0))
        refusals.check("rk_2")
        with pytest.raises(Throttled):
            refusals.check("rk_1")
        time.sleep(1.05)
        refusals.check("rk_1")


class TestQuestions:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, max_questions=1)

    def test_a_tenant_has_so_many_questions_answered_at_once_and_the_next_wait(
        self, client: Client, parts: Parts, engine: EchoEngine, answerable: str
    ):
        owner, other = key_of(parts, "default"), key_of(parts, "other")
        engine.piece_s = 0.3
        with ThreadPoolExecutor() as threads:
            ask = partial(threads.submit, client.post, "/v1/ask", json=QUESTION, headers=owner)
            answers = [ask() for _ in range(3)]
            wait_until(lambda: waiting() == 2)
            assert client.post("/v1/ask", json=QUESTION, headers=other).json()["no_passages"]
        assert [answer.result().status_code for answer in answers] == [200] * 3
        assert waiting() == 0

    def test_one_that_has_waited_for_long_is_refused(
        self, client: Client, parts: Parts, engine: EchoEngine, answerable: str, monkeypatch: pytest.MonkeyPatch
    ):
        owner = key_of(parts, "default")
        engine.piece_s = 0.5
        monkeypatch.setattr(concurrency, "LONGEST_WAIT_S", 0.1)
        with ThreadPoolExecutor() as threads:
            answer = threads.submit(client.post, "/v1/ask", json=QUESTION, headers=owner)
            wait_until(lambda: engine.running)
            refused = client.post("/v1/ask", json=QUESTION, headers=owner)
        assert_problem(refused, 429, "RAGKV_MAX_QUESTIONS")
        assert int(refused.headers["retry-after"]) > 0
        assert answer.result().status_code == 200
        engine.piece_s = 0
        assert client.post("/v1/ask", json=QUESTION, headers=owner).status_code == 200

    def test_a_client_that_goes_away_leaves_the_queue(
        self, parts: Parts, engine: EchoEngine, ingest: IngestParts, redis_server: EmbeddedRedis
    ):
        engine.piece_s = 60
        owner, body = key_of(parts, "default"), json.dumps(QUESTION).encode()
        head = f"POST /v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {owner['authorization']}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with serving(parts) as served:
            ingest_document(upload(served, headers=owner).json()["id"], ingest)
            with opened(served, head.encode() + body):
                wait_until(lambda: engine.running)
                with opened(served, head.encode() + body):
                    wait_until(lambda: waiting() == 1)
                wait_until(lambda: waiting() == 0, 5)
                assert engine.running == 1


def waiting() -> float:
    """Questions of this process that wait."""
    return metrics.OURS.get_sample_value("ragkv_questions_waiting") or 0.0


class TestForms:
    def test_a_field_that_is_no_file_has_a_bounded_size(self, client: Client):
        for size, status in ((FIELD_BYTES - 100, 422), (FIELD_BYTES + 1, 413)):
            refused = upload(client, data={"metadata": '{"a": "' + "x" * size + '"}'})
            assert refused.status_code == status
        assert_problem(refused, 413, "metadata")

    def test_a_form_has_so_many_fields(self, client: Client):
        assert_problem(client.post("/v1/documents", files=[("file", ("a.md", ADA))] * 1001), 413, "1000 fields")

    def test_a_large_file_lies_in_the_data_folder_while_it_comes(
        self, client: Client, parts: Parts, monkeypatch: pytest.MonkeyPatch
    ):
        """Not in the temporary folder, which may be in memory."""
        monkeypatch.setattr(tempfile, "tempdir", str(parts.settings.data_dir / "nowhere"))

        assert upload(client, ADA * 1000).status_code == 202

    def test_what_is_no_form_is_refused(self, client: Client, subtests: pytest.Subtests):
        for body in [b"", b"nonsense", b"--x\r\n", b"--x\r\n\r\n\r\n--x--", b"--x--"]:
            with subtests.test(body=body):
                kind = {"content-type": "multipart/form-data; boundary=x"}
                assert_problem(client.post("/v1/documents", content=body, headers=kind), 400)


class TestConnections:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, max_uploads=2)

    @pytest.fixture
    def served(
        self, parts: Parts, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[httpx.Client]:
        monkeypatch.setattr(TimedProtocol, "headers_s", GRACE_S)
        with serving(parts, body_grace_s=GRACE_S) as client:
            yield client

    @pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
    def test_a_connection_without_a_whole_request_is_closed(self, served: httpx.Client, sent: bytes):
        assert answer_to(served, sent) == b""

    def test_a_second_request_is_timed_like_the_first(self, served: httpx.Client):
        whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

        assert answer_to(served, whole + b"GET /healthz HT").count(b"200 OK") == 1

    @pytest.mark.parametrize(
        "head", [FORM, FORM.replace(b"documents", b"ask").replace(b"multipart/form-data", b"application/json")]
    )
    def test_a_body_that_does_not_come_is_not_waited_for(self, served: httpx.Client, head: bytes):
        answer = answer_to(served, head + b"\r\n--x\r\n")

        assert answer.startswith(b"HTTP/1.1 408")
        assert b"send it again" in answer

    def test_what_came_fast_buys_no_long_silence(self, served: httpx.Client):
        head = FORM.replace(b"100000", b"10000000") + b"\r\n--x\r\n" + FILE

        began = time.monotonic()
        answer = answer_to(served, head + b"x" * 64 * 16 * 1024)

        assert answer.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 10

    def test_an_upload_that_is_no_multipart_form_is_refused_unread(
        self, served: httpx.Client, subtests: pytest.Subtests
    ):
        for way, status in [
            (b"POST /v1/documents", b"415"),
            (b"POST /v1/documents/batch", b"415"),
            (b"PUT /v1/documents/" + b"0" * 32, b"415"),
            (b"POST /v1/files", b"400"),
        ]:
            for kind in [b"application/x-www-form-urlencoded", b"application/json", b""]:
                with subtests.test(way=way, kind=kind):
                    head = FORM.replace(b"POST /v1/documents", way).replace(b"multipart/form-data; boundary=x", kind)
                    head += b"Connection: close\r\n"

                    answer = answer_to(served, head + b"\r\na&a&")

                    assert answer.startswith(b"HTTP/1.1 " + status)
                    assert b"send the file as multipart/form-data" in answer

    @pytest.mark.parametrize("connection", [b"", b"Connection: close\r\n"])
    def test_a_response_that_came_before_the_whole_body_is_the_connections_last(
        self, served: httpx.Client, connection: bytes
    ):
        """And it is not lost: nginx still sends the body, as clients that read nothing meanwhile do. Without the header
        HAProxy 2.6 sends another client's request where the server reads the rest of the body."""
        head = FORM.replace(b"multipart/form-data; boundary=x", b"text/plain") + connection + b"\r\n"
        with opened(served, head + b"x" * 1000) as sending:
            wait_until(lambda: answered(sending, within_s=0.01))
            for piece in (b"x" * 49_000, b"x" * 50_000 + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
                sending.sendall(piece)
                time.sleep(0.1)  # a connection that was reset says so at the next call

            answer = b"".join(iter(partial(sending.recv, 65536), b""))

        assert answer.startswith(b"HTTP/1.1 415") and answer.count(b"HTTP/1.1") == 1
        assert b"\r\nconnection: close\r\n" in answer

    def test_a_whole_body_that_was_not_read_leaves_its_connection_open(self, served: httpx.Client):
        request = FORM.replace(b"multipart/form-data; boundary=x", b"text/plain").replace(b"100000", b"2") + b"\r\nab"

        assert answer_to(served, request * 2 + b"GET").count(b"HTTP/1.1 415") == 2

    def test_uploads_beyond_the_limit_are_refused_before_they_are_read(self, parts: Parts, redis_server: EmbeddedRedis):
        keys = [key_of(parts, name) for name in ("default", "second", "third")]
        with serving(parts, body_grace_s=60) as served:
            halves = [held_upload(served, key) for key in keys[:2]]
            try:
                assert_problem(served.post("/v1/documents", headers=keys[2]), 429, "RAGKV_MAX_UPLOADS")
                assert_problem(served.post("/v1/documents", headers=keys[0]), 429, "RAGKV_MAX_UPLOADS")
            finally:
                for half in halves:
                    half.close()
            wait_until(lambda: upload(served, headers=keys[2]).status_code in (200, 202))


def held_upload(served: httpx.Client, key: dict[str, str]) -> socket.socket:
    """A connection whose upload, of which the rest never comes, has its tenant's one place."""
    connection = opened(served, form_of(key))
    while served.post("/v1/documents", headers=key).status_code != 429:
        if answered(connection, within_s=0.01):
            # The request above was first, so the upload was the one that was refused.
            connection.close()
            connection = opened(served, form_of(key))
    return connection


def answered(connection: socket.socket, within_s: float) -> bool:
    connection.settimeout(within_s)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    return True


def form_of(key: dict[str, str]) -> bytes:
    return FORM + f"Authorization: {key['authorization']}\r\n\r\n--x\r\n".encode()
