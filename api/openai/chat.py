"""/v1/chat/completions: answers to the last message, from a collection."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, Router
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta

from api.access.auth import reading
from api.access.concurrency import asking
from api.http.disconnect import unless_disconnected
from api.http.methods import post
from api.openai.chat_views import ChatCompletion, ChunkEncoder, Heading, completion_of
from api.openai.errors import BadParam, errors
from api.openai.fields import (
    Anything,
    Flag,
    Ignored,
    ModelId,
    NotSupported,
    Off,
    One,
    Retrieval,
    StoreIds,
    Tags,
    Tier,
    Tokens,
    ToolChoice,
    refuse_forced_tool,
    refuse_switched_on,
)
from api.openai.formats import ChatFormat, schema_of
from api.openai.questions import Role, chosen_collection, conversation_of, question_about, text_of
from api.openai.sources import sources_of
from api.openai.streaming import StreamingOperation, streamed
from api.v1.ask import BODY_BYTES, whole_answer
from api.v1.sampling import SamplingFields
from ragkv.answer.question import Question
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.parts import Parts
from ragkv.settings import Settings


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text part of a message. Images, audio and files are not supported."""

    type: Annotated[Literal["text"], "Type of the part; only `text` is supported."]
    text: Annotated[str, "Text of the part."]


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of the conversation. Answers of the service may be sent back unchanged, with all their fields."""

    role: Annotated[Role, "Author of the message."]
    content: Annotated[str | list[TextPart] | None, "Text of the message, or its text parts."] = None
    name: Ignored = None
    refusal: NotSupported = None
    annotations: Anything = None
    citations: Anything = None
    audio: NotSupported = None
    function_call: NotSupported = None
    tool_calls: NotSupported = None


class Tool(msgspec.Struct, frozen=True):
    """A function that clients offer to every model. None is called: the answer is text from documents."""

    type: Annotated[Literal["function"], "Type of the tool."]
    function: Annotated[dict[str, Any], "The function."]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options for streaming."""

    include_usage: Annotated[
        bool | None, "Whether to send the token counts in an additional last chunk without choices."
    ] = None
    continuous_usage_stats: Annotated[
        Flag, "Field of vLLM's API; no effect, since the token counts come in the last chunk."
    ] = None
    include_obfuscation: Off = None


class ChatBody(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chat completion request. The last message is the question."""

    model: Annotated[ModelId, Meta(examples=["SmolLM2-135M-Instruct@papers"])]
    messages: Annotated[
        list[ChatMessage],
        "Messages of the conversation, oldest first. The last one is the question.",
        Meta(min_length=1, max_length=1000, examples=[[{"role": "user", "content": "Who wrote the first program?"}]]),
    ]
    vector_store_ids: Annotated[
        StoreIds | None, "Vector store to answer from, by id or name, as an alternative to MODEL@COLLECTION."
    ] = None
    max_tokens: Annotated[Tokens, "Maximum number of tokens of the answer. Same as `max_completion_tokens`."] = None
    max_completion_tokens: Annotated[Tokens, "Maximum number of tokens of the answer."] = None
    stream: Annotated[bool | None, "Whether to stream the answer as server-sent events."] = None
    stream_options: Annotated[StreamOptions | None, "Options for streaming. Requires `stream`."] = None

    n: One = None
    response_format: Annotated[ChatFormat | None, "Format of the answer; text by default."] = None
    modalities: (
        Annotated[list[Literal["text"]], "Types of output; only text is supported.", Meta(max_length=1)] | None
    ) = None
    retrieval: Retrieval = None
    tools: Annotated[list[Tool], "Functions; none is called, the answer is text.", Meta(max_length=500)] | None = None
    tool_choice: ToolChoice | None = None
    logprobs: Off = None
    store: Off = None

    user: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    metadata: Tags | None = None
    parallel_tool_calls: Flag = None
    service_tier: Tier = None

    audio: NotSupported = None
    function_call: NotSupported = None
    functions: NotSupported = None
    logit_bias: NotSupported = None
    moderation: NotSupported = None
    prediction: NotSupported = None
    prompt_cache_options: NotSupported = None
    prompt_cache_retention: NotSupported = None
    reasoning_effort: NotSupported = None
    top_logprobs: NotSupported = None
    verbosity: NotSupported = None
    web_search_options: NotSupported = None

    @property
    def answer_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


@post(
    "/completions",
    "Create a chat completion",
    errors(
        NOT_FOUND="No such model or vector store.",
        REQUEST_ENTITY_TOO_LARGE="The question, the body or the resulting prompt is too large.",
    ),
    reading,
    asking,
    status_code=200,
    request_max_body_size=BODY_BYTES,
    operation_class=StreamingOperation,
)
async def complete(
    data: JSONBody[ChatBody],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> Response[ChatCompletion]:
    """Answer the last message of a conversation from a collection, with citations.

    Set `stream` for a stream of `chat.completion.chunk` objects, ended by `data: [DONE]`.
    """
    question = await asyncio.to_thread(_question_of, caller, data, parts.database, parts.settings)
    events = (await parts.loaded()).answerer.stream(question)
    heading = Heading.now(data.model, question, parts.settings.public_url)
    find_sources = partial(sources_of, caller.tenant_id, database=parts.database)
    if data.stream:
        return await streamed(events, request, ChunkEncoder(heading, with_usage=data.wants_usage), find_sources)
    answer = await unless_disconnected(request, whole_answer(events))
    return Response(completion_of(heading, answer, await asyncio.to_thread(find_sources, answer)))


chat_router = Router("/v1/chat", route_handlers=[complete], tags=["openai: chat"])


def _question_of(caller: Caller, body: ChatBody, database: Database, settings: Settings) -> Question:
    refuse_switched_on(body, ("logprobs", "store"))
    refuse_forced_tool(body.tool_choice)
    if body.stream_options not in (None, StreamOptions()) and not body.stream:
        raise BadParam("stream_options", "stream_options require `stream`: set it, or omit them")
    if body.stream_options is not None and body.stream_options.include_obfuscation:
        raise BadParam("stream_options.include_obfuscation", "obfuscation is not supported: omit it")
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise BadParam("max_tokens", "max_tokens and max_completion_tokens differ: set only one of them")
    messages = [(message.role, text_of(message.content)) for message in body.messages]
    conversation = conversation_of(messages, "messages")
    ref = chosen_collection(caller, body.model, body.vector_store_ids, database, settings)
    sampling = body.sampling(schema_of(body.response_format, "response_format"))
    return question_about(caller, ref, conversation, sampling, body.retrieval, body.answer_tokens)
