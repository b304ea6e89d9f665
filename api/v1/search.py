"""/v1/search: passages for a question, without an answer."""

import time
from typing import Annotated

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody

from api.access.auth import reading
from api.http.errors import json_problems
from api.http.methods import post
from api.v1.passages import (
    DocumentIdList,
    Filters,
    Hops,
    PassageView,
    QuestionText,
    ScoreThreshold,
    TopK,
    searched_documents,
)
from ragkv.answer.question import check_question_text
from ragkv.chunk import relevance_of
from ragkv.service.base.caller import Caller
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.parts import Parts

BODY_BYTES = 256 * 1024


class SearchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search. Omitted options take the values of the service's settings."""

    question: QuestionText
    collection: Annotated[str, "Collection id or name."] = DEFAULT_COLLECTION
    filter: Filters | None = None
    document_ids: DocumentIdList | None = None
    top_k: TopK | None = None
    hops: Hops | None = None
    score_threshold: ScoreThreshold | None = None


class SearchTimings(msgspec.Struct, frozen=True):
    """Durations of a search, in milliseconds."""

    retrieve_ms: Annotated[float, "Duration of retrieval."]


class SearchView(msgspec.Struct, frozen=True):
    """Search results. The list is empty if the collection has no searchable documents."""

    passages: Annotated[list[PassageView], "Passages, best first."]
    timings: Annotated[SearchTimings, "Durations of the search."]


@post(
    "/v1/search",
    "Search for passages",
    json_problems(
        NOT_FOUND="No such collection or document.",
        REQUEST_ENTITY_TOO_LARGE="The question or the body is too large.",
        UNPROCESSABLE_ENTITY="The question is empty.",
    ),
    reading,
    status_code=200,
    tags=["questions"],
    request_max_body_size=BODY_BYTES,
)
async def search(
    data: JSONBody[SearchBody], caller: NamedDependency[Caller], parts: NamedDependency[Parts]
) -> SearchView:
    """Search a collection for the passages that an answer would be generated from, without generating one."""
    began = time.perf_counter()
    passages = await found_passages(caller, data, parts)
    return SearchView(passages, SearchTimings((time.perf_counter() - began) * 1e3))


async def found_passages(caller: Caller, body: SearchBody, parts: Parts) -> list[PassageView]:
    """The best passages first. Raises Rejected or TooLarge for the question, NotFound."""
    check_question_text(body.question)
    documents = (body.collection, body.filter, body.document_ids)
    ref, document_ids = await parts.retrieval.run(searched_documents, caller.tenant_id, *documents, parts.database)
    searched = (body.question, body.top_k or parts.settings.top_k, body.hops or parts.settings.hops, document_ids)
    searcher = (await parts.loaded()).searcher
    passages = await searcher.search(ref.tenant_id, ref.collection_id, *searched)
    least = relevance_of(body.score_threshold or 0.0)
    return [PassageView.of(passage) for passage in passages if passage.relevance >= least]
