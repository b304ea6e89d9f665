"""The tools: each takes a caller and arguments, and does what an endpoint of /v1 does."""

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from io import BytesIO
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import inspect

from api.access.auditing import note_change
from api.access.concurrency import is_large, limits_of
from api.access.session import Connection
from api.http.invalid_fields import explained, field_names, type_at
from api.http.observe import note_made
from api.mcp.arguments import (
    AddArguments,
    AddSourceArguments,
    AskArguments,
    CollectionsArguments,
    EvaluationArguments,
    ListArguments,
    RateArguments,
    ReadArguments,
    SearchArguments,
    SourceArguments,
    StartArguments,
)
from api.mcp.results import (
    AddResult,
    AskResult,
    CollectionsResult,
    EvaluationResult,
    ListResult,
    Pictured,
    RateResult,
    ReadResult,
    Result,
    SearchResult,
    SourceResult,
)
from api.v1.ask import AskBody, question_of, whole_answer
from api.v1.pages import PIXELS
from api.v1.search import SearchBody, found_passages
from ingest.page_views import PageViews
from ragkv.errors import Forbidden, NotFound, Rejected
from ragkv.service.base.caller import Caller, KeyScope
from ragkv.service.base.database import Database
from ragkv.service.base.page import MAX_PAGE, PageRequest
from ragkv.service.base.tenants import collection_ref
from ragkv.service.data_sources.data_sources import (
    add_data_source,
    data_source_view,
    list_data_sources,
    list_source_files,
)
from ragkv.service.data_sources.statements import FileStatus
from ragkv.service.documents.cited import cited_page, cited_text
from ragkv.service.documents.documents import accept_document, document_view
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.listing import DocumentFilter, list_documents
from ragkv.service.evaluations.runs import RunRequest, report_of_run, start_run
from ragkv.service.files.stores import Store, list_stores, names_of, store_of
from ragkv.service.parts import Parts
from ragkv.service.questions.feedback import give_feedback
from ragkv.text import plural

FAILED_FILES = 50
"""Failed files of a data source that are shown, in each of the two ways to fail."""
COLLECTION = "collection"
NAMED = 20
"""Collections that an error names."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of the service that tools use."""

    parts: Parts
    page_views: PageViews


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool by name, with the scope that it needs and the types of what it takes and returns."""

    name: str
    title: str
    description: str
    scope: KeyScope
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    run: Callable[[Connection, Any, Service], Awaitable[Result]]
    changes: bool
    idempotent: bool

    async def call(self, connection: Connection, arguments: dict[str, Any], service: Service) -> Result:
        """Call the tool for the connection's user. Raises Forbidden, Rejected for arguments that do not fit, and what
        the tool raises."""
        caller: Caller = connection.user
        if not caller.may(self.scope):
            raise Forbidden(f"this tool needs an API key with the scope {self.scope}")
        if self.takes_collection and (collection := collection_of(connection)) is not None:
            arguments = {COLLECTION: collection} | arguments
        try:
            values = msgspec.json.decode(msgspec.json.encode(arguments), type=self.arguments)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            message, _, place = str(error).partition(" - at `$")
            place = place.strip("`.")
            kind = type_at(inspect.type_info(self.arguments), place)
            if message.startswith("Object contains unknown field"):
                message = f"{message}: use {', '.join(field_names(kind))}"
            shown = ": ".join(filter(None, (f"`{place}`" if place else "", explained(message, kind))))
            raise Rejected(f"invalid arguments: {shown}") from None
        try:
            return await self.run(connection, values, service)
        except NotFound as error:
            collection = getattr(values, COLLECTION, None)
            instead = await asyncio.to_thread(_instead_of, collection, caller.tenant_id, service.parts.database)
            raise NotFound(f"{error}{instead}") from None

    @property
    def takes_collection(self) -> bool:
        return COLLECTION in self.arguments.__struct_fields__


TOOLS: dict[str, Tool] = {}
"""By name."""


def tool(name: str, title: str, scope: KeyScope, *, changes: bool = False, idempotent: bool = True) -> Callable[[F], F]:
    """Make a tool of a function: its docstring tells models when to use it, its annotations are what it takes and
    returns. A function that blocks runs in a thread."""

    def register(function: F) -> F:
        hints = get_type_hints(function)
        result, *_ = get_args(hints["return"]) or (hints["return"],)
        description = " ".join((function.__doc__ or "").split())
        run = function if iscoroutinefunction(function) else partial(asyncio.to_thread, function)
        TOOLS[name] = Tool(name, title, description, scope, hints["arguments"], result, run, changes, idempotent)
        return function

    return register


def collection_of(connection: Connection) -> str | None:
    """The collection that a connection's address names, `/mcp?collection=NAME`: it takes the place of the default."""
    return connection.query_params.get(COLLECTION) or None


@tool("search", "Search documents", "read")
async def search(connection: Connection, arguments: SearchArguments, service: Service) -> SearchResult:
    """Find the passages of a collection's documents that best match a question, with their titles and pages. Use it to
    read the sources yourself."""
    body = SearchBody(
        question=arguments.question, collection=arguments.collection, filter=arguments.filter, top_k=arguments.top_k
    )
    passages = await found_passages(connection.user, body, service.parts)
    searched = (connection.user.tenant_id, arguments.collection, service.parts.database)
    return SearchResult.of(passages, None if passages else await asyncio.to_thread(_elsewhere, *searched))


@tool("ask", "Ask the documents", "read")
async def ask(connection: Connection, arguments: AskArguments, service: Service) -> AskResult:
    """Answer a question from a collection's documents, with citations: the quoted sentence, document and page of each
    part of the answer."""
    body = AskBody(question=arguments.question, collection=arguments.collection, filter=arguments.filter)
    with await limits_of(connection).question(connection.user):
        question = await asyncio.to_thread(question_of, connection.user, body, service.parts.database)
        parts = await service.parts.loaded()
        answer = await whole_answer(parts.answerer.stream(question))
    searched = (connection.user.tenant_id, arguments.collection, service.parts.database)
    return AskResult.of(answer, await asyncio.to_thread(_elsewhere, *searched) if answer.no_passages else None)


@tool("list_collections", "List collections", "read")
def list_all_collections(
    connection: Connection, arguments: CollectionsArguments, service: Service
) -> CollectionsResult:
    """List the collections and how many of their documents can be searched. Use it to choose a `collection`."""
    page = PageRequest(arguments.limit, after=arguments.cursor)
    return CollectionsResult.of(list_stores(connection.user.tenant_id, page, service.parts.database))


@tool("list_documents", "List documents", "read")
def list_some(connection: Connection, arguments: ListArguments, service: Service) -> ListResult:
    """List documents with their ids, collections, metadata and states, newest first."""
    tenant_id, database = connection.user.tenant_id, service.parts.database
    collection = arguments.collection
    collection_id = None if collection is None else collection_ref(tenant_id, collection, database).collection_id
    criteria = DocumentFilter(tenant_id, collection_id, arguments.status, arguments.name)
    page = list_documents(criteria, arguments.limit, arguments.cursor, database)
    names = names_of((document.collection_id for document in page.items), database)
    return ListResult(page.items, page.next, names)


@tool("add_document", "Add a document", "write", changes=True)
async def add(connection: Connection, arguments: AddArguments, service: Service) -> AddResult:
    """Add a text or a file to a collection. It is read in the background: list_documents shows when it is searchable.
    Adding the same bytes again returns the same document."""
    with nullcontext() if is_large(connection) else limits_of(connection).upload(connection.user):
        added = await asyncio.to_thread(_add, connection.user, arguments, service.parts.database, service.parts.intake)
    note_made(connection, added.document.id)
    note_change(connection, "Add a document")
    return added


@tool("read_page", "Read a cited page", "read")
async def read(connection: Connection, arguments: ReadArguments, service: Service) -> ReadResult | Pictured:
    """Show the page that a citation or passage points to, with its words marked. Use it to check an answer. With
    `checksum` it shows these words or none: they may have gone with a newer version of the document."""
    tenant_id, views = connection.user.tenant_id, service.page_views
    words = (
        tenant_id,
        arguments.document_id,
        arguments.start,
        arguments.end,
        service.parts.database,
        arguments.checksum,
    )
    page = await asyncio.to_thread(cited_page, *words)
    result = ReadResult.of(arguments.document_id, page)
    if not arguments.picture:
        return result
    png = await views.threads.run(views.picture, tenant_id, arguments.document_id, page.page or 1, PIXELS)
    await asyncio.to_thread(cited_text, *words)  # the picture is of the file that the words are from
    return Pictured(result, png)


@tool("rate_answer", "Rate an answer", "read", changes=True)
def rate(connection: Connection, arguments: RateArguments, service: Service) -> RateResult:
    """Record whether an answer was good or bad, and the right answer if a person gave it. Rated questions are what
    start_evaluation measures."""
    parts, feedback = service.parts, (arguments.rating, arguments.correction, arguments.comment)
    stores = (parts.recent_answers, parts.source, parts.database)
    rated = give_feedback(connection.user.tenant_id, arguments.answer_id, *feedback, *stores)
    return RateResult(arguments.answer_id, rated)


@tool("add_data_source", "Connect a data source", "admin", changes=True, idempotent=False)
def add_source(connection: Connection, arguments: AddSourceArguments, service: Service) -> SourceResult:
    """Keep a collection in sync with a folder or an object store: its files are read in the background, and again when
    they change. data_sources shows the progress."""
    parts, place = service.parts, (arguments.collection, arguments.location, arguments.interval_minutes)
    source = add_data_source(connection.user.tenant_id, *place, parts.database, parts.settings)
    note_made(connection, source.id)
    note_change(connection, "Create a data source")
    return SourceResult([source], [])


@tool("data_sources", "Show data sources", "admin")
def show_sources(connection: Connection, arguments: SourceArguments, service: Service) -> SourceResult:
    """Show data sources: their state and numbers of files; for a single one also the files that failed, with
    reasons."""
    tenant_id, database = connection.user.tenant_id, service.parts.database
    if arguments.id is None:
        return SourceResult(list_data_sources(tenant_id, database), [])
    source = data_source_view(tenant_id, arguments.id, database)
    files = [
        file
        for status in (FileStatus.FAILED, FileStatus.UNREADABLE)
        for file in list_source_files(tenant_id, source.id, status, FAILED_FILES, None, database).items
    ]
    return SourceResult([source], files)


@tool("start_evaluation", "Start an evaluation", "admin", changes=True, idempotent=False)
def start(connection: Connection, arguments: StartArguments, service: Service) -> EvaluationResult:
    """Measure the service on the rated questions of a collection. It runs in the background: evaluation shows the
    result."""
    request = RunRequest(arguments.kind, "rated", arguments.limit)
    run = start_run(connection.user.tenant_id, arguments.collection, request, service.parts.database)
    note_made(connection, run.id)
    note_change(connection, "Create an evaluation")
    return EvaluationResult(run, [])


@tool("evaluation", "Show an evaluation", "admin")
def show_evaluation(connection: Connection, arguments: EvaluationArguments, service: Service) -> EvaluationResult:
    """Show the progress of an evaluation, its figures once it has ended, and its worst questions."""
    return EvaluationResult.of(report_of_run(connection.user.tenant_id, arguments.id, service.parts.database))


def _instead_of(collection: str | None, tenant_id: str, database: Database) -> str:
    """The tenant's collections, if there is none of that name."""
    if collection is None:
        return ""
    try:
        collection_ref(tenant_id, collection, database)
    except NotFound:
        stores = list_stores(tenant_id, PageRequest(NAMED), database)
        return f"; there are {_joined(stores.items, stores.more)}"
    return ""


def _elsewhere(tenant_id: str, collection: str, database: Database) -> str | None:
    """Collections of the tenant that have searchable documents, as a sentence; None if the searched one has some."""
    if store_of(tenant_id, collection, database).num_searchable:
        return None
    stores = list_stores(tenant_id, PageRequest(MAX_PAGE), database)
    searchable = [store for store in stores.items if store.num_searchable]
    problem = f"the collection {collection!r} has no searchable documents"
    if not searchable:
        return f"{problem}, nor has any other: add some, or see list_documents for those that are being read."
    return f"{problem}; these have: {_joined(searchable[:NAMED], stores.more or len(searchable) > NAMED)}."


def _joined(stores: Sequence[Store], more: bool) -> str:
    names = [f"{store.name!r} ({plural(store.num_searchable, 'searchable document')})" for store in stores]
    return ", ".join([*names, "and others (list_collections)"] if more else names)


def _add(caller: Caller, arguments: AddArguments, database: Database, intake: Intake) -> AddResult:
    if (arguments.text is None) == (arguments.base64 is None):
        raise Rejected("send either `text` or `base64`")
    try:
        body = b64decode(arguments.base64 or "", validate=True)
    except (binascii.Error, ValueError):
        raise Rejected("`base64` is not base64: encode the file's bytes with the standard alphabet") from None
    if arguments.text is not None:
        body = arguments.text.encode()
    ref = collection_ref(caller.tenant_id, arguments.collection, database)
    accepted = accept_document(ref, arguments.name, BytesIO(body), intake, arguments.metadata)
    return AddResult(document_view(ref.tenant_id, accepted.document_id, database), accepted.created)
