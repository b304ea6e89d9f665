import asyncio

from agents import (
    Agent,
    FileSearchTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI
from pydantic import BaseModel
from steps import AS_KEY, KEY, MODEL, MODEL_AT, NEXT, QUESTION, ROOT, STORE, URL, did

set_tracing_disabled(disabled=True)


class Person(BaseModel):
    name: str


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    client = AsyncOpenAI(base_url=URL, api_key=KEY)
    chat = OpenAIChatCompletionsModel(model=MODEL_AT, openai_client=client)
    responses = OpenAIResponsesModel(model=MODEL, openai_client=client)
    search = FileSearchTool(vector_store_ids=[STORE], include_search_results=True)

    session = SQLiteSession("one")
    agent = Agent(name="a", model=chat)
    did("answer", (await Runner.run(agent, QUESTION, session=session)).final_output)
    did("second turn", (await Runner.run(agent, NEXT, session=session)).final_output)
    sampled = Agent(name="a", model=chat, model_settings=ModelSettings(temperature=0.7, top_p=0.9))
    did("sampling", (await Runner.run(sampled, QUESTION)).final_output)
    few = ModelSettings(max_tokens=200)
    typed = await Runner.run(Agent(name="a", model=chat, output_type=Person, model_settings=few), QUESTION)
    did("structured answer", isinstance(typed.final_output, Person))
    did("tools offered", (await Runner.run(Agent(name="a", model=chat, tools=[add]), QUESTION)).final_output)
    searching = Agent(name="a", model=responses, tools=[search])
    found = await Runner.run(searching, QUESTION)
    did("file search", found.final_output, found.raw_responses[0].output[0].results)
    stream = Runner.run_streamed(searching, QUESTION)
    kinds = [event.data.type async for event in stream.stream_events() if event.type == "raw_response_event"]
    did("file search stream", "response.output_text.delta" in kinds, stream.final_output == found.final_output)
    async with MCPServerStreamableHttp(params={"url": f"{ROOT}/mcp", "headers": AS_KEY}) as server:
        result = await server.call_tool("search", {"question": QUESTION, "collection": STORE})
        did("MCP", "Billy Elliot" in result.content[0].text)


asyncio.run(main())
