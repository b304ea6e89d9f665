"""An example of every body, response and stream, as values of their types, so that the two cannot diverge."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, get_args, get_origin

import msgspec

from api.http.errors import Problem
from api.http.sse import EventStream, event_message
from api.v1.ask import AnswerView, AskBody, CachedTokens, CitationView, TurnBody, UsageView
from api.v1.collections import CollectionBody, CollectionPatch
from api.v1.data_sources import DataSourcePatch, NewDataSource, SyncBody
from api.v1.documents import Amendment, Replacement, Upload, Uploaded, Uploads
from api.v1.evaluations import NewEvaluation
from api.v1.health import Health, Readiness
from api.v1.keys import NewKey
from api.v1.kv import PinBody
from api.v1.pages import BoxesView, BoxView, PageBoxes
from api.v1.passages import PassageView
from api.v1.questions import FeedbackBody, RetentionBody
from api.v1.search import SearchBody, SearchTimings, SearchView
from api.v1.statistics import Statistics
from api.v1.webhooks import NewWebhook
from api.v1.writer import WriterBody
from ragkv.answer.question import Citation, Delta, PassageKV, PromptSpan, Timings
from ragkv.kv.file import KVShape
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import CompressionMethod, KVWhen, KVWrite
from ragkv.prefill.writer import Card, Gate
from ragkv.service.audit.log import AuditEvent, AuditPage
from ragkv.service.base.status import Status
from ragkv.service.collections.collections import AnswerCachePatch, AnswerCacheView, CollectionPage, CollectionView
from ragkv.service.data_sources.data_sources import DataSourceView, SourceFileCounts, SourceFilePage, SourceFileView
from ragkv.service.data_sources.statements import FileStatus
from ragkv.service.documents.changes import Queued
from ragkv.service.documents.cited import CitedPage, checksum_of
from ragkv.service.documents.documents import DocumentView
from ragkv.service.documents.listing import ChunkKV, ChunkPage, ChunkView, DocumentPage
from ragkv.service.documents.mail_attachments import AttachmentView, DocumentDetail, MailView
from ragkv.service.documents.watch import DocumentProgress
from ragkv.service.evaluations.outcome import (
    ComparedAnswers,
    EvaluationReport,
    EvaluationRun,
    EvaluationRunPage,
    FidelityFigures,
    FidelityOutcome,
    GivenPassage,
    GivenQuestion,
    Interval,
    MeasuredQuestion,
    RunSettings,
)
from ragkv.service.health.condition import AWAY, EngineView
from ragkv.service.keys.keys import IssuedKey, KeyPage, KeyView
from ragkv.service.kv_admin.eviction import Freed
from ragkv.service.kv_admin.rules import KVRulePatch, KVRuleView
from ragkv.service.kv_admin.usage import (
    CollectionKV,
    DeviceTier,
    HeldKV,
    HostTier,
    KVAmount,
    KVOverview,
    KVTiers,
    TenantKV,
)
from ragkv.service.kv_admin.verify import Verified
from ragkv.service.questions.feedback import Feedback
from ragkv.service.questions.questions import LoggedQuestion, QuestionLog, QuestionPage, SetPassage, SetQuestion
from ragkv.service.statistics.views import (
    Bucket,
    FirstToken,
    FullCost,
    HitRate,
    Jobs,
    Percentiles,
    Questions,
    Summary,
    TierLoads,
    TokenCounts,
)
from ragkv.service.webhooks.webhooks import DeliveryPage, DeliveryView, IssuedWebhook, WebhookView
from ragkv.service.writers import Writer, Writers

WRITER = Card(
    model="SmolLM2-135M-Instruct",
    model_fingerprint="0f7c2f6a4f0d4a5e8b1c9d3e7a6b5c4d",
    made_at=datetime(2026, 1, 5, 9, 30, tzinfo=UTC),
    seed=0,
    rank=16,
    samples=400,
    seconds=3600.0,
    data="collection papers",
    curve=((0, 0.124), (200, 0.05), (400, 0.04)),
    gate=Gate(
        contexts=32,
        kl=0.05,
        plain_kl=0.12,
        kl_ratio_upper=0.52,
        nll=1.9,
        plain_nll=2.0,
        one_chunk_kl=0.02,
    ),
)
DOCUMENT_ID = "5f0c4f1e9d3b4c0f8a6e2b7d1c9a8e30"
COLLECTION_ID = "c2a7d4b09e6f4f3ab1d85e7c60f92a14"
CHUNK_ID = f"{DOCUMENT_ID}:0"
CURSOR = "WyIyMDI2LTAxLTA1VDA5OjMwOjAwWiJd"
MOMENT = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
TEXT = "Ada Lovelace wrote the first program, for the analytical engine of Charles Babbage."
QUESTION = "Who wrote the first program?"

DOCUMENT = DocumentView(
    id=DOCUMENT_ID,
    collection_id=COLLECTION_ID,
    name="ada.md",
    title="Ada Lovelace",
    media_type="text/markdown",
    bytes=1_284,
    status=Status.READY,
    stage="",
    done=296,
    total=296,
    chunks=2,
    tokens=296,
    omitted_hidden_words=0,
    omitted_encoded_characters=0,
    error=None,
    metadata={"year": 1843, "tags": ["history"]},
    kv_pinned=False,
    kv_evicted=False,
    data_source_id=None,
    origin=None,
    outdated=None,
    created_at=MOMENT,
    updated_at=MOMENT,
)
DETAIL = DocumentDetail(
    **msgspec.structs.asdict(DOCUMENT),
    attachments=[
        AttachmentView(
            name="notes.pdf",
            bytes=48_210,
            document_id="6f0c0d1c3b1f4c5e9a7d2e8b4f6a1c3d",
            status=Status.READY,
            error=None,
        )
    ],
    attached_to=[MailView("b1946ac92492d2347c6235b4d2611184", "On the analytical engine.eml")],
)
PROGRESS = DocumentProgress(DOCUMENT_ID, "ada.md", Status.SEARCHABLE, "prefill", 148, 296, None)
VERIFIED = Verified(checked=212, total=212, bytes=148_373_504)
PASSAGE = PassageView(
    chunk_id=CHUNK_ID,
    document_id=DOCUMENT_ID,
    title="Ada Lovelace",
    text=TEXT,
    page=None,
    page_label=None,
    start=0,
    end=len(TEXT),
    score=1.93,
    hop=1,
    kv=PassageKV("host", 28, 4),
    prompt_position=0,
    checksum=checksum_of(TEXT),
)
ANSWER_ID = "0d9f3b6a5e8c4217a94c1be07f62d835"
FEEDBACK = Feedback(
    rating="down",
    correction="Ada Lovelace, in 1843.",
    comment="The year was missing.",
    answer="Ada Lovelace.",
    updated_at=MOMENT,
)
LOGGED = LoggedQuestion(
    id=ANSWER_ID,
    question=QUESTION,
    asked_at=MOMENT,
    collection_id=COLLECTION_ID,
    collection="papers",
    mode="stitched",
    finish_reason="stop",
    ttft_ms=96.8,
    total_ms=188.5,
    feedback=FEEDBACK,
)
SET_QUESTION = SetQuestion(ANSWER_ID, QUESTION, ("Ada Lovelace, in 1843.",), (SetPassage("Ada Lovelace", TEXT),))
EVALUATION_RUN = EvaluationRun(
    id="5f0e1d2c3b4a59687766554433221100",
    kind="fidelity",
    source="rated",
    collection_id=COLLECTION_ID,
    collection="papers",
    state="done",
    total=48,
    done=48,
    settings=RunSettings(
        version="0.2.0",
        model="Qwen/Qwen3-8B",
        model_fingerprint="9a1c0f6e2d7b4c53",
        writer="",
        kv_format="bf16",
        policy="question",
        recompute_ratio=0.1,
        recompute_max_tokens=320,
        block_size=4,
        top_k=16,
        hops=2,
        reranker=None,
        passage_order="best_last",
        index="0d4f5b6a7c8e9f10",
        digest="e8b1f7a2c3d45960",
    ),
    fidelity=FidelityFigures(
        questions=47,
        skipped=1,
        with_answer=47,
        gain_kept=0.97,
        gain_kept_interval=Interval(0.94, 0.99),
        kl=0.041,
        kl_interval=Interval(0.022, 0.066),
        kl_high=2.1277,
        agree=89.3617,
        f1=71.4,
        f1_full=72.2,
        ttft_ms=96.8,
        ttft_full_ms=611.3,
        speedup=6.2,
        recomputed=0.1,
        passages_without_kv=0.0,
    ),
    retrieval=None,
    error=None,
    created_at=MOMENT,
    ended_at=MOMENT,
)
MEASURED = MeasuredQuestion(
    ordinal=0,
    question_id=ANSWER_ID,
    question=QUESTION,
    known_answer="Ada Lovelace, in 1843.",
    answers=ComparedAnswers("Ada Lovelace.", "Ada Lovelace, in 1843."),
    fidelity=FidelityOutcome(
        kl=0.31,
        nll=0.62,
        nll_full=0.48,
        nll_without=3.1,
        agree=False,
        f1=0.6667,
        f1_full=1.0,
        ttft_ms=96.8,
        ttft_full_ms=611.3,
        recomputed_tokens=205,
        context_tokens=2048,
        passages=8,
        passages_without_kv=0,
    ),
    retrieval=None,
    error=None,
)
GIVEN = GivenQuestion(
    question=QUESTION, answers=("Ada Lovelace",), passages=(GivenPassage(TEXT, "Ada Lovelace"),), gold=()
)
CITATION = Citation(0, 13, CHUNK_ID, DOCUMENT_ID, "Ada Lovelace", None, 0, len(TEXT), TEXT)
DONE = AnswerView(
    id=ANSWER_ID,
    answer="Ada Lovelace.",
    finish_reason="stop",
    citations=[CitationView.of(CITATION, "text/markdown")],
    passages=[PASSAGE],
    timings=Timings(11.2, 1.4, 96.8, 84.1, 2.3, 31.0, 188.5),
    usage=UsageView(
        prompt=104,
        cached=0,
        stitched=62,
        recomputed=4,
        computed=38,
        completion=5,
        failed_chunks=0,
        prompt_tokens=104,
        completion_tokens=5,
        total_tokens=109,
        prompt_tokens_details=CachedTokens(62),
    ),
    prompt_spans=(
        PromptSpan(0, 38, "prefix", "stitched", None),
        PromptSpan(38, 66, "passage", None, 0),
        PromptSpan(66, 104, "question", "computed", None),
    ),
)
COLLECTION = CollectionView(
    id=COLLECTION_ID,
    name="papers",
    documents=12,
    chunks=340,
    tokens=81_204,
    bytes=3_118_021,
    created_at=MOMENT,
    answer_cache=AnswerCacheView(
        enabled=True, threshold=0.95, ttl_s=86_400, hits=31, misses=93, skipped=4, hit_rate=0.25
    ),
)
CHUNK = ChunkView(
    id=CHUNK_ID,
    ordinal=0,
    title="Ada Lovelace",
    text=TEXT,
    page=None,
    page_label=None,
    start=0,
    end=len(TEXT),
    tokens=28,
    kv=ChunkKV("stored", 1_393_344, KVShape(30, 28, 3, 64, "BF16", 10, 9, 2, 61_440, KVFormat.BF16)),
)
KEY = KeyView(
    id="9f2c4e1a7b3d5068",
    name="indexing job",
    scopes=["read", "write"],
    created_at=MOMENT,
    expires_at=datetime(2026, 4, 5, 9, 30, tzinfo=UTC),
    last_used_at=MOMENT,
    revoked_at=None,
)
AUDIT_EVENT = AuditEvent(
    id="7e1b9d3c5f2a4b6c8d0e1f2a3b4c5d6e",
    at=MOMENT,
    action="Delete a document",
    resource=DOCUMENT_ID,
    within=None,
    key_id=KEY.id,
    key_name=KEY.name,
    person=None,
    client="192.0.2.7",
    route="DELETE /v1/documents/{document_id}",
    request_id="4be0643f1d98573b97cdca98a65347dd",
)
WEBHOOK = WebhookView(
    id="8d1f6a2b4c3e4f5a9b7c0d1e2f3a4b5c",
    url="https://example.com/hooks/ragkv",
    collection_id=COLLECTION_ID,
    created_at=MOMENT,
)
DATA_SOURCE = DataSourceView(
    id="5e0c4b7a9d1f4c2e8b6a3d5f7e9c1b0a",
    collection_id=COLLECTION_ID,
    location="s3://company/handbook",
    interval_minutes=15,
    watch=False,
    watch_error=None,
    status="synced",
    error=None,
    held_deletions=0,
    listed=214,
    files=SourceFileCounts(waiting=2, ready=207, failed=1, unreadable=1, skipped=3),
    created_at=MOMENT,
    synced_at=MOMENT,
    next_at=MOMENT,
)
SOURCE_FILE = SourceFileView(
    key="2026/ada.md",
    status=FileStatus.READY,
    bytes=1_284,
    error=None,
    document_id=DOCUMENT_ID,
    updated_at=MOMENT,
)
DELIVERY = DeliveryView(
    id="1c9e7f3a5b2d4e6f8a0b1c2d3e4f5a6b",
    event="document.ready",
    document_id=DOCUMENT_ID,
    status="delivered",
    attempts=1,
    code=204,
    error=None,
    created_at=MOMENT,
    attempted_at=MOMENT,
    next_at=None,
)
SUMMARY = Summary(
    window="24h",
    since=MOMENT,
    until=datetime(2026, 1, 6, 9, 30, tzinfo=UTC),
    questions=Questions(total=37, stitched=34, full=3),
    first_token=FirstToken(
        stitched=Percentiles(182.4, 411.0),
        full=Percentiles(1210.7, 1893.2),
        stitched_in_full=FullCost(p50_ms=1204.0, p95_ms=1880.1, times_sooner=6.6, basis="full", runs=3),
        hint=None,
    ),
    tokens=TokenCounts(104_312, 2_816, 88_120, 9_790, 3_586, 412, 90_936),
    hit_rate=HitRate(device=0.03, host=0.8, disk=0.04, remote=0.0, recomputed=0.09, computed=0.04, failed_chunks=0),
    jobs=Jobs(queued=2, running=1),
    bucket_s=1800,
    series=[Bucket(start=MOMENT, questions=4, stitched_ms=182.4)],
)

EXAMPLES: dict[Any, object] = {
    AnswerView: DONE,
    AskBody: AskBody(
        question=QUESTION,
        collection="papers",
        filter={"year": [1843, 1844]},
        history=[
            TurnBody(role="user", content="Who was Charles Babbage?"),
            TurnBody(role="assistant", content="An inventor."),
        ],
    ),
    FeedbackBody: FeedbackBody(rating=FEEDBACK.rating, correction=FEEDBACK.correction, comment=FEEDBACK.comment),
    Feedback: FEEDBACK,
    QuestionPage: QuestionPage(
        [LOGGED],
        CURSOR,
    ),
    NewEvaluation: NewEvaluation(collection="papers", kind="fidelity", source="rated", limit=100),
    GivenQuestion: GIVEN,
    EvaluationRun: EVALUATION_RUN,
    EvaluationRunPage: EvaluationRunPage([EVALUATION_RUN], None),
    EvaluationReport: EvaluationReport(EVALUATION_RUN, [MEASURED]),
    SearchBody: SearchBody(question=QUESTION, collection="papers", top_k=4),
    SearchView: SearchView([PASSAGE], SearchTimings(11.2)),
    CollectionBody: CollectionBody(name="papers"),
    CollectionPatch: CollectionPatch(answer_cache=AnswerCachePatch(enabled=True, threshold=0.95)),
    CollectionView: COLLECTION,
    CollectionPage: CollectionPage([COLLECTION], CURSOR),
    DocumentView: DOCUMENT,
    DocumentDetail: DETAIL,
    DocumentPage: DocumentPage([DOCUMENT], CURSOR),
    Amendment: Amendment(name="lovelace.md", metadata={"year": 1843, "draft": None}),
    Uploaded: Uploaded("ada.md", HTTPStatus.ACCEPTED, document=DOCUMENT),
    ChunkPage: ChunkPage([CHUNK], None),
    RetentionBody: RetentionBody(days=30),
    QuestionLog: QuestionLog(30, 90, 30),
    CitedPage: CitedPage("computers.pptx", "Computers, Pioneers", 3, "slide 3", "", TEXT, "\nShe lived in London."),
    BoxesView: BoxesView(
        [PageBoxes(3, f"/v1/documents/{DOCUMENT_ID}/pages/3", 595.0, 842.0, [BoxView(72.0, 96.5, 321.4, 14.2)])], 12
    ),
    NewKey: NewKey(name="indexing job", scopes=("read", "write"), days=90),
    IssuedKey: IssuedKey(key=f"rk_{KEY.id}_{'0123456789abcdef' * 4}", view=KEY),
    KeyView: KEY,
    KeyPage: KeyPage([KEY], CURSOR),
    AuditPage: AuditPage([AUDIT_EVENT], CURSOR),
    NewWebhook: NewWebhook(url=WEBHOOK.url, collection="papers"),
    IssuedWebhook: IssuedWebhook(secret=f"whsec_{'MDEyMzQ1Njc4OWFiY2RlZg' * 2}", webhook=WEBHOOK),
    WebhookView: WEBHOOK,
    DeliveryPage: DeliveryPage([DELIVERY], CURSOR),
    NewDataSource: NewDataSource(location=DATA_SOURCE.location, collection="papers", interval_minutes=15),
    DataSourcePatch: DataSourcePatch(paused=True),
    SyncBody: SyncBody(confirm=True),
    DataSourceView: DATA_SOURCE,
    SourceFilePage: SourceFilePage([SOURCE_FILE], CURSOR),
    PinBody: PinBody(pinned=True),
    KVRulePatch: KVRulePatch(format="int4", when="nth_use", uses=3, write="back", compress="laq", keep=0.5),
    KVRuleView: KVRuleView(
        format=KVFormat.INT4,
        when=KVWhen.NTH_USE,
        uses=3,
        write=KVWrite.BACK,
        compress=CompressionMethod.LAQ,
        keep=0.5,
        own=["format", "when", "uses", "write", "compress", "keep"],
    ),
    HeldKV: HeldKV(
        pinned=False,
        files=2,
        bytes=14_745_600,
        tokens=296,
        chunks=2,
        stored_chunks=2,
        evicted_documents=0,
        last_used_at=MOMENT,
    ),
    KVOverview: KVOverview(
        KVTiers(
            DeviceTier(2_147_483_648, 184_549_376), HostTier(100_663_296), KVAmount(340, 4_045_504_512, 81_204), None
        ),
        [CollectionKV(COLLECTION_ID, "papers", pinned=False, files=340, bytes=4_045_504_512, tokens=81_204)],
        None,
        [TenantKV("default", 340, 4_045_504_512, 81_204)],
        limit_bytes=None,
        last_used_at=MOMENT,
        hit_rate=HitRate(device=0.03, host=0.8, disk=0.04, remote=0.0, recomputed=0.09, computed=0.04, failed_chunks=0),
        loads=[TierLoads("host", 34, 18.2, 61.0)],
    ),
    WriterBody: WriterBody(name="embedded"),
    Writers: Writers(
        in_use=WRITER,
        fingerprint="6b1f0e1c5d7a4b0f9c3e2d8a7f6b5c4d",
        restart_needed=False,
        available=(Writer(name="embedded", card=WRITER, objections=()),),
    ),
    Freed: Freed(2, 14_745_600),
    Queued: Queued(3),
    Statistics: Statistics(
        SUMMARY,
        EngineView(
            ready=True,
            status="ok",
            place="local",
            model="Qwen3-0.6B",
            window=8192,
            kv_cache_gib=2.0,
            policy="question",
            recompute_ratio=0.1,
        ),
    ),
    Health: Health(),
    Readiness: Readiness(ready=True, engine="ok", database="ok", redis="ok"),
    Upload: {"file": "(the bytes of ada.md)", "collection": "papers", "metadata": '{"year": 1843}'},
    Uploads: {"files": ["(the bytes of ada.md)", "(the bytes of babbage.pdf)"], "collection": "papers"},
    Replacement: {"file": "(the bytes of ada.md)"},
}
"""Examples by type. Forms are dictionaries: files are not JSON."""

_VERIFICATION = EventStream(
    {"progress": Verified, "done": Verified, "error": Problem}, (event_message("done", VERIFIED),)
)

STREAMS = {
    "/v1/ask": EventStream(
        {"delta": Delta, "done": AnswerView, "error": Problem},
        (
            event_message("delta", Delta("Ada ")),
            event_message("delta", Delta("Lovelace.")),
            event_message("done", DONE),
        ),
    ),
    "/v1/documents/{document_id}/events": EventStream(
        {"progress": DocumentProgress, "done": DocumentProgress, "deleted": dict[str, str], "error": Problem},
        (event_message("progress", PROGRESS),),
    ),
    "/v1/collections/{collection}/events": EventStream(
        {"progress": DocumentProgress, "done": dict[str, str], "deleted": dict[str, str], "error": Problem},
        (event_message("progress", PROGRESS),),
    ),
    "/v1/kv/verify": _VERIFICATION,
    "/v1/documents/{document_id}/kv/verify": _VERIFICATION,
    "/v1/collections/{collection}/kv/verify": _VERIFICATION,
}
"""By path."""

LINES = {
    "/v1/audit/export": msgspec.json.encode(AUDIT_EVENT).decode() + "\n",
    "/v1/questions/export": msgspec.json.encode(LOGGED).decode() + "\n",
    "/v1/questions/evaluation": msgspec.json.encode(SET_QUESTION).decode() + "\n",
}
"""A line of each response in JSON lines, by path."""


def example_of(kind: Any, status: int = HTTPStatus.OK, detail: str = "") -> Any:
    """An example of a type as JSON, or None; of Problem the one with this status and detail."""
    if kind is Problem:
        problem = Problem(HTTPStatus(status).phrase, status, detail, request_id="4be0643f1d98573b97cdca98a65347dd")
        return msgspec.to_builtins(problem)
    if get_origin(kind) is list:
        example = example_of(get_args(kind)[0])
        return None if example is None else [example]
    if kind is Readiness and status == HTTPStatus.SERVICE_UNAVAILABLE:
        return msgspec.to_builtins(Readiness(ready=False, engine="ok", database="ok", redis=AWAY))
    return msgspec.to_builtins(EXAMPLES[kind]) if kind in EXAMPLES else None
