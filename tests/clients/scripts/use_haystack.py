from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret
from pydantic import BaseModel
from steps import FILE_SEARCH, KEY, MODEL, MODEL_AT, NEXT, QUESTION, URL, did


class Person(BaseModel):
    name: str


def asked(
    *messages: ChatMessage, kind: type = OpenAIChatGenerator, model: str = MODEL_AT, **options: object
) -> ChatMessage:
    generator = kind(model=model, api_base_url=URL, api_key=Secret.from_token(KEY), **options)
    return generator.run(list(messages))["replies"][0]


ask = ChatMessage.from_user(QUESTION)
answer = asked(ask)
did("answer", answer.text, answer.meta["usage"]["prompt_tokens"])
pieces = []
did(
    "stream",
    asked(ask, streaming_callback=lambda chunk: pieces.append(chunk.content)).text == answer.text == "".join(pieces),
)
did("second turn", asked(ask, answer, ChatMessage.from_user(NEXT)).text)
did("sampling", asked(ask, generation_kwargs={"temperature": 0.7}).text)
form = {"response_format": Person, "max_tokens": 200}
did("structured answer", Person.model_validate_json(asked(ask, generation_kwargs=form).text))
add = Tool("add", "Add two numbers.", {"type": "object", "properties": {}}, lambda: 0)
did("tools offered", asked(ask, tools=[add]).text)
found = asked(ask, kind=OpenAIResponsesChatGenerator, model=MODEL, tools=[FILE_SEARCH])
did("file search", found.text)
