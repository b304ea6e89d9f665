import asyncio

from langchain_mcp_adapters.client import MultiServerMCPClient
from steps import AS_KEY, QUESTION, ROOT, STORE, did


async def main() -> None:
    server = {"transport": "streamable_http", "url": f"{ROOT}/mcp", "headers": AS_KEY}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"ragkv": server}).get_tools()}
    did("list tools", {"search", "ask"} <= set(tools))
    asked = {"question": QUESTION, "collection": STORE}
    did("search", "Billy Elliot" in str(await tools["search"].ainvoke(asked)))
    did("ask", await tools["ask"].ainvoke(asked))


asyncio.run(main())
