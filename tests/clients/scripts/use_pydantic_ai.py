import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.native_tools import FileSearchTool
from pydantic_ai.providers.openai import OpenAIProvider
from steps import AS_KEY, KEY, MODEL, MODEL_AT, NEXT, QUESTION, ROOT, STORE, URL, did


class Person(BaseModel):
    """The person that the question asks for."""

    name: str


provider = OpenAIProvider(base_url=URL, api_key=KEY)
chat = OpenAIChatModel(MODEL_AT, provider=provider)
answer = Agent(chat).run_sync(QUESTION)
did("answer", answer.output)


async def streamed() -> str:
    async with Agent(chat).run_stream(QUESTION) as stream:
        return "".join([piece async for piece in stream.stream_text(delta=True)])


did("stream", asyncio.run(streamed()).strip() == answer.output.strip())
did("second turn", Agent(chat).run_sync(NEXT, message_history=answer.all_messages()).output)
did("sampling", Agent(chat, model_settings={"temperature": 0.7}).run_sync(QUESTION).output)
person = Agent(chat, output_type=NativeOutput(Person), model_settings={"max_tokens": 200}).run_sync(QUESTION).output
did("structured answer", isinstance(person, Person))
search = NativeTool(FileSearchTool(file_store_ids=[STORE]))
found = Agent(OpenAIResponsesModel(MODEL, provider=provider), capabilities=[search]).run_sync(QUESTION)
kinds = {type(part).__name__ for message in found.all_messages() for part in message.parts}
did("file search", found.output, "NativeToolReturnPart" in kinds)


async def by_mcp() -> str:
    async with MCPToolset(f"{ROOT}/mcp", headers=AS_KEY) as toolset:
        return str(await toolset.direct_call_tool("search", {"question": QUESTION, "collection": STORE}))


did("MCP", "Billy Elliot" in asyncio.run(by_mcp()))
