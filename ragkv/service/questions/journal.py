"""The record of answered questions, and of KV that they used: noted after each, written now and then."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable

from ragkv.answer.question import Answer, Question
from ragkv.errors import Unavailable
from ragkv.ids import batched, utc_now
from ragkv.kv.eviction import HALF_LIFE_S
from ragkv.service.base.database import Database
from ragkv.service.kv_admin.entry_statements import keys_of_chunks, locked_entries, used
from ragkv.service.kv_admin.rule_statements import locked_without_kv, used_without_kv
from ragkv.service.questions.statements import record_question

log = logging.getLogger(__name__)

WRITE_EVERY_S = 30.0


class KVUse:
    """Collects the chunks that answers used. One per process; what a killed process had not written is lost."""

    def __init__(
        self, database: Database, half_life_s: float = HALF_LIFE_S, write_every_s: float = WRITE_EVERY_S
    ) -> None:
        self._database = database
        self._half_life_s = half_life_s
        self._write_every_s = write_every_s
        self._lock = threading.Lock()
        self._uses = Counter[str]()
        self._written = time.monotonic()

    def note(self, chunk_ids: Iterable[str]) -> None:
        """Blocks for one write every WRITE_EVERY_S seconds. Raises Unavailable when the database is away then."""
        with self._lock:
            self._uses.update(chunk_ids)
            is_due = time.monotonic() - self._written >= self._write_every_s
        if is_due:
            self.write()

    def write(self) -> None:
        """Write what was noted since the last time. Raises Unavailable when the database is away: what it did not take
        is written the next time."""
        with self._lock:
            uses, self._uses = self._uses, Counter()
            self._written = time.monotonic()
        try:
            for batch in batched(list(uses)):
                with self._database.writing() as session:
                    session.execute(locked_entries(keys_of_chunks(batch)))
                    session.execute(locked_without_kv(batch))
                    for times in {uses[chunk_id] for chunk_id in batch}:
                        as_often = [chunk_id for chunk_id in batch if uses[chunk_id] == times]
                        session.execute(used(as_often, utc_now(), self._half_life_s, times))
                        session.execute(used_without_kv(as_often, utc_now(), self._half_life_s, times))
                for chunk_id in batch:
                    del uses[chunk_id]
        except Unavailable:
            with self._lock:
                self._uses.update(uses)
            raise

    def close(self) -> None:
        try:
            self.write()
        except Unavailable as error:
            log.warning("when KV was last used is not known to the end: %s", error)


def record_answer(question: Question, answer: Answer, database: Database, kv_use: KVUse, model: str) -> None:
    """Record an answered question under the public name of a model. Blocks. Raises Unavailable when the database is
    away."""
    record_question(question, answer, model, database)
    if question.mode == "stitched":
        kv_use.note(passage.chunk.id for passage in answer.passages)
