"""An example of every body and every response of the endpoints for OpenAI's clients, and of their streams.

Responses are made by the service's own functions. Bodies are dictionaries with few of their fields.
"""

from collections import Counter
from itertools import chain
from typing import Any

import msgspec

from api.http.sse import EventStream
from api.openai.chat import ChatBody
from api.openai.chat_views import ChatCompletion, ChunkEncoder, Heading, completion_of
from api.openai.embeddings import Embedding, Embeddings, EmbeddingsBody, EmbeddingUsage
from api.openai.errors import ErrorBody, facts_of_status
from api.openai.file_batches import NewFileBatch
from api.openai.files import FileDeleted, FileForm, FileObject, FilePage
from api.openai.models import AT, ModelPage, ModelView
from api.openai.response_views import ResponseDraft, ResponseEventEncoder, ResponseObject, response_of
from api.openai.responses import FileSearch, ResponseBody
from api.openai.store_files import AttributesChange, ContentPage, NewStoreFile, TextOfFile
from api.openai.store_search import PassageText, SearchPage, SearchResult, StoreSearchBody
from api.openai.store_views import (
    FileBatch,
    StoreFile,
    StoreFileDeleted,
    StoreFilePage,
    VectorStore,
    VectorStoreDeleted,
    VectorStorePage,
)
from api.openai.streaming import EventEncoder
from api.openai.vector_stores import NewVectorStore, VectorStoreChange
from api.v1.ask import AnswerView, AskBody
from api.v1.examples import value_of
from ragkv.answer.question import Answer, Citation, Usage
from ragkv.chunk import Chunk, Passage
from ragkv.service.base.page import Page
from ragkv.service.base.status import Status
from ragkv.service.collections.collections import CollectionView
from ragkv.service.documents.documents import DocumentView
from ragkv.service.files.attachments import StoreEntry
from ragkv.service.files.file_batches import BatchProgress
from ragkv.service.files.stores import Store
from ragkv.service.files.uploads import FileView

DONE, DOCUMENT, COLLECTION = value_of(AnswerView), value_of(DocumentView), value_of(CollectionView)
PASSAGE, QUESTION = DONE.passages[0], value_of(AskBody).question
CHUNK_ID, TEXT, MOMENT = PASSAGE.chunk_id, PASSAGE.text, DOCUMENT.created_at

MODEL = "SmolLM2-135M-Instruct"
ENCODER = "all-MiniLM-L6-v2"
MODEL_WITH_COLLECTION = f"{MODEL}{AT}{COLLECTION.name}"
FILE_ID = "8d41c6e2b7f34a0d9c5e1f20a7b36d94"
BATCH_ID = "e6b0f3a95c2d4178b4d97a1c08f25e63"
PURPOSE = "assistants"
CREATED = int(MOMENT.timestamp())
ATTRIBUTES: dict[str, str | int | float | bool] = {"year": 1843, "draft": False}
FILTER = {"type": "gte", "key": "year", "value": 1843}

ENTRY = StoreEntry(FILE_ID, msgspec.structs.replace(DOCUMENT, metadata=ATTRIBUTES), MOMENT)
SOURCES = {DOCUMENT.id: ENTRY}
ANSWERED = Answer(
    id=DONE.id,
    text=DONE.answer,
    finish_reason=DONE.finish_reason,
    citations=(Citation(0, 13, CHUNK_ID, DOCUMENT.id, DOCUMENT.title, None, 0, len(TEXT), TEXT),),
    passages=(Passage(Chunk(CHUNK_ID, DOCUMENT.id, 0, "Ada Lovelace", TEXT, 0, len(TEXT), None, ()), 1.93, 1),),
    timings=DONE.timings,
    usage=Usage(prompt=104, cached=0, stitched=62, recomputed=4, computed=38, completion=5, failed_chunks=0),
    kv=tuple(passage.kv for passage in DONE.passages if passage.kv),
)
HEADING = Heading("chatcmpl-0d9f3b6a5e8c4217a94c1be07f62d835", CREATED, MODEL_WITH_COLLECTION, COLLECTION.id)
SEARCH_TOOL = {"type": "file_search", "vector_store_ids": [COLLECTION.id], "max_num_results": 8, "filters": FILTER}
DRAFT = ResponseDraft(
    initial=ResponseObject(
        id="resp_3f7a1c9e6b5d40828e2f4d0b97c6a513",
        created_at=CREATED,
        model=MODEL,
        status="in_progress",
        tools=[msgspec.convert(SEARCH_TOOL, FileSearch)],
    ),
    question=QUESTION,
    collection_id=COLLECTION.id,
    with_results=True,
    search_id="fs_b15e8d2a7c9043f6a0d3e94b6c7f1285",
    message_id="msg_6c0d4e9b1f8a4732b5e7a92f3d1c0864",
)

FILE = FileObject.of(FileView(id=FILE_ID, name="ada.md", bytes=DOCUMENT.bytes, purpose=PURPOSE, created_at=MOMENT))
STORE = Store(COLLECTION.id, COLLECTION.name, MOMENT, Counter({Status.READY: 12}), COLLECTION.bytes)
BATCH = BatchProgress(BATCH_ID, COLLECTION.id, MOMENT, False, Counter({Status.INDEXING: 1, Status.READY: 1}), 0)
SERVED = ModelView(id=MODEL, created=CREATED)

EXAMPLES: dict[Any, object] = {
    ModelView: SERVED,
    ModelPage: ModelPage(data=[SERVED, ModelView(id=MODEL_WITH_COLLECTION, created=CREATED)]),
    ChatBody: {
        "model": MODEL_WITH_COLLECTION,
        "messages": [
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": "Who was Charles Babbage?"},
            {"role": "assistant", "content": "An inventor."},
            {"role": "user", "content": QUESTION},
        ],
        "max_completion_tokens": 128,
    },
    ChatCompletion: completion_of(HEADING, ANSWERED, SOURCES),
    ResponseBody: {
        "model": MODEL,
        "input": QUESTION,
        "tools": [SEARCH_TOOL],
        "include": ["file_search_call.results"],
    },
    ResponseObject: response_of(DRAFT, ANSWERED, SOURCES),
    EmbeddingsBody: {"model": ENCODER, "input": [QUESTION]},
    Embeddings: Embeddings(
        data=[Embedding(index=0, embedding=[0.0312, -0.0741, 0.0119])],
        model=ENCODER,
        usage=EmbeddingUsage(prompt_tokens=8, total_tokens=8),
    ),
    FileForm: {"file": "(the bytes of ada.md)", "purpose": PURPOSE},
    FileObject: FILE,
    FilePage: FilePage(data=[FILE], has_more=False, first_id=FILE_ID, last_id=FILE_ID),
    FileDeleted: FileDeleted(id=FILE_ID),
    NewVectorStore: {"name": COLLECTION.name, "file_ids": [FILE_ID]},
    VectorStoreChange: {"name": "old papers"},
    VectorStore: VectorStore.of(STORE),
    VectorStorePage: VectorStorePage.of(Page([STORE], more=False), VectorStore.of),
    VectorStoreDeleted: VectorStoreDeleted(id=COLLECTION.id),
    NewStoreFile: {"file_id": FILE_ID, "attributes": ATTRIBUTES},
    AttributesChange: {"attributes": ATTRIBUTES},
    StoreFile: StoreFile.of(ENTRY),
    StoreFilePage: StoreFilePage.of(Page([ENTRY], more=False), StoreFile.of),
    StoreFileDeleted: StoreFileDeleted(id=FILE_ID),
    ContentPage: ContentPage(data=[TextOfFile(TEXT)]),
    NewFileBatch: {"files": [{"file_id": FILE_ID, "attributes": ATTRIBUTES}, {"file_id": DOCUMENT.id}]},
    FileBatch: FileBatch.of(BATCH),
    StoreSearchBody: {"query": QUESTION, "max_num_results": 4, "filters": FILTER},
    SearchPage: SearchPage(
        search_query=[QUESTION],
        data=[
            SearchResult(
                file_id=FILE_ID, filename="ada.md", score=0.66, attributes=ATTRIBUTES, content=[PassageText(TEXT)]
            )
        ],
    ),
}
"""Examples by type. Files of forms are not JSON."""


def _encoded(encoder: EventEncoder) -> EventStream:
    events = (encoder.start(), encoder.delta("Ada "), encoder.delta("Lovelace."), encoder.finish(ANSWERED, SOURCES))
    return EventStream({}, tuple(chain.from_iterable(events)))


STREAMS = {
    "/v1/chat/completions": _encoded(ChunkEncoder(HEADING, with_usage=False)),
    "/v1/responses": _encoded(ResponseEventEncoder(DRAFT)),
}
"""By path."""


def example_of(kind: Any, status: int, detail: str) -> Any:
    """An example of a type as JSON, or None; of an error the one with this status and message."""
    if kind is ErrorBody:
        return msgspec.to_builtins(ErrorBody(facts_of_status(status, detail)))
    return msgspec.to_builtins(EXAMPLES[kind]) if kind in EXAMPLES else None
