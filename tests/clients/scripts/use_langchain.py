from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from steps import FILE_SEARCH, KEY, MODEL, MODEL_AT, NEXT, QUESTION, URL, did


class Person(BaseModel):
    """The person that the question asks for."""

    name: str


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model(name: str = MODEL_AT, **options: object) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=URL, api_key=KEY, **options)


answer = model().invoke(QUESTION)
did("answer", answer.content, answer.usage_metadata["input_tokens"])
did("stream", "".join(chunk.content for chunk in model().stream(QUESTION)) == answer.content)
did("second turn", model().invoke([HumanMessage(QUESTION), answer, HumanMessage(NEXT)]).content)
did("sampling", model(temperature=0.7).invoke(QUESTION, stop=["\n\n"]).content)
person = model(max_tokens=200).with_structured_output(Person).invoke(QUESTION)
did("structured answer", isinstance(person, Person))
offered = model().bind_tools([add]).invoke(QUESTION)
did("tools offered", offered.content, not offered.tool_calls)

searching = model(MODEL, use_responses_api=True).bind_tools([FILE_SEARCH])
found = searching.invoke(QUESTION)
did("file search", found.content[-1]["annotations"])
parts = [chunk.text for chunk in searching.stream(QUESTION)]
did("file search stream", "".join(parts) == found.text)
did("batch", len(model().batch([QUESTION, NEXT])) == 2)
