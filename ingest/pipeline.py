"""Ingestion of one document: parse, split, embed, store and index (searchable), then compute its KV (ready).

Any worker may be stopped anywhere and another goes on: the lease keeps two from working on one document, and every
step that is repeated gives what it gave before.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import DecodeError

from ingest.keep_kv import keep_kv, keys_by
from ingest.parse import Parsed
from ingest.parse.parsed import one_line
from ingest.parts import IngestParts
from ingest.sandbox.messages import KeptPages, decode_kept, encode
from ingest.sandbox.parser import ReadInPart
from ingest.split import split
from ingest.turn import READING_PAGES, Interrupted, Reporter, StageProgress, StageReport, Turn, TurnOver, renewing
from ragkv.chunk import Chunk
from ragkv.errors import Conflict, Rejected, TooLarge, Unavailable
from ragkv.retrieve.encoder import embed_chunks
from ragkv.retrieve.index import Held, Point
from ragkv.service.base.database import new_owner
from ragkv.service.base.long_work import is_outage
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.checks.cleaning import write_points
from ragkv.service.documents.job_statements import BEGUN_FIRST, LACKS_KV, Others
from ragkv.service.documents.lease import Lease
from ragkv.service.documents.mail_attachments import settle_attachments
from ragkv.service.documents.removal import delete_forgotten, discard_unnamed, forget_unused
from ragkv.settings import Settings

if TYPE_CHECKING:
    from ragkv.tokenizer import Tokenizer


log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
MAX_DEATHS = 10
"""Attempts that may end with their worker while workers die with other documents too."""
SEVERAL = 2
"""Other documents whose workers died: with fewer, the document itself is blamed."""
READ_BYTES = 1 << 20
NO_PAGES = encode(KeptPages())


class IngestOutcome(StrEnum):
    """The result of one call. SKIPPED: finished before, deleted, or held by another worker. YIELDED: other documents'
    turn."""

    READY = "ready"
    FAILED = "failed"
    SKIPPED = "skipped"
    YIELDED = "yielded"


def ingest_document(
    document_id: str, ingest: IngestParts, progress: StageProgress = lambda stage, done, total: None
) -> IngestOutcome:
    """Ingest a document up to READY, from its current status on.

    A file that cannot be read fails at once; anything else that goes wrong is raised for the caller to try again, and
    the third time the document fails with the reason. An outage is raised as well, and costs no attempt however often
    it happens. `progress` may raise Interrupted to stop: that costs none either.
    """
    _settle(ingest)
    lease = Lease.take(ingest.parts.database, document_id, owner=new_owner())
    return IngestOutcome.SKIPPED if lease is None else work_on(lease, ingest, progress)


def take_next(ingest: IngestParts, *, unread_only: bool = False) -> Lease | None:
    """Take the document whose turn it is (`job_statements`, `KVShare`); None if none waits. Raises Unavailable.

    unread_only: none that lacks nothing but KV.
    """
    _settle(ingest)
    kinds = (BEGUN_FIRST,) if unread_only else (BEGUN_FIRST, LACKS_KV)
    if not Lease.any_waits(ingest.parts.database, kinds):
        return None
    ingest.load_models()  # before the lease: a worker that is killed meanwhile costs no document an attempt
    return Lease.take_next(ingest.parts.database, new_owner(), kinds[::-1] if ingest.kv_share.is_due else kinds)


def lacks_only_kv(lease: Lease, ingest: IngestParts) -> bool:
    """Whether the document has been read. Raises Unavailable, once the lease is given back or owed."""
    try:
        document = lease.document()
    except Conflict:  # deleted: `work_on` ends at once
        return False
    except Unavailable as error:
        _postpone(lease, error, ingest)
        raise
    return not _needs_reading(document, ingest.parts.index_fingerprint)


def work_on(
    lease: Lease,
    ingest: IngestParts,
    progress: StageProgress = lambda stage, done, total: None,
    others_wait: Callable[[], Others] = lambda: Others.NONE,
) -> IngestOutcome:
    """`ingest_document` for a document whose lease is held. YIELDED if others are waiting and it has made progress."""
    with renewing(lease):
        outcome = _attempt(lease, ingest, progress, Turn(others_wait))
    if outcome is not IngestOutcome.YIELDED:
        ingest.counters.document(outcome)
    return outcome


def _attempt(lease: Lease, ingest: IngestParts, progress: StageProgress, turn: Turn) -> IngestOutcome:
    try:
        document = lease.document()
        try:
            _carry_on(lease, document, ingest, Reporter(lease, progress), turn)
        except TurnOver:
            lease.end_turn()
            return IngestOutcome.YIELDED
    except Conflict as lost:
        log.info("stopped: %s", lost)
        return IngestOutcome.SKIPPED
    except Interrupted:
        with suppress(Conflict):  # deleted or replaced meanwhile
            lease.give_back(None)
        raise
    except Exception as error:
        if is_outage(error):
            _postpone(lease, error, ingest)
            raise
        return _record_failure(lease, error, ingest)
    return IngestOutcome.READY


def _postpone(lease: Lease, error: Exception, ingest: IngestParts) -> None:
    """Give the document back, and the attempt. Where the database itself is away that is left for the next call."""
    with suppress(Unavailable):
        _give_back(lease, _reason(error), ingest)


def _settle(ingest: IngestParts) -> None:
    """Release the leases that could not be released while the database was away. Raises Unavailable while it still
    is."""
    while ingest.owed:
        _give_back(*ingest.owed.pop(), ingest)  # popped at once: threads of KV append to it meanwhile


def _give_back(lease: Lease, reason: str, ingest: IngestParts) -> None:
    """Postpone the document. Raises Unavailable while the database is away: then it is owed."""
    try:
        lease.postpone(reason)
    except Conflict as lost:  # it lapsed and another worker took it over
        log.info("stopped: %s", lost)
    except Unavailable:
        ingest.owed.append((lease, reason))
        raise


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Rejected) else f"{type(error).__name__}: {error}"


def _record_failure(lease: Lease, error: Exception, ingest: IngestParts) -> IngestOutcome:
    """Fail for good, or give the document back and raise the error again. The reason stands beside the document's name,
    and so begins without it."""
    reason = _reason(error)
    try:
        document = lease.document()
        reason = reason.removeprefix(f"{one_line(document.name + document.suffix)}: ")
        if isinstance(error, Rejected) or document.attempts >= MAX_ATTEMPTS:
            if _is_reread(document, ingest.parts.index_fingerprint):
                lease.keep_earlier(reason)
                log.warning("document %s was not read again and answers as before: %s", lease.document_id, reason)
            else:
                lease.fail(reason)
                log.warning("document %s failed: %s", lease.document_id, reason)
            return IngestOutcome.FAILED
        lease.give_back(reason)
    except Conflict:
        return IngestOutcome.SKIPPED
    raise error


def _carry_on(lease: Lease, document: DocumentRow, ingest: IngestParts, reporter: Reporter, turn: Turn) -> None:
    """Run the steps that are left."""
    deaths = document.attempts - 1
    # Every attempt crashed its worker, unless workers have been dying on other documents too.
    if deaths >= MAX_DEATHS or (deaths >= MAX_ATTEMPTS and lease.others_lost_workers() < SEVERAL):
        raise Rejected(f"the worker died {deaths} times while reading this document")
    parts = ingest.parts
    if _needs_reading(document, parts.index_fingerprint):
        share = ingest.kv_share
        with share.spending() if document.status is Status.SEARCHABLE else share.earning():
            _make_searchable(lease, document, ingest, reporter, turn)
        if document.earlier_sha256 is not None:
            discard_unnamed(document.tenant_id, [document.earlier_sha256], parts.database, parts.files)
        turn.made_searchable()
    with ingest.kv_share.spending():
        keep_kv(lease, document, ingest, reporter, turn)


def _needs_reading(document: DocumentRow, index_fingerprint: str) -> bool:
    return document.status is not Status.SEARCHABLE or _is_reread(document, index_fingerprint)


def _is_reread(document: DocumentRow, index_fingerprint: str) -> bool:
    """Whether the document is searchable by chunks that are made otherwise now."""
    return document.status is Status.SEARCHABLE and document.index_fingerprint != index_fingerprint


def _make_searchable(lease: Lease, document: DocumentRow, ingest: IngestParts, reporter: Reporter, turn: Turn) -> None:
    """Store and index the chunks. KV that only the document's previous chunks used goes; KV of text that stays is kept.

    A document that is read again stays searchable by its previous chunks until then.
    """
    parts = ingest.parts
    is_reread = _is_reread(document, parts.index_fingerprint)
    if not is_reread:
        lease.enter(Status.PARSING)
    with ingest.stage("parse"):
        parsed = _parse(document, ingest, reporter, turn)
        chunks = _split(document, parsed, parts.settings, parts.tokenizer, reporter)
    attached = ((attachment.name, attachment.body) for attachment in parsed.attachments)
    for document_id in settle_attachments(document, attached, parts.intake, parts.removal):
        ingest.attached(document_id)
    if not is_reread:
        lease.enter(Status.INDEXING)
    with ingest.stage("embed"):
        embedded, tokens = reporter.stage("embed"), sum(chunk.num_tokens for chunk in chunks)
        texts = [(chunk.title, chunk.text) for chunk in chunks]
        vectors = embed_chunks(
            parts.encoder, texts, lambda done, total: embedded(tokens * done // max(total, 1), tokens)
        )
    parsed_as = {"title": parsed.title, "media_type": parsed.media_type, **asdict(parsed.left_out)}
    indexed = {"attempts": 1, **parts.source.present._asdict()}
    # Until the last of its points is on a server the document counts as unread, or outdated.
    is_indexed = parts.server_index is None
    status = Status.SEARCHABLE if is_indexed or is_reread else Status.INDEXING
    kv_keys = dict[str, str]()
    if document.num_chunks:
        keys = keys_by(lease.kv_rule(parts.settings.kv_rule), parts.keys_of(document.tenant_id))
        kv_keys = {chunk.id: keys.chunk(chunk.token_ids) for chunk in chunks}
    changes = parsed_as | (indexed if is_indexed else {})
    superseded = lease.store_chunks(chunks, vectors, status, kv_keys, **changes)
    delete_forgotten(forget_unused(superseded, parts.database), parts.database, parts.kv_store)
    if parts.server_index is None:
        return
    with ingest.stage("index"):
        points = [Point(c.id, c.document_id, c.title, v) for c, v in zip(chunks, vectors, strict=True)]
        parts.server_index.replace(document.tenant_id, document.collection_id, [document.id], points)
        try:
            lease.enter(Status.SEARCHABLE, **indexed)
        except Conflict:  # deleted or replaced meanwhile: what was just written must not stay
            held = Held(document.tenant_id, document.collection_id, document.id)
            write_points([held], parts.server_index, parts.source)
            raise


def _parse(document: DocumentRow, ingest: IngestParts, reporter: Reporter, turn: Turn) -> Parsed:
    """Parse the file, and keep the lines that were read by OCR beside it; if the turn ends before, the pages that were
    read so far. Raises TurnOver, Rejected for a document that cannot be read, OSError for a disk that fails."""
    files = ingest.parts.files
    parsing = reporter.stage("parse")
    parsing(0, 0)
    reading: StageReport | None = None

    def watch(done: int, total: int) -> None:
        nonlocal reading
        if not total:
            parsing(0, 0)
            return
        reading = reading or reporter.stage(READING_PAGES)
        reading(done, total)

    try:  # the pages that were read in earlier turns; none of a file that was read to its end
        pages_read = decode_kept(files.beside(document.tenant_id, document.sha256) or NO_PAGES)
    except DecodeError:
        pages_read = KeptPages()
    with files.open(document.tenant_id, document.sha256) as body:
        try:
            parsed = ingest.parser.parse(document.name + document.suffix, body, watch, turn.is_over, pages_read)
        except ReadInPart as part:
            files.keep_beside(document.tenant_id, document.sha256, encode(part.kept))
            raise TurnOver from part
        except Rejected:
            body.seek(0)
            while body.read(READ_BYTES):
                parsing(0, 0)
            raise
    if parsed.scans:
        files.keep_beside(document.tenant_id, document.sha256, encode(parsed.scans))
    return parsed


def _split(
    document: DocumentRow, parsed: Parsed, settings: Settings, tokenizer: "Tokenizer", reporter: Reporter
) -> list[Chunk]:
    """The document's chunks. Raises TooLarge for more text than the settings allow: what is behind it has no limit of
    time."""
    splitting, most = reporter.stage("parse"), settings.max_document_characters
    if len(parsed.text) > most:  # splitting takes memory
        raise TooLarge(
            f"it has {len(parsed.text):,} characters of text, more than {most:,} "
            "(RAGKV_MAX_DOCUMENT_CHARACTERS): split it"
        )
    most, chunk_tokens = settings.max_document_tokens, settings.chunk_tokens
    return split(document.id, parsed, tokenizer, chunk_tokens, most, watch=lambda: splitting(0, 0))
