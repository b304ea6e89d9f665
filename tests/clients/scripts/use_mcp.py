import asyncio

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from steps import AS_KEY, QUESTION, ROOT, STORE, did


async def main() -> None:
    async with (
        httpx2.AsyncClient(headers=AS_KEY, timeout=120) as http,
        Client(streamable_http_client(f"{ROOT}/mcp", http_client=http)) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        did("list tools", {"search", "ask", "list_documents", "add_document", "read_page"} <= names)
        asked = {"question": QUESTION, "collection": STORE}
        passages = (await client.call_tool("search", asked)).structured_content["passages"]
        found = next(passage for passage in passages if "Billy Elliot" in passage["text"])
        did("search", found["title"])
        answer = await client.call_tool("ask", asked)
        did("ask", answer.structured_content["citations"])
        place = {name: found[name] for name in ("document_id", "start", "end", "checksum")}
        did("read page", "<mark>" in (await client.call_tool("read_page", place)).content[0].text)
        rated = {"answer_id": answer.structured_content["answer_id"], "rating": "up"}
        did("rate", not (await client.call_tool("rate_answer", rated)).is_error)
        wrong = await client.call_tool("search", {"query": QUESTION})
        did("errors", wrong.is_error, "query" in wrong.content[0].text)
        did("list collections", "papers" in (await client.call_tool("list_collections", {})).content[0].text)


asyncio.run(main())
