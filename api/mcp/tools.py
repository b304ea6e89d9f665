"""The tools: each takes a caller and arguments, and does what an endpoint of /v1 does."""

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol

import msgspec

from api.access.auditing import note_change
from api.access.concurrency import is_large, limits_of
from api.access.session import Connection
from api.http.observe import note_made
from api.mcp.arguments import AddArguments, AskArguments, ListArguments, SearchArguments
from api.mcp.results import AddResult, AskResult, ListResult, SearchResult
from api.v1.ask import AskBody, question_of, whole_answer
from api.v1.search import SearchBody, found_passages
from ragkv.access.caller import Caller
from ragkv.catalog.documents import accept_document, document_view
from ragkv.catalog.listing import DocumentFilter, DocumentPage, list_documents
from ragkv.db.tenants import collection_ref
from ragkv.errors import Forbidden, Rejected
from ragkv.parts import Parts
from ragkv.scopes import KeyScope


class Result(Protocol):
    """What a tool returns: a struct that has a text too."""

    def as_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool by name, with the scope that it needs and the types of what it takes and returns."""

    name: str
    title: str
    description: str
    scope: KeyScope
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    run: Callable[[Connection, Any, Parts], Awaitable[Result]]

    async def call(self, connection: Connection, arguments: dict[str, Any], parts: Parts) -> Result:
        """Raises Forbidden, Rejected for arguments that do not fit, and what the tool raises."""
        caller: Caller = connection.user
        if not caller.may(self.scope):
            raise Forbidden(f"this tool needs an API key with the scope {self.scope}")
        try:
            given = msgspec.json.decode(msgspec.json.encode(arguments), type=self.arguments)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise Rejected(f"invalid arguments: {error}") from None
        return await self.run(connection, given, parts)


async def search(connection: Connection, given: SearchArguments, parts: Parts) -> SearchResult:
    body = SearchBody(question=given.question, collection=given.collection, filter=given.filter, top_k=given.top_k)
    return SearchResult.of(await found_passages(connection.user, body, parts))


async def ask(connection: Connection, given: AskArguments, parts: Parts) -> AskResult:
    body = AskBody(question=given.question, collection=given.collection, filter=given.filter)
    with limits_of(connection).question(connection.user):
        question = await asyncio.to_thread(question_of, connection.user, body, parts)
        return AskResult.of(await whole_answer(parts.answerer.stream(question)))


async def list_some(connection: Connection, given: ListArguments, parts: Parts) -> ListResult:
    return ListResult.of(await asyncio.to_thread(_page, connection.user, given, parts))


async def add(connection: Connection, given: AddArguments, parts: Parts) -> AddResult:
    with nullcontext() if is_large(connection) else limits_of(connection).upload(connection.user):
        added = await asyncio.to_thread(_add, connection.user, given, parts)
    note_made(connection, added.document.id)
    note_change(connection, "Add a document")
    return added


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "search",
            "Search documents",
            "Find the passages of a collection's documents that best match a question, with their titles and pages. "
            "Use it to read the sources yourself.",
            "read",
            SearchArguments,
            SearchResult,
            search,
        ),
        Tool(
            "ask",
            "Ask the documents",
            "Answer a question from a collection's documents, with citations: the quoted sentence, document and page of "
            "each part of the answer.",
            "read",
            AskArguments,
            AskResult,
            ask,
        ),
        Tool(
            "list_documents",
            "List documents",
            "List documents with their ids, collections, metadata and states, newest first.",
            "read",
            ListArguments,
            ListResult,
            list_some,
        ),
        Tool(
            "add_document",
            "Add a document",
            "Add a text or a file to a collection. It is read in the background: list_documents shows when it is "
            "searchable. The same bytes again are the same document.",
            "write",
            AddArguments,
            AddResult,
            add,
        ),
    )
}


def _page(caller: Caller, given: ListArguments, parts: Parts) -> DocumentPage:
    ref = None if given.collection is None else collection_ref(caller.tenant_id, given.collection, parts.database)
    wanted = DocumentFilter(caller.tenant_id, None if ref is None else ref.collection_id, given.status, given.name)
    return list_documents(wanted, given.limit, given.cursor, parts.database)


def _add(caller: Caller, given: AddArguments, parts: Parts) -> AddResult:
    body = _bytes_of(given)
    ref = collection_ref(caller.tenant_id, given.collection, parts.database)
    accepted = accept_document(ref, given.name, BytesIO(body), parts, given.metadata)
    return AddResult(document_view(ref.tenant_id, accepted.document_id, parts.database), accepted.created)


def _bytes_of(given: AddArguments) -> bytes:
    """Raises Rejected unless there is either a text or a file in base64."""
    if (given.text is None) == (given.base64 is None):
        raise Rejected("send either `text` or `base64`")
    if given.text is not None:
        return given.text.encode()
    assert given.base64 is not None
    try:
        return b64decode(given.base64, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected("`base64` is not base64: encode the file's bytes with the standard alphabet") from None
