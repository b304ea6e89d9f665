"""/v1/vector_stores/ID/search: passages of a collection, without an answer."""

from typing import Annotated, Literal

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta

from api.access.auth import reading
from api.http.methods import post
from api.openai.errors import BadParam, errors
from api.openai.fields import MaxResults, NotSupported, Off, Outdated, Score, attributes_of, refuse_switched_on
from api.openai.filters import FilterBody, filter_of
from ragkv.answer.question import QUESTION_CHARACTERS
from ragkv.chunk import Passage
from ragkv.retrieve.index import DocumentIds
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import CollectionRef
from ragkv.service.documents.attribute_filter import documents_that_match
from ragkv.service.files.attachments import entries_by_document
from ragkv.service.parts import Parts

Query = Annotated[str, Meta(min_length=1, max_length=QUESTION_CHARACTERS, examples=["Who wrote the first program?"])]


class Ranking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranking options."""

    ranker: (
        Annotated[
            str,
            Meta(
                pattern=r"^(auto|default[-_]\d{4}[-_]\d{2}[-_]\d{2})$",
                description="`auto` or a name such as `default-2024-11-15`; no effect: the service has one ranker.",
            ),
        ]
        | None
    ) = None
    score_threshold: (
        Annotated[float, Meta(ge=0, le=1, description="Minimum score of passages, from 0 to 1.")] | None
    ) = None
    hybrid_search: NotSupported = None


class StoreSearchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search of a vector store."""

    query: Annotated[
        Query | Annotated[list[Query], Meta(min_length=1, max_length=8)],
        "A query, or several queries whose results are merged.",
    ]
    max_num_results: Annotated[MaxResults | None, "Maximum number of passages."] = None
    filters: Annotated[FilterBody | None, "Use only files whose attributes match this filter."] = None
    ranking_options: Annotated[Ranking | None, "Ranking options: the minimum score."] = None
    rewrite_query: Off = None

    @property
    def queries(self) -> list[str]:
        return self.query if isinstance(self.query, list) else [self.query]


class PassageText(msgspec.Struct, frozen=True):
    """The text of a passage."""

    text: Annotated[str, "Text of the passage."]
    type: Literal["text"] = "text"


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that was found."""

    file_id: Annotated[str, "Id of the file."]
    filename: Annotated[str, "Name of the file."]
    score: Score
    attributes: Annotated[dict[str, str | int | float | bool], "Attributes of the file."]
    content: Annotated[list[PassageText], "Text of the passage."]
    outdated: Outdated = None


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Search results, best first."""

    search_query: Annotated[list[str], "Queries as requested."]
    data: Annotated[list[SearchResult], "Passages, best first."]
    has_more: Annotated[bool, "Always false: all items are returned."] = False
    next_page: Annotated[None, "Always null."] = None
    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"


@post(
    "/{vector_store_id:str}/search",
    "Search a vector store",
    errors(NOT_FOUND="No such vector store."),
    reading,
    status_code=200,
)
async def search(
    store: NamedDependency[CollectionRef],
    data: JSONBody[StoreSearchBody],
    parts: NamedDependency[Parts],
) -> SearchPage:
    """Search a vector store for the passages that an answer would be generated from, without generating one."""
    refuse_switched_on(data, ("rewrite_query",))
    if not all(map(str.strip, data.queries)):
        raise BadParam("query", "the query is empty: ask something")
    limit, hops = data.max_num_results or 10, parts.settings.hops
    document_ids: DocumentIds | None = None
    if data.filters is not None:
        attribute_filter = filter_of(data.filters, "filters")
        document_ids = await parts.retrieval.run(documents_that_match, store, attribute_filter, parts.database)
    searcher = (await parts.loaded()).searcher
    best: dict[str, Passage] = {}  # by chunk, each with its best score
    for query in data.queries:
        for passage in await searcher.search(store.tenant_id, store.collection_id, query, limit, hops, document_ids):
            other = best.get(passage.chunk.id)
            if other is None or other.score < passage.score:
                best[passage.chunk.id] = passage
    threshold = threshold_of(data.ranking_options)
    ranked = sorted(best.values(), key=lambda passage: -passage.score)
    passages = [passage for passage in ranked if passage.relevance >= threshold][:limit]
    return await parts.retrieval.run(_page, store.tenant_id, data.queries, passages, parts.database)


def threshold_of(ranking: Ranking | None) -> float:
    return (ranking.score_threshold if ranking else None) or 0.0


def _page(tenant_id: str, queries: list[str], passages: list[Passage], database: Database) -> SearchPage:
    documents = sorted({passage.chunk.document_id for passage in passages})
    entries = entries_by_document(tenant_id, documents, database)
    results = [
        SearchResult(
            file_id=entry.file_id,
            filename=entry.document.name,
            score=passage.relevance,
            attributes=attributes_of(entry.document.metadata),
            content=[PassageText(passage.chunk.text)],
            outdated=passage.chunk.outdated,
        )
        for passage in passages
        if (entry := entries.get(passage.chunk.document_id)) is not None
    ]
    return SearchPage(search_query=queries, data=results)
