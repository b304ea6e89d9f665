"""/v1/responses: answers with the file_search tool, which every answer uses."""

import asyncio
from dataclasses import replace
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
from api.openai.errors import BadParam, errors
from api.openai.fields import (
    Anything,
    Flag,
    Ignored,
    MaxResults,
    ModelId,
    NotSupported,
    Off,
    Retrieval,
    StoreIds,
    Tags,
    Tier,
    Tokens,
    refuse_switched_on,
)
from api.openai.filters import FilterBody, filter_of
from api.openai.formats import PlainText, schema_of
from api.openai.questions import (
    Conversation,
    Role,
    chosen_collection,
    conversation_of,
    question_about,
    text_of,
)
from api.openai.response_views import ResponseDraft, ResponseEventEncoder, ResponseObject, TextConfig, response_of
from api.openai.sources import sources_of
from api.openai.store_search import Ranking, threshold_of
from api.openai.streaming import StreamingOperation, streamed
from api.v1.ask import BODY_BYTES, whole_answer
from api.v1.sampling import TemperatureFields
from ragkv.answer.question import Question
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.documents.attribute_filter import documents_that_match
from ragkv.service.parts import Parts
from ragkv.settings import Settings


class InputText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text part of a message. Images, audio and files are not supported."""

    type: Annotated[Literal["input_text", "output_text"], "Type of the part."]
    text: Annotated[str, "Text of the part."]
    annotations: Anything = None
    logprobs: Anything = None


class InputItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, or an output item of an earlier response, sent back unchanged."""

    type: Annotated[Literal["message", "file_search_call"] | None, "Type of the item; `message` by default."] = None
    role: Annotated[Role | None, "Author of the message. Required for messages."] = None
    content: Annotated[str | list[InputText] | None, "Text of the message, or its text parts."] = None
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None
    queries: Annotated[
        list[str] | None, "Accepted so that earlier answers can be sent back; no effect on the answer."
    ] = None
    results: Anything = None


class FunctionTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """A function that clients offer to every model. None is called: the answer is text from documents."""

    name: Annotated[str, "Name of the function."]


class FileSearch(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="file_search"
):
    """The file search tool."""

    vector_store_ids: StoreIds
    max_num_results: Annotated[MaxResults | None, "Maximum number of passages."] = None
    filters: Annotated[FilterBody | None, "Use only files whose attributes match this filter."] = None
    ranking_options: Annotated[Ranking | None, "Ranking options: the minimum score."] = None


class ChosenTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tool to use; only `file_search` is supported."""

    type: Annotated[Literal["file_search"], "Type of the tool; only `file_search` is supported."]


class ResponseBody(TemperatureFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response request. Every response begins with a file search, with or without the tool in `tools`."""

    model: Annotated[ModelId, Meta(examples=["SmolLM2-135M-Instruct"])]
    input: (
        Annotated[
            str,
            "The question, or a conversation whose last message is the question.",
            Meta(min_length=1, examples=["Who wrote the first program?"]),
        ]
        | Annotated[list[InputItem], Meta(min_length=1, max_length=1000)]
    )
    instructions: Annotated[str | None, "Additional instructions for the answer."] = None
    tools: (
        Annotated[
            list[FileSearch | FunctionTool],
            "The file search tool, at most one, with the vector store to answer from; functions are never called.",
            Meta(max_length=500),
        ]
        | None
    ) = None
    tool_choice: Annotated[
        Literal["auto", "none", "required"] | ChosenTool | None,
        "Choice of the tool; no effect, since every response begins with a file search.",
    ] = None
    include: (
        Annotated[
            list[Literal["file_search_call.results", "reasoning.encrypted_content"]],
            "Additional output: `file_search_call.results` adds the passages to the file search. The other has no effect: "
            "there is no reasoning.",
            Meta(max_length=10),
        ]
        | None
    ) = None
    max_output_tokens: Annotated[Tokens, "Maximum number of tokens of the answer."] = None
    stream: Annotated[bool | None, "Whether to stream the response as server-sent events."] = None

    retrieval: Retrieval = None
    text: Annotated[TextConfig | None, "Text options: the format of the answer."] = None
    truncation: Annotated[Literal["disabled"] | None, "Truncation strategy; only `disabled` is supported."] = None
    background: Off = None
    store: Off = None

    user: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    metadata: Tags | None = None
    parallel_tool_calls: Flag = None
    service_tier: Tier = None

    access_programs: NotSupported = None
    background_options: NotSupported = None
    context_management: NotSupported = None
    conversation: NotSupported = None
    image: NotSupported = None
    max_tool_calls: NotSupported = None
    moderation: NotSupported = None
    previous_response_id: NotSupported = None
    prompt: NotSupported = None
    prompt_cache_options: NotSupported = None
    prompt_cache_retention: NotSupported = None
    reasoning: NotSupported = None
    stream_options: NotSupported = None
    top_logprobs: NotSupported = None

    @property
    def tool(self) -> FileSearch | None:
        """The file search. Raises BadParam for more than one."""
        searches = [tool for tool in self.tools or () if isinstance(tool, FileSearch)]
        if len(searches) > 1:
            raise BadParam("tools", "at most one file_search is supported, over one vector store")
        return searches[0] if searches else None

    def to_conversation(self) -> Conversation:
        """The conversation. Raises BadParam for a message without a role, or a last message that is no question."""
        if isinstance(self.input, str):
            return conversation_of([("user", self.input)], "input", self.instructions or "")
        messages = list[tuple[Role, str]]()
        for i, item in enumerate(self.input):
            if item.type != "file_search_call":
                if item.role is None:
                    raise BadParam(f"input[{i}].role", "a message needs a role: user, assistant, system or developer")
                messages.append((item.role, text_of(item.content)))
        return conversation_of(messages, "input", self.instructions or "")


@post(
    "/",
    "Create a response",
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
async def create(
    data: JSONBody[ResponseBody],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    parts: NamedDependency[Parts],
) -> Response[ResponseObject]:
    """Answer a question from a collection, with citations of its files.

    Set `stream` for a stream of typed events, the last of which carries the whole response. Responses are not stored.
    """
    question = await asyncio.to_thread(_question_of, caller, data, parts.database, parts.settings)
    events = (await parts.loaded()).answerer.stream(question)
    draft = ResponseDraft.now(
        question,
        with_results="file_search_call.results" in (data.include or ()),
        model=data.model,
        instructions=data.instructions,
        max_output_tokens=data.max_output_tokens,
        metadata=data.metadata or {},
        tool_choice=data.tool_choice or "auto",
        tools=data.tools or [],
        temperature=question.sampling.temperature,
        top_p=question.sampling.top_p,
        text=data.text or TextConfig(PlainText()),
    )
    find_sources = partial(sources_of, caller.tenant_id, database=parts.database)
    if data.stream:
        return await streamed(events, request, ResponseEventEncoder(draft), find_sources)
    answer = await unless_disconnected(request, whole_answer(events))
    return Response(response_of(draft, answer, await asyncio.to_thread(find_sources, answer)))


responses_router = Router("/v1/responses", route_handlers=[create], tags=["openai: responses"])


def _question_of(caller: Caller, body: ResponseBody, database: Database, settings: Settings) -> Question:
    refuse_switched_on(body, ("background", "store"))
    conversation, tool = body.to_conversation(), body.tool
    ref = chosen_collection(caller, body.model, None if tool is None else tool.vector_store_ids, database, settings)
    sampling = body.sampling(schema_of(body.text.format, "text.format") if body.text else None)
    question = question_about(caller, ref, conversation, sampling, body.retrieval, body.max_output_tokens)
    if tool is None:
        return question
    attribute_filter = None if tool.filters is None else filter_of(tool.filters, "tools[0].filters")
    return replace(
        question,
        top_k=tool.max_num_results,
        document_ids=None if attribute_filter is None else documents_that_match(ref, attribute_filter, database),
        relevance_threshold=threshold_of(tool.ranking_options),
    )
