"""/mcp: the tools over streamable HTTP, stateless: each request is answered independently, with JSON. The only
module that imports the MCP SDK."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec
from litestar import Litestar, Request, Response, post
from litestar.di import NamedDependency
from litestar.types import Scope
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ToolOnTheWire
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from api.access.auth import reading
from api.access.concurrency import uploading_large
from api.access.session import Connection, listed_pages_only
from api.http.bodies import ADVICE
from api.http.disconnect import unless_disconnected
from api.http.errors import problem_of
from api.mcp.results import Pictured
from api.mcp.tools import COLLECTION, TOOLS, Service, collection_of
from ragkv import __version__
from ragkv.errors import TooLarge
from ragkv.service.base.caller import Caller

BODY_BYTES = 8 * 1024 * 1024
"""A file in base64 takes four thirds of its size, and three copies in memory; larger files go to /v1/documents."""
MESSAGE_BYTES = 256 * 1024
"""Of a message without the document in it. The SDK reads it on the event loop, where many small values take seconds."""
VERSION_HEADER = "mcp-protocol-version"
INSTRUCTIONS = (
    "Documents of this service's collections, searched and cited by passage. `ask` answers from them with citations, "
    "`search` returns the passages themselves, `list_collections` shows which collections there are. Show people the "
    "quoted sentences, and record with `rate_answer` what they say about an answer."
)


class _Params(msgspec.Struct):
    name: str = ""
    arguments: dict[str, msgspec.Raw] = {}


class _Message(msgspec.Struct):
    """As much of a message as tells which tool it calls, and a document's text from the rest."""

    id: msgspec.Raw = msgspec.Raw(b"null")
    params: _Params = msgspec.field(default_factory=_Params)


class MCPServer:
    """The SDK's server over the tools, for the length of the app's lifespan."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._on_the_wire = {
            tool.name: ToolOnTheWire(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=_schema_of(tool.arguments),
                output_schema=_schema_of(tool.result),
                annotations=ToolAnnotations(
                    read_only_hint=not tool.changes,
                    destructive_hint=False,
                    idempotent_hint=tool.idempotent,
                    open_world_hint=False,
                ),
            )
            for tool in TOOLS.values()
        }
        self._server = Server[Any](
            "ragkv",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            get_tool_input_schema={name: tool.input_schema for name, tool in self._on_the_wire.items()}.get,
        )
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self, app: Litestar) -> AsyncIterator[None]:
        """A lifespan of the app."""
        # A manager runs once. Host and Origin are checked in front of it, as for every other route.
        self._manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=BODY_BYTES
        )
        async with self._manager.run():
            yield

    async def exchange(self, scope: Scope, body: bytes) -> Response[bytes]:
        """The response to one message."""
        assert self._manager is not None, "the app has started"
        unread = [body]
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if not unread:
                await asyncio.Event().wait()  # a client that leaves cancels the whole exchange
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._manager.handle_request(cast("MutableMapping[str, Any]", scope), receive, send)
        start, *parts = sent
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        media_type = headers.pop("content-type", "application/json")
        headers.pop("content-length", None)
        answer = b"".join(part.get("body", b"") for part in parts)
        return Response(answer, status_code=start["status"], media_type=media_type, headers=headers)

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        connection = _connection_of(context)
        caller: Caller = connection.user
        collection = collection_of(connection)  # the default, where a connection's address names one
        tools = []
        for tool in TOOLS.values():
            if not caller.may(tool.scope):
                continue
            described = self._on_the_wire[tool.name]
            if collection is not None and tool.takes_collection:
                properties = described.input_schema["properties"]
                properties = properties | {COLLECTION: properties[COLLECTION] | {"default": collection}}
                schema = described.input_schema | {"properties": properties}
                described = described.model_copy(update={"input_schema": schema})
            tools.append(described)
        return ListToolsResult(tools=tools)

    async def _call_tool(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:80]!r}: {', '.join(TOOLS)}")
        try:
            result = await tool.call(_connection_of(context), params.arguments or {}, self._service)
        except Exception as error:  # the model reads it and may correct itself
            return CallToolResult(content=[TextContent(text=problem_of(error).detail)], is_error=True)
        content: list[ContentBlock] = [TextContent(text=result.as_text())]
        if isinstance(result, Pictured):
            content.append(ImageContent(data=b64encode(result.png).decode(), mime_type="image/png"))
            result = result.result
        return CallToolResult(content=content, structured_content=msgspec.to_builtins(result))


@post(
    "/mcp",
    status_code=200,
    guards=[listed_pages_only, reading, uploading_large],
    request_max_body_size=BODY_BYTES,
    opt={ADVICE: "upload a large file with POST /v1/documents"},
    include_in_schema=False,
)
async def exchange(request: Request[Any, Any, Any], mcp: NamedDependency[MCPServer]) -> Response[bytes]:
    """One message of a client, and its answer. A change is made to its end, and recorded, though the client leaves."""
    body = await request.body()
    message: _Message | None = None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = msgspec.json.decode(body, type=_Message)
    params = message.params if message else None
    arguments = params.arguments if params else {}
    texts = (bytes(arguments[name]) for name in ("text", "base64") if name in arguments)
    document_bytes = sum(len(text) for text in texts if text.startswith(b'"'))
    if len(body) - document_bytes > MESSAGE_BYTES:
        raise TooLarge(f"a message may have at most {MESSAGE_BYTES // 1024} KiB, not counting a document's text")
    # What the SDK would refuse without saying what to do: a version that is not known, and a batch.
    version = request.headers.get(VERSION_HEADER)
    if version is not None and version not in KNOWN_PROTOCOL_VERSIONS:
        data = {"supported": KNOWN_PROTOCOL_VERSIONS, "requested": version}
        detail = f"unsupported MCP-Protocol-Version: send one of {', '.join(KNOWN_PROTOCOL_VERSIONS)}"
        return _refusal(message.id if message else None, UNSUPPORTED_PROTOCOL_VERSION, detail, data)
    if body.lstrip()[:1] == b"[":
        return _refusal(None, INVALID_REQUEST, "batches are not served: send one message in each request")
    exchanged = mcp.exchange(request.scope, body)
    # A message that cannot be read here may call any tool: the SDK may read more.
    may_change = params is None or (params.name in TOOLS and TOOLS[params.name].changes)
    return await (exchanged if may_change else unless_disconnected(request, exchanged))


def _refusal(id_: msgspec.Raw | None, code: int, detail: str, data: object = None) -> Response[bytes]:
    error = {"code": code, "message": detail} | ({} if data is None else {"data": data})
    content = msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "error": error})
    return Response(content, status_code=400, media_type="application/json")


def _connection_of(context: ServerRequestContext[Any]) -> Connection:
    """The connection that a message came with: the SDK's own request has its scope."""
    assert context.request is not None, "a message came by HTTP"
    return Connection(context.request.scope)


def _schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema with the struct itself at the top, as MCP requires."""
    _, named = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    schema = named.pop(kind.__name__)
    return {**schema, "$defs": named} if named else schema
