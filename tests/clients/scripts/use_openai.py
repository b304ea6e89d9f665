import asyncio

from openai import AsyncOpenAI, BadRequestError, OpenAI
from pydantic import BaseModel
from steps import FILE_SEARCH, KEY, MODEL, MODEL_AT, NEXT, QUESTION, STORE, URL, did


class Person(BaseModel):
    name: str


client = OpenAI(base_url=URL, api_key=KEY)
ask = [{"role": "user", "content": QUESTION}]
tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}

answer = client.chat.completions.create(model=MODEL_AT, messages=ask).choices[0].message
did("answer", answer.content, answer.citations, answer.annotations[0].url_citation.title)

with client.chat.completions.stream(model=MODEL_AT, messages=ask) as stream:
    pieces = [event.delta for event in stream if event.type == "content.delta"]
did("stream", "".join(pieces) == answer.content)

turns = [*ask, answer.model_dump(), {"role": "user", "content": NEXT}]
did("second turn", client.chat.completions.create(model=MODEL_AT, messages=turns).choices[0].message.content)

sampled = [
    client.chat.completions.create(model=MODEL_AT, messages=ask, temperature=0.7, top_p=0.9, seed=7, stop=["\n\n"])
    for _ in range(2)
]
did("sampling", sampled[0].choices[0].message.content == sampled[1].choices[0].message.content)

parsed = client.chat.completions.parse(model=MODEL_AT, messages=ask, response_format=Person, max_tokens=200)
did("structured answer", isinstance(parsed.choices[0].message.parsed, Person))

offered = client.chat.completions.create(model=MODEL_AT, messages=ask, tools=[tool], tool_choice="auto")
did("tools offered", offered.choices[0].message.content, not offered.choices[0].message.tool_calls)

response = client.responses.create(
    model=MODEL, input=QUESTION, tools=[FILE_SEARCH], include=["file_search_call.results"]
)
did("file search", response.output[0].results, response.output[1].content[0].annotations)

with client.responses.stream(model=MODEL, input=QUESTION, tools=[FILE_SEARCH]) as stream:
    final = stream.get_final_response() if stream.until_done() else None
did("file search stream", final.output_text == response.output_text)

alone = client.chat.completions.create(model=MODEL_AT, messages=ask, extra_body={"retrieval": False})
did("without retrieval", alone.choices[0].message.content, alone.ragkv["no_passages"])

name = "reef.md"
store = client.vector_stores.create(name="reef").id
kept = client.vector_stores.files.upload_and_poll(
    vector_store_id=store, file=(name, b"The wreck lies east of the reef.")
)
did("upload", kept.status == "completed", client.files.retrieve(kept.id).filename == name)

found = client.vector_stores.search(STORE, query=QUESTION).data
did("search", found[0].filename == "films.md", found[0].score >= found[-1].score)

try:
    client.chat.completions.create(model=MODEL, messages=ask, tools=[tool], tool_choice="required")
except BadRequestError as raised:
    did("errors", "response_format" in raised.message, raised.param == "tool_choice")


async def gathered() -> int:
    async with AsyncOpenAI(base_url=URL, api_key=KEY) as several:
        calls = (several.chat.completions.create(model=MODEL_AT, messages=ask, max_tokens=4) for _ in range(40))
        return len(await asyncio.gather(*calls))


did("40 requests at once", asyncio.run(gathered()) == 40)
did("embeddings", client.embeddings.create(model="all-MiniLM-L6-v2", input=QUESTION).data[0].embedding)
