"""The record of answered questions and of the KV that they used."""

from ragkv.answer.question import Answer, Question
from ragkv.service.base.database import Database
from ragkv.service.questions.kv_use import KVUse
from ragkv.service.questions.statements import record_question


class Journal:
    """One per process. `model`: the public name that questions are recorded under."""

    def __init__(self, database: Database, kv_use: KVUse, model: str) -> None:
        self._database = database
        self._kv_use = kv_use
        self._model = model

    def record(self, question: Question, answer: Answer) -> None:
        """Blocks. Raises Unavailable when the database is away."""
        record_question(question, answer, self._model, self._database)
        if question.mode == "stitched":
            self._kv_use.note(passage.chunk.id for passage in answer.passages)
