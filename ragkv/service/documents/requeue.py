"""Queues documents: new ones, those whose message was lost, and those that are outdated by other models or settings."""

import logging
from collections.abc import Callable, Sequence

from ragkv.errors import Unavailable
from ragkv.kv.rule import KVRule
from ragkv.service.base.database import Database, Session, lift_time_limits, now_of
from ragkv.service.base.queue import Queue
from ragkv.service.documents.statements import (
    count_of_other_encoders,
    note_encoder,
    read_outdated_again,
    stuck_documents,
)
from ragkv.service.kv_admin.rule_statements import makings_in_use, precompute_outdated_again
from ragkv.settings import Settings

log = logging.getLogger(__name__)

QUEUED_AT_ONCE = 100
"""Documents whose messages one request sends; the next sweep sends the others."""


def refresh_outdated(
    database: Database,
    settings: Settings,
    index_fingerprint: str,
    encoder_fingerprint: str,
    earlier_fingerprints: Sequence[str],
    kv_fingerprint: Callable[[KVRule], str],
) -> int:
    """Mark every document that was ingested with other models, settings or terms to be ingested again; what it has
    answers until then. earlier_fingerprints: what earlier versions call the present index. Returns how many."""
    with database.writing() as session:
        lift_time_limits(session)
        session.execute(note_encoder((index_fingerprint, *earlier_fingerprints), encoder_fingerprint))
        if count := session.scalar(count_of_other_encoders(index_fingerprint, encoder_fingerprint)):
            log.warning(
                "%d documents have vectors of another encoder: until a worker has read them again they are found by their "
                "words alone; set RAGKV_ENCODER back to find them by meaning too",
                count,
            )
        outdated: int = session.connection().execute(read_outdated_again(index_fingerprint)).rowcount
        outdated += _refresh_outdated_kv(session, settings, index_fingerprint, kv_fingerprint)
    if outdated:
        log.info("%d documents were read with other models or settings and will be read again", outdated)
    return outdated


def refresh_outdated_kv(
    database: Database, settings: Settings, index_fingerprint: str, kv_fingerprint: Callable[[KVRule], str]
) -> int:
    """`refresh_outdated`, of KV alone: chunks and vectors stay as they are."""
    with database.writing() as session:
        lift_time_limits(session)
        return _refresh_outdated_kv(session, settings, index_fingerprint, kv_fingerprint)


def _refresh_outdated_kv(
    session: Session, settings: Settings, index_fingerprint: str, kv_fingerprint: Callable[[KVRule], str]
) -> int:
    outdated = 0
    for own in session.execute(makings_in_use()).all():
        kv_format, compress, keep = own
        rule = settings.kv_rule.in_place_of(kv_format, compress=compress, keep=keep)
        again = precompute_outdated_again(index_fingerprint, kv_fingerprint(rule), own)
        outdated += session.connection().execute(again).rowcount
    return outdated


def requeue_stuck(database: Database, queue: Queue, at_most: int | None = None) -> Sequence[str]:
    """Queue as many documents as wait beyond the messages there are, so that none waits for a message that was lost.

    Returns their ids. Raises Unavailable when the queue or the database is away.
    """
    waiting = stuck_ids(database)
    missing = len(waiting) - queue.depth() if waiting else 0
    stuck = waiting[:missing][:at_most] if missing > 0 else ()
    for document_id in stuck:
        queue.enqueue_ingest(document_id)
    return stuck


def stuck_ids(database: Database) -> Sequence[str]:
    """Ids of unfinished documents that no worker holds, oldest first."""
    with database.reading() as session:
        return session.scalars(stuck_documents(now_of(session))).all()


def enqueue(document_id: str, queue: Queue) -> None:
    """Queue a document after the commit. When the queue is away the sweep does it later."""
    try:
        queue.enqueue_ingest(document_id)
    except Unavailable as error:
        log.warning("document %s is accepted and will be queued by the next sweep: %s", document_id, error)
