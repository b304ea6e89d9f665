import litellm
from pydantic import BaseModel
from steps import FILE_SEARCH, KEY, MODEL, MODEL_AT, QUESTION, STORE, URL, did


class Person(BaseModel):
    name: str


place = {"api_base": URL, "api_key": KEY}
chat = {"model": f"openai/{MODEL_AT}", "messages": [{"role": "user", "content": QUESTION}], **place}
answer = litellm.completion(**chat).choices[0].message.content
did("answer", answer)
pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**chat, stream=True)]
did("stream", "".join(pieces) == answer)
did("sampling", litellm.completion(**chat, temperature=0.7, seed=1).choices[0].message.content)
typed = litellm.completion(**chat, response_format=Person, max_tokens=200).choices[0].message.content
did("structured answer", Person.model_validate_json(typed))
response = litellm.responses(model=f"openai/{MODEL}", input=QUESTION, tools=[FILE_SEARCH], **place)
did("file search", response.output[1].content[0].annotations)
found = litellm.vector_stores.search(vector_store_id=STORE, query=QUESTION, custom_llm_provider="openai", **place)
did("search", found["data"][0]["filename"] == "films.md")
did("upload", litellm.vector_stores.create(name="litellm", custom_llm_provider="openai", **place)["id"])
