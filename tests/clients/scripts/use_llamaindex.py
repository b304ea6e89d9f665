from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from steps import FILE_SEARCH, KEY, MODEL, MODEL_AT, NEXT, QUESTION, URL, did


class Person(BaseModel):
    """The person that the question asks for."""

    name: str


llm = OpenAILike(model=MODEL_AT, api_base=URL, api_key=KEY, is_chat_model=True)
ask = [ChatMessage(role="user", content=QUESTION)]
did("answer", llm.chat(ask).message.content, llm.complete(QUESTION).text)
did("stream", "".join(piece.delta or "" for piece in llm.stream_chat(ask)))
did("sampling", llm.temperature == 0.1)
engine = SimpleChatEngine.from_defaults(llm=llm)
did("second turn", engine.chat(QUESTION).response, engine.chat(NEXT).response)
structured = OpenAILike(
    model=MODEL_AT, api_base=URL, api_key=KEY, is_chat_model=True, should_use_structured_outputs=True, max_tokens=200
)
did("structured answer", structured.structured_predict(Person, PromptTemplate(QUESTION)))
searching = OpenAIResponses(model=MODEL, api_base=URL, api_key=KEY, context_window=8192, built_in_tools=[FILE_SEARCH])
did("file search", searching.chat(ask).message.content)
did("file search stream", "".join(piece.delta or "" for piece in searching.stream_chat(ask)))
