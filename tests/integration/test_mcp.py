"""The MCP SDK's own client against the service, over a real connection, around an engine that echoes."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult

from api.access import concurrency
from api.mcp.server import BODY_BYTES
from ingest.parts import IngestParts
from ragkv.service.data_sources.syncing import sync_next
from tests.support.made_files import pdf
from tests.support.over_http import ADA, assert_problem, upload, wait_until
from tests.support.over_openai import MAX_UPLOAD_BYTES, OpenAIService, openai_service

ASKED = {"question": "Who wrote the first program?"}
TOOLS = [
    "search",
    "ask",
    "list_collections",
    "list_documents",
    "add_document",
    "read_page",
    "rate_answer",
    "add_data_source",
    "data_sources",
    "start_evaluation",
    "evaluation",
]
MODES = ("legacy", "auto")
"""Clients up to the protocol's version 2025-11-25, which shake hands first, and later ones, which do not."""
VERSIONS = ("2025-06-18", "2026-07-28")
"""A version of each of the two."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, loaded: IngestParts) -> Iterator[OpenAIService]:
    with openai_service(tmp_path_factory.mktemp("mcp"), loaded) as service:
        upload(service.http, headers={"Authorization": f"Bearer {service.key}"})
        service.read_all()
        yield service


@pytest.fixture(autouse=True)
def quick(service: OpenAIService) -> None:
    service.engine.piece_s, service.engine.fail_after = 0.0, None


@asynccontextmanager
async def connected(
    service: OpenAIService, key: str | None = None, mode: str = "auto", path: str = "/mcp"
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key or service.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{service.http.base_url}{path}", http_client=http), mode=mode) as client,
    ):
        yield client


def using(service: OpenAIService, use: Callable[[Client], Awaitable[Any]], **options: str | None) -> Any:
    """options: of `connected`."""

    async def run() -> Any:
        async with connected(service, **options) as client:
            return await use(client)

    return asyncio.run(run())


def called(service: OpenAIService, tool: str, arguments: dict[str, Any], **options: Any) -> CallToolResult:
    return using(service, lambda client: client.call_tool(tool, arguments), **options)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    return content.text


def in_flight(service: OpenAIService) -> float:
    """Requests in progress, the one that asks for it among them."""
    lines = service.http.get("/metrics", headers=_headers(service.key)).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("ragkv_http_requests_in_flight "))


def message(method: str = "tools/list", params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


@pytest.mark.parametrize("mode", MODES)
def test_a_client_adds_a_document_and_finds_it_asks_and_reads_the_source(service: OpenAIService, mode: str):
    async def first_day(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        text = f"# Babbage\n\nCharles Babbage designed the difference engine in London, {mode}.\n"
        added = await client.call_tool("add_document", {"name": f"{mode}.md", "text": text, "metadata": {"mode": mode}})
        assert added.structured_content["created"], text_of(added)
        service.read_all()
        listed = await client.call_tool("list_documents", {"name": mode, "status": "ready"})
        (document,) = listed.structured_content["documents"]
        assert document["id"] == added.structured_content["document"]["id"]
        assert document["id"] in text_of(listed)
        found = await client.call_tool(
            "search", {"question": "Who designed the difference engine?", "filter": {"mode": mode}, "top_k": 3}
        )
        (passage,) = found.structured_content["passages"]
        assert (passage["document_id"], passage["title"]) == (document["id"], "Babbage")
        assert "difference engine" in passage["text"] and passage["text"] in text_of(found)
        answered = await client.call_tool("ask", ASKED)
        assert answered.structured_content["answer"] == "Ada Lovelace wrote it."
        assert answered.structured_content["citations"][0]["quote"] in ADA.decode()
        assert text_of(answered).startswith("Ada Lovelace wrote it. [1]\n\nSources:\n[1] Ada Lovelace (document ")

    using(service, first_day, mode=mode)


def test_the_first_day_of_an_agent(service: OpenAIService):
    """Connect a folder, watch it read, ask, see the cited page, correct the answer, evaluate."""
    folder = service.parts.settings.data_dir.parent / "handbook"
    folder.mkdir()
    (folder / "mills.pdf").write_bytes(pdf([["The mill of the engine."], ["Ada Lovelace wrote it.", "It was 1843."]]))
    (folder / "empty.txt").write_bytes(b"")

    async def first_day(client: Client) -> tuple[str, str]:
        async def call(tool: str, **arguments: Any) -> CallToolResult:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, text_of(result)
            return result

        connected = await call("add_data_source", location=str(folder), collection="default")
        (source,) = connected.structured_content["data_sources"]
        assert source["status"] == "waiting"
        await asyncio.to_thread(
            sync_next, service.parts.intake, service.parts.removal, service.parts.worker_counters, lambda tally: True
        )
        assert "1 waiting" in text_of(await call("data_sources", id=source["id"]))
        service.read_all()
        read = await call("data_sources", id=source["id"])
        assert read.structured_content["data_sources"][0]["files"]["ready"] == 1
        assert [file["key"] for file in read.structured_content["failed_files"]] == ["empty.txt"]
        assert "empty.txt: unreadable: " in text_of(read)

        (document,) = (await call("list_documents", name="mills")).structured_content["documents"]
        found = (await call("search", question="Ada Lovelace wrote it", filter={})).structured_content["passages"]
        assert document["id"] in {passage["document_id"] for passage in found}
        answered = await call("ask", question="Who wrote it?")
        cited = next(one for one in answered.structured_content["citations"] if one["document_id"] == document["id"])
        assert cited["page_label"] == "page 2"
        place = {name: cited[name] for name in ("document_id", "start", "end", "checksum")}
        shown = await client.call_tool("read_page", place | {"picture": True})
        text, picture = shown.content
        assert text.text.startswith(f"mills.pdf, page 2 (document {document['id']})")
        assert "<mark>Ada Lovelace wrote it.</mark>\nIt was 1843." in text.text and "mill" not in text.text[10:]
        assert base64.b64decode(picture.data).startswith(b"\x89PNG")

        answer_id = answered.structured_content["answer_id"]
        rated = await call("rate_answer", answer_id=answer_id, rating="down", correction="Ada")
        assert rated.structured_content["feedback"]["correction"] == "Ada"
        started = await call("start_evaluation")
        run = started.structured_content["run"]["id"]
        await until_done(client, run)
        measured = await call("evaluation", id=run)
        assert measured.structured_content["run"]["fidelity"]["questions"] == 1
        assert "done, 1 of 1 questions measured" in text_of(measured) and "Who wrote it?" in text_of(measured)
        return source["id"], run

    source, run = using(service, first_day)
    stranger = service.key_of("stranger", "admin")
    for tool, thing in (("data_sources", source), ("evaluation", run)):
        assert "there is no" in text_of(called(service, tool, {"id": thing}, key=stranger))
    recorded = service.http.get("/v1/audit", headers=_headers(service.key)).json()["items"]
    assert {event["action"]: event["resource"] for event in recorded}.items() >= {
        ("Create an evaluation", run),
        ("Create a data source", source),
    }


async def until_done(client: Client, run: str) -> None:
    for _ in range(600):
        found = (await client.call_tool("evaluation", {"id": run})).structured_content["run"]
        if found["state"] == "done":
            return
        await asyncio.sleep(0.1)
    raise AssertionError(found)


def test_cited_words_are_shown_with_what_stands_around_them(service: OpenAIService):
    body = " ".join(f"The {number}th river of the list is long and wide." for number in range(40))
    added = called(service, "add_document", {"name": "rivers.txt", "text": f"Before.\n\n{body}"}).structured_content
    service.read_all()
    start = body.index("The 20th river") + len("Before.\n\n")
    place = {"document_id": added["document"]["id"], "start": start, "end": start + 14}

    shown = called(service, "read_page", place).structured_content

    assert (shown["cited"], shown["page"]) == ("The 20th river", None)
    assert shown["before"].startswith("Before.") and shown["after"].endswith("39th river of the list is long and wide.")
    assert " ".join(f"{shown['before']}{shown['cited']}{shown['after']}".split()) == f"Before. {body}"
    pictured = called(service, "read_page", place | {"picture": True})
    assert pictured.is_error and "only pages of PDF files and images" in text_of(pictured)


def test_the_words_of_a_citation_or_passage_are_shown_and_no_others_once_the_file_is_replaced(service: OpenAIService):
    """A whole passage, and the words that an answer quotes, until the new file is read and after it."""

    def place_of(found: dict[str, Any]) -> dict[str, Any]:
        return {name: found[name] for name in ("document_id", "start", "end", "checksum")}

    pages = [["Ada Lovelace wrote it.", "It was the first program."], ["The relay machine came later."]]
    sent = {"name": "once.pdf", "base64": base64.b64encode(pdf(pages)).decode(), "metadata": {"of": "once"}}
    document_id = called(service, "add_document", sent).structured_content["document"]["id"]
    service.read_all()
    among = {"filter": {"of": "once"}}
    found = called(service, "search", {"question": "relay machine", **among}).structured_content["passages"]
    cited = called(service, "ask", {"question": "Who wrote it?", **among}).structured_content["citations"]
    assert found and cited
    places = [place_of(one) for one in (*found, *cited)]
    for place in places:
        shown = called(service, "read_page", place | {"picture": True})
        assert not shown.is_error, text_of(shown)
    assert [called(service, "read_page", place_of(one)).structured_content["cited"] for one in cited] == [
        one["quote"] for one in cited
    ]
    wrong = called(service, "read_page", places[0] | {"checksum": "0" * 8})
    assert wrong.is_error and "other words at this place" in text_of(wrong)
    assert "invalid arguments" in text_of(called(service, "read_page", places[0] | {"checksum": "x"}))

    replacing = pdf([["Nobody knows who wrote the programs that came before the first of these, or where."] * 4])
    path = f"/v1/documents/{document_id}"
    authorized = {"Authorization": f"Bearer {service.key}"}
    replaced = service.http.put(path, headers=authorized, files={"file": ("once.pdf", replacing)})
    assert replaced.status_code < 300, replaced.text
    for place in places:
        pictured = called(service, "read_page", place | {"picture": True})
        assert not pictured.is_error  # text and page are the old ones until the new file is read
        assert pictured.structured_content["outdated"].startswith("the text is from the earlier file")
    asked = called(service, "ask", {"question": "Who wrote it?", **among})
    assert "outdated: the text is from the earlier file" in text_of(asked)
    service.read_all()
    for place in places:
        gone = called(service, "read_page", place)
        assert gone.is_error and "other words at this place" in text_of(gone)
        assert not called(service, "read_page", {k: place[k] for k in ("document_id", "start", "end")}).is_error


def test_a_file_comes_in_base64(service: OpenAIService):
    page = b"<html><title>Note</title><body><h1>Note</h1><p>Menabrea wrote about the engine.</p></body></html>"
    sent = {"name": "note.html", "base64": base64.b64encode(page).decode()}

    first = called(service, "add_document", sent)
    again = called(service, "add_document", sent)

    assert first.structured_content["document"]["bytes"] == len(page)
    assert (first.structured_content["created"], again.structured_content["created"]) == (True, False)
    assert again.structured_content["document"]["id"] == first.structured_content["document"]["id"]


def test_a_tool_says_what_is_wrong(service: OpenAIService, subtests: pytest.Subtests):
    """As a result, which the model reads, and not as an error of the protocol."""
    for tool, arguments, said in [
        ("search", {}, "missing required field `question`"),
        ("search", {"question": " "}, "the question is empty"),
        ("search", {"question": "?" * 10_001}, "shorten it"),
        ("search", ASKED | {"top_k": 51}, "`int` <= 50"),
        ("ask", ASKED | {"collection": "nowhere"}, "there is no collection 'nowhere'"),
        ("ask", ASKED | {"mode": "full"}, "unknown field `mode`: use question, collection, filter"),
        ("search", {"query": "x"}, "`query`: use question, collection, filter, top_k"),
        ("search", ASKED | {"top_k": "3"}, "`top_k`: Expected `int | null`, got `str`. Number of passages."),
        ("list_documents", {"status": "done"}, "`status`: Invalid enum value 'done': use 'accepted', 'parsing', "),
        ("list_documents", {"collection": "nowhere"}, "create it first; there are 'default' ("),
        ("list_collections", {"limit": 201}, "`limit`: Expected `int` <= 200"),
        ("list_collections", {"cursor": "x"}, "no collection 'x'"),
        ("list_documents", {"cursor": "x"}, "cursor"),
        ("add_document", {"name": "a.md"}, "either `text` or `base64`"),
        ("add_document", {"name": "a.md", "text": "a", "base64": "YQ=="}, "either `text` or `base64`"),
        ("add_document", {"name": "a.md", "base64": "not base64!"}, "not base64"),
        ("add_document", {"name": "a.md", "text": ""}, "empty"),
        ("add_document", {"name": "a.md", "text": "a" * (MAX_UPLOAD_BYTES + 1)}, "RAGKV_MAX_UPLOAD_BYTES"),
        ("read_page", {"document_id": "0" * 32, "start": 0, "end": 5}, "no document"),
        ("read_page", {"document_id": "0" * 32, "start": 5, "end": 5}, "start must be before end"),
        ("rate_answer", {"answer_id": "0" * 32, "rating": "up"}, "no such answer"),
        ("rate_answer", {"answer_id": "0" * 32, "rating": "so so"}, "rating"),
        ("add_data_source", {"location": "/etc"}, "RAGKV_DATA_SOURCES_ALLOWED"),
        ("data_sources", {"id": "0" * 32}, "no data source"),
        ("start_evaluation", {"collection": "nowhere"}, "there is no collection 'nowhere'"),
        ("evaluation", {"id": "0" * 32}, "no evaluation"),
    ]:
        with subtests.test(tool=tool, said=said):
            result = called(service, tool, arguments)

            assert result.is_error
            assert said in text_of(result)


def test_a_tool_that_does_not_exist_is_an_error_of_the_protocol(service: OpenAIService):

    async def call(client: Client) -> None:
        with pytest.raises(MCPError, match="there is no tool 'delete_everything': search, ask"):
            await client.call_tool("delete_everything", {})

    using(service, call)


def test_a_lone_surrogate_is_refused(service: OpenAIService):
    """JSON can say what UTF-8 cannot."""
    body = json.dumps(message("tools/call", {"name": "search", "arguments": {"question": "\ud800"}}))
    sent = service.http.post("/mcp", content=body, headers=_headers(service.key))

    assert sent.status_code == 400 or sent.json()["result"]["isError"]


class TestCollections:
    """One with a document, one with a document that is not read yet, and the empty `default`."""

    @pytest.fixture(scope="class")
    def key(self, service: OpenAIService) -> str:
        key = service.key_of("librarian", "admin")
        for name in ("papers", "drafts"):
            assert service.http.post("/v1/collections", json={"name": name}, headers=_headers(key)).status_code == 201
            sent = {"name": f"{name}.md", "text": f"# {name}\n\nThe kestrel of {name} hovers.\n", "collection": name}
            assert not called(service, "add_document", sent, key=key).is_error
            if name == "papers":
                service.read_all()
        return key

    def test_collections_are_listed_with_their_documents_page_by_page(self, service: OpenAIService, key: str):
        listed = called(service, "list_collections", {}, key=key)
        facts = {facts["name"]: facts for facts in listed.structured_content["collections"]}
        counts = {name: [facts[name][count] for count in ("documents", "searchable", "ready")] for name in facts}
        assert counts == {"drafts": [1, 0, 0], "papers": [1, 1, 1], "default": [0, 0, 0]}
        assert "papers: 1 document, 1 searchable, 1 ready" in text_of(listed)

        names, cursor = list[str](), None
        for _ in range(3):
            page = called(service, "list_collections", {"limit": 1, "cursor": cursor}, key=key).structured_content
            names += [facts["name"] for facts in page["collections"]]
            cursor = page["next"]
        assert (names, cursor) == (["drafts", "papers", "default"], None)

    def test_documents_are_listed_with_the_names_of_their_collections(self, service: OpenAIService, key: str):
        listed = called(service, "list_documents", {}, key=key)
        assert ", collection papers): ready" in text_of(listed) and ", collection drafts): accepted" in text_of(listed)
        assert set(listed.structured_content["collections"].values()) == {"papers", "drafts"}

    @pytest.mark.parametrize("tool", ["search", "ask"])
    def test_a_question_to_an_empty_collection_is_told_which_have_documents(
        self, service: OpenAIService, key: str, tool: str
    ):
        """Those that can be searched, of this tenant."""
        for collection in ("default", "drafts"):
            result = called(service, tool, ASKED | {"collection": collection}, key=key)
            assert not result.is_error
            assert "these have: 'papers' (1 searchable document)." in text_of(result)
            assert "papers" in result.structured_content["note"]
        nothing = called(service, tool, ASKED | {"collection": "papers", "filter": {"year": 1}}, key=key)
        assert nothing.structured_content["note"] is None, "the filter is what matches nothing"
        stranger = called(service, tool, ASKED, key=service.key_of("newcomer", "read"))
        assert "nor has any other" in text_of(stranger) and "papers" not in text_of(stranger)

    def test_a_connection_may_name_its_collection(self, service: OpenAIService, key: str):
        """It is the default of every tool, as the schemas say; an argument comes first."""
        here: dict[str, Any] = {"key": key, "path": "/mcp?collection=papers"}
        (passage,) = called(service, "search", {"question": "kestrel"}, **here).structured_content["passages"]
        assert "papers" in passage["text"]
        listed = called(service, "list_documents", {}, **here).structured_content
        assert list(listed["collections"].values()) == ["papers"]
        everything = called(service, "list_documents", {"collection": None}, **here).structured_content
        assert len(everything["documents"]) == 2
        elsewhere = called(service, "search", {"question": "kestrel", "collection": "default"}, **here)
        assert elsewhere.structured_content["passages"] == []

        for path, default in (
            ("/mcp?collection=papers", "papers"),
            ("/mcp", "default"),
            ("/mcp?collection=", "default"),
        ):
            tools = using(service, lambda client: client.list_tools(), key=key, path=path).tools
            schema = next(tool.input_schema for tool in tools if tool.name == "search")
            assert schema["properties"]["collection"]["default"] == default

    def test_an_unknown_collection_of_a_connection_is_refused_with_those_there_are(
        self, service: OpenAIService, key: str
    ):
        result = called(service, "search", ASKED, key=key, path="/mcp?collection=nowhere")
        assert result.is_error
        assert "create it first; there are 'drafts' (0 searchable documents), 'papers'" in text_of(result)


class TestKeys:
    def test_without_a_key_or_with_a_wrong_one_nothing_is_told(self, service: OpenAIService):
        for headers in ({}, {"Authorization": "Bearer rk_wrong"}):
            refused = service.http.post("/mcp", json=message(), headers=headers)
            assert_problem(refused, 401)
            assert refused.headers["www-authenticate"] == "Bearer"

    def test_a_key_that_may_only_read_is_shown_what_it_may_use(self, service: OpenAIService):
        key = service.key_of("default", "read")

        shown = using(service, lambda client: client.list_tools(), key=key).tools
        assert [tool.name for tool in shown] == [
            *("search", "ask", "list_collections", "list_documents", "read_page", "rate_answer")
        ]
        assert [tool.name for tool in shown if not tool.annotations.read_only_hint] == ["rate_answer"]
        for tool, given in (("add_data_source", {"location": "/srv"}), ("data_sources", {}), ("start_evaluation", {})):
            assert "scope admin" in text_of(called(service, tool, given, key=key))
        refused = called(service, "add_document", {"name": "a.md", "text": "Not mine to add."}, key=key)
        assert refused.is_error and "scope write" in text_of(refused)

    def test_tenants_never_meet(self, service: OpenAIService):
        theirs = service.http.get("/v1/documents", headers=_headers(service.key)).json()["items"][0]
        key = service.key_of("stranger", "admin")

        assert called(service, "list_documents", {}, key=key).structured_content["documents"] == []
        assert called(service, "search", ASKED, key=key).structured_content["passages"] == []
        place = {"document_id": theirs["id"], "start": 0, "end": 5}
        assert "no document" in text_of(called(service, "read_page", place, key=key))
        answer_id = called(service, "ask", ASKED).structured_content["answer_id"]
        rated = called(service, "rate_answer", {"answer_id": answer_id, "rating": "up"}, key=key)
        assert "no such answer" in text_of(rated)
        assert called(service, "data_sources", {}, key=key).structured_content["data_sources"] == []
        for tool in ("search", "ask", "add_document"):
            given = {"name": "a.md", "text": "mine"} if tool == "add_document" else ASKED
            result = called(service, tool, given | {"collection": theirs["collection_id"]}, key=key)
            assert "there is no collection" in text_of(result)


async def leave(
    service: OpenAIService, version: str, tool: str, arguments: dict[str, Any], when: Callable[[], object]
) -> None:
    """Call a tool, and close the connection once `when` holds."""
    meta = {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = _headers(service.key) | {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    async with httpx2.AsyncClient(base_url=str(service.http.base_url), headers=headers) as http:
        calling = asyncio.ensure_future(http.post("/mcp", json=message("tools/call", params)))
        await asyncio.to_thread(wait_until, lambda: calling.done() or when(), 5)
        assert not calling.done(), calling.result().text
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


class TestLimits:
    def test_questions_take_the_places_of_a_tenants_questions(
        self, service: OpenAIService, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(concurrency, "MOST_WAITING", 0)
        service.engine.piece_s = 0.1
        most = service.parts.settings.max_questions

        async def crowd(client: Client) -> list[CallToolResult]:
            return await asyncio.gather(*(client.call_tool("ask", ASKED) for _ in range(most + 2)))

        results = using(service, crowd)
        refused = [text_of(result) for result in results if result.is_error]
        assert 1 <= len(refused) <= 2
        assert all("RAGKV_MAX_QUESTIONS" in text for text in refused)
        assert not called(service, "ask", ASKED).is_error, "places are given back"
        monkeypatch.undo()
        assert not any(result.is_error for result in using(service, crowd)), "the others wait"

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_client_that_leaves_ends_its_answer(self, service: OpenAIService, version: str):
        service.engine.piece_s = 5.0
        closed = service.engine.closed

        asyncio.run(leave(service, version, "ask", ASKED, lambda: service.engine.running == 1))
        wait_until(lambda: service.engine.running == 0)
        assert service.engine.closed == closed + 1

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_change_whose_client_leaves_is_made_and_recorded(self, service: OpenAIService, version: str):
        name, received = f"left {version}.md", service.parts.files.folder
        given = {"name": name, "text": f"Left during {version}."}

        with service.parts.database.writing() as session:
            session.connection()  # begins: the upload waits for its turn to write
            asyncio.run(leave(service, version, "add_document", given, lambda: any(received.glob("upload-*"))))
            time.sleep(0.3)  # the service notices

        def items(path: str, **params: str) -> list[dict[str, Any]]:
            return service.http.get(path, headers=_headers(service.key), params=params).json()["items"]

        wait_until(lambda: items("/v1/documents", name=name) and in_flight(service) == 1)
        (document,) = items("/v1/documents", name=name)
        assert [event["action"] for event in items("/v1/audit", resource=document["id"])] == ["Add a document"]

    def test_a_body_is_bounded(self, service: OpenAIService):
        for content in (b" " * (BODY_BYTES + 1), iter([b" " * (BODY_BYTES // 2)] * 3)):
            refused = service.http.post("/mcp", content=content, headers=_headers(service.key))
            assert_problem(refused, 413, "at most 8 MiB: upload a large file with POST /v1/documents")

    @pytest.mark.parametrize(
        "body", [b"[" * 300_000, b'{"x": ' + b"[" * 300_000, b'{"params": ' + b" " * 300_000 + b"{}}", None]
    )
    def test_a_large_body_that_is_no_documents_text_is_not_even_read(self, service: OpenAIService, body: bytes | None):
        """Millions of small values would hold up everyone."""
        many = {"name": "search", "arguments": ASKED | {"filter": {"year": [{}] * 100_000}}}
        content = body or msgspec.json.encode(message("tools/call", many))

        refused = service.http.post("/mcp", content=content, headers=_headers(service.key))

        assert_problem(refused, 413, "256 KiB, not counting a document's text")

    def test_a_large_body_takes_the_place_of_an_upload(self, service: OpenAIService):
        """As does one that does not say how large it is. Places are taken before bodies are read."""
        half = service.parts.settings.max_uploads // 2

        async def crowd() -> list[int]:
            ending = asyncio.Event()

            async def slowly() -> AsyncIterator[bytes]:
                yield b" "
                await ending.wait()
                yield msgspec.json.encode(message())

            async with httpx2.AsyncClient(
                base_url=str(service.http.base_url), headers=_headers(service.key), timeout=30
            ) as http:
                sent = [asyncio.ensure_future(http.post("/mcp", content=slowly())) for _ in range(half)]
                large = message(
                    "tools/call", {"name": "search", "arguments": ASKED | {"filter": {"x": "y" * 1_100_000}}}
                )
                refused = partial(service.http.post, "/mcp", json=large, headers=_headers(service.key))
                await asyncio.to_thread(wait_until, lambda: in_flight(service) > half, 10)
                await asyncio.to_thread(wait_until, lambda: refused().status_code == 429, 10)
                assert (await http.post("/mcp", json=message())).status_code == 200
                ending.set()
                return [response.status_code for response in await asyncio.gather(*sent)]

        assert asyncio.run(crowd()) == [200] * half

    def test_a_large_document_is_added_and_refused_as_by_upload(self, service: OpenAIService):
        params = {"name": "add_document", "arguments": {"name": "a.md", "text": "a" * 1_100_000}}
        result = service.http.post("/mcp", json=message("tools/call", params), headers=_headers(service.key)).json()
        assert "RAGKV_MAX_UPLOAD_BYTES" in result["result"]["content"][0]["text"]


class TestTransport:
    def test_pages_of_other_origins_are_refused(self, service: OpenAIService):
        """DNS rebinding: the browser names the page's own origin."""
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert_problem(service.http.post("/mcp", json=message(), headers=_headers(service.key) | headers), 403)

    def test_there_is_no_stream_to_open_and_no_session_to_end(self, service: OpenAIService):
        for method in ("GET", "DELETE"):
            refused = service.http.request(method, "/mcp", headers=_headers(service.key))
            assert (refused.status_code, "POST" in refused.headers["allow"]) == (405, True)

    def test_malformed_messages_are_refused(self, service: OpenAIService, subtests: pytest.Subtests):
        for body in [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"jsonrpc": "2.0"}',
            b"[" * 100_000,
            b'{"id": 1e999}',
            b"\xff\xfe",
            b'{"x": ' + b"[" * 9_999,
        ]:
            for version in ["2025-06-18", "2026-07-28", "1999-01-01"]:
                with subtests.test(body=body[:20], version=version):
                    headers = _headers(service.key) | {"MCP-Protocol-Version": version}
                    refused = service.http.post("/mcp", content=body, headers=headers)

                    assert 400 <= refused.status_code < 500, refused.text

    @pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", ""])
    def test_an_unknown_protocol_version_is_refused_with_those_that_are_known(
        self, service: OpenAIService, version: str
    ):
        headers = _headers(service.key) | {"MCP-Protocol-Version": version}
        refused = service.http.post("/mcp", json=message("tools/list"), headers=headers)

        assert refused.status_code == 400
        assert refused.json()["id"] == message("tools/list")["id"]
        error = refused.json()["error"]
        assert {"2025-03-26", *VERSIONS} < set(error["data"]["supported"])
        assert all(known in error["message"] for known in error["data"]["supported"])

    @pytest.mark.parametrize("version", ["2025-03-26", None, *VERSIONS])
    def test_a_batch_is_refused_with_what_to_send_instead(self, service: OpenAIService, version: str | None):
        headers = _headers(service.key) | ({"MCP-Protocol-Version": version} if version else {})
        batch = [message("tools/list"), message("tools/list")]
        refused = service.http.post("/mcp", json=batch, headers=headers)

        assert refused.status_code == 400
        assert "send one message in each request" in refused.json()["error"]["message"]

    @pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", None])
    def test_clients_that_shake_hands_are_served_in_their_version(self, service: OpenAIService, version: str | None):
        headers = _headers(service.key) | ({"MCP-Protocol-Version": version} if version else {})
        listed = service.http.post("/mcp", json=message("tools/list"), headers=headers)

        assert {tool["name"] for tool in listed.json()["result"]["tools"]} <= set(TOOLS)

    def test_other_types_of_content_are_refused(self, service: OpenAIService):
        headers = _headers(service.key) | {"Content-Type": "text/plain"}

        assert service.http.post("/mcp", content=b"{}", headers=headers).status_code in (400, 415)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
