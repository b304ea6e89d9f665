"""What a body says it is: every way that reads JSON takes JSON alone."""

import gzip
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from api.http.bodies import PIECE_BYTES, decompressed
from api.openai.errors import PATHS
from api.schema.document import Json
from tests.integration.test_mcp import message
from tests.support.over_http import ADA, Client, assert_problem

JSON_KINDS = ("application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json")
ZIPPED = {"content-encoding": "gzip"}
OTHER_KINDS = (
    "text/plain",
    "text/plain; x=application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonx",
    "json",
)


@pytest.fixture
def document(client: Client) -> Json:
    return dict(client.get("/schema/openapi.json").json())


def json_ways(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                yield method, path, operation


def status_of(client: Client, method: str, path: str, kind: str | None, body: object) -> int:
    headers = {} if kind is None else {"content-type": kind}
    response = client.request(method, path.replace("{", "").replace("}", ""), content=json.dumps(body), headers=headers)
    return response.status_code


def test_what_says_it_is_something_else_than_json_is_refused(client: Client, document: Json):
    """OpenAI's clients know no 415: they get 400, as for everything that will not do."""
    ways = list(json_ways(document))
    for method, path, operation in ways:
        refused = 400 if path.startswith(PATHS) else 415
        example = operation["requestBody"]["content"]["application/json"]["example"]
        for kind in OTHER_KINDS:
            assert status_of(client, method, path, kind, example) == refused, (method, path, kind)
        assert str(refused) in operation["responses"], (method, path)
    assert len(ways) > 15


@pytest.mark.parametrize("kind", [*JSON_KINDS, None])
def test_json_and_what_says_nothing_is_read(client: Client, kind: str | None):
    assert status_of(client, "POST", "/v1/collections", kind, {"name": "papers"}) == 201
    assert status_of(client, "PATCH", "/v1/collections/papers", kind, {"name": "books"}) == 200
    assert status_of(client, "POST", "/v1/vector_stores", kind, {"name": "stores"}) == 200


def test_the_refusal_says_what_to_send(client: Client):
    """As when another site's page posts JSON as text, which browsers let it do."""
    response = client.post("/v1/search", content='{"question": "x?"}', headers={"content-type": "text/plain"})

    assert_problem(response, 415, "Content-Type: application/json")


def test_an_empty_body_is_called_empty(client: Client):
    assert client.post("/v1/search").json()["errors"] == [
        {"message": "the body is empty: send JSON", "key": "data", "source": "body"}
    ]


@pytest.mark.parametrize(
    "form", [[("file", (None, b"x"))], [("file", ("a.md", b"x")), ("file", ("b.md", b"y"))]], ids=["as text", "twice"]
)
def test_a_file_sent_as_text_or_twice_is_refused_with_what_to_send(client: Client, form: list[Any]):
    (error,) = client.post("/v1/documents", files=form).json()["errors"]
    assert (error["key"], error["message"]) == ("file", "expected one file, sent with a file name")


def test_a_form_field_is_in_a_common_charset(client: Client, subtests: pytest.Subtests):
    """Python's other codecs take seconds for a field, or make text that no database takes."""

    def sent(charset: str) -> Any:
        field = f'Content-Disposition: form-data; name="collection"\r\nContent-Type: text/plain; charset={charset}'
        file = 'Content-Disposition: form-data; name="file"; filename="a.md"'
        body = f"--x\r\n{field}\r\n\r\ndefault\r\n--x\r\n{file}\r\n\r\ntext\r\n--x--\r\n"
        headers = {"content-type": "multipart/form-data; boundary=x"}
        return client.post("/v1/documents", content=body.encode(), headers=headers)

    for charset in ("punycode", "unicode_escape", "utf-16", "undefined", "none-such"):
        with subtests.test(charset):
            assert_problem(sent(charset), 400, "UTF-8")
    assert [sent(charset).status_code for charset in ("UTF-8", "ISO-8859-1")] == [202, 200]


def test_a_value_that_a_list_does_not_have_is_refused_with_those_it_has(client: Client):
    (error,) = client.get("/v1/documents", params={"status": "gone"}).json()["errors"]
    assert error["message"].endswith("use 'accepted', 'parsing', 'indexing', 'searchable', 'ready' or 'failed'")
    (error,) = client.post("/v1/keys", json={"name": "x", "scopes": ["x"]}).json()["errors"]
    assert error["message"].endswith("use 'admin', 'metrics', 'read' or 'write'")


def test_a_value_that_a_dependency_does_not_take_is_refused_with_those_it_takes(client: Client):
    (error,) = client.get("/v1/questions", params={"rating": "x"}).json()["errors"]
    assert error["message"].endswith("use 'any', 'down', 'none' or 'up'")
    error = client.get("/v1/vector_stores", params={"order": "x"}).json()["error"]
    assert error["message"].endswith("use 'asc' or 'desc'")


def test_a_form_that_refuses_unknown_fields_is_described_so(client: Client, document: Json, subtests: pytest.Subtests):
    for path, form, fields in [
        ("/v1/documents", "Upload", {"file": ("a.md", b"x")}),
        ("/v1/documents/batch", "Uploads", {"files": ("a.md", b"x")}),
        ("/v1/files", "FileForm", {"file": ("a.md", b"x"), "purpose": (None, "assistants")}),
    ]:
        with subtests.test(path):
            assert "unknown field" in client.post(path, files=fields | {"more": (None, "x")}).text
            assert document["components"]["schemas"][form]["additionalProperties"] is False


def zipped_form(body: bytes) -> tuple[bytes, dict[str, str]]:
    """A gzip'd form with one file, and its headers."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n'
    return gzip.compress(head + body + b"\r\n--x--\r\n"), ZIPPED | {"content-type": "multipart/form-data; boundary=x"}


class TestGzip:
    def test_a_gzipped_body_is_read(self, client: Client):
        zipped = gzip.compress(b'{"name": "papers"}')
        form, headers = zipped_form(ADA * 3000)

        assert client.post("/v1/collections", content=zipped, headers=ZIPPED).status_code == 201
        uploaded = client.post("/v1/documents", content=form, headers=headers)
        assert uploaded.status_code == 202
        assert client.get(f"/v1/documents/{uploaded.json()['id']}/file").content == ADA * 3000
        headers = {"content-encoding": "X-GZIP", "content-type": "application/json", "accept": "application/json"}
        call = gzip.compress(json.dumps(message()).encode())
        assert "result" in client.post("/mcp", content=call, headers=headers).json()

    def test_what_it_expands_to_is_held_to_the_limit(self, client: Client):
        """A few bytes may expand to a thousand times as many."""
        bomb = gzip.compress(bytes(4 * 1024 * 1024))
        assert_problem(client.post("/v1/search", content=bomb, headers=ZIPPED), 413, "256 KiB")
        form, headers = zipped_form(bytes(70 * 1024 * 1024))
        assert_problem(client.post("/v1/documents", content=form, headers=headers), 413, "RAGKV_MAX_UPLOAD_BYTES")

    def test_empty_blocks_without_an_end_are_held_to_the_limit_too(self, client: Client):
        endless = b"\x1f\x8b\x08" + bytes(6) + b"\xff" + b"\x00\x00\x00\xff\xff" * 60_000

        assert_problem(client.post("/v1/search", content=endless, headers=ZIPPED), 413, "256 KiB")

    def test_a_damaged_one_is_refused_with_what_is_wrong(self, client: Client, subtests: pytest.Subtests):
        zipped = gzip.compress(b'{"question": "x?"}')
        for case, body in {
            "plain": b'{"question": "x?"}', "cut": zipped[:-4], "followed": zipped + zipped, "empty": b"",
        }.items():  # fmt: skip
            with subtests.test(case):
                assert_problem(client.post("/v1/search", content=body, headers=ZIPPED), 400, "Content-Encoding")

    def test_other_encodings_are_refused_with_what_to_send(self, client: Client, subtests: pytest.Subtests):
        for encoding in ("deflate", "br", "zstd", "gzip, gzip", "x"):
            with subtests.test(encoding):
                headers = {"content-encoding": encoding}
                for path in ("/v1/search", "/mcp"):
                    assert_problem(client.post(path, json={}, headers=headers), 415, "use gzip")
                files = {"file": ("a.md", ADA)}
                assert_problem(client.post("/v1/documents", files=files, headers=headers), 415, "use gzip")
                refused = client.post("/v1/chat/completions", json={}, headers=headers)
                assert (refused.status_code, "use gzip" in refused.json()["error"]["message"]) == (400, True)


@pytest.mark.anyio
async def test_a_gzipped_body_is_decompressed_a_piece_at_a_time():
    async def bomb() -> AsyncGenerator[bytes, None]:
        yield gzip.compress(bytes(50 * PIECE_BYTES + 1))

    assert [len(piece) async for piece in decompressed(bomb())] == [PIECE_BYTES] * 50 + [1]
