"""A question before it is measured: its text, accepted answers, and the passages that its search should find."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ragkv.answer.cite import cite
from ragkv.chunk import Chunk, Passage
from ragkv.service.base.database import Session
from ragkv.service.base.tables import EvaluationQuestionRow, FeedbackRow
from ragkv.service.evaluations.outcome import GivenPassage, GivenQuestion
from ragkv.service.evaluations.statements import questions_of
from ragkv.service.questions.statements import passages_of


@dataclass(frozen=True, slots=True)
class Known:
    """A question and what was said of it: accepted answers, and passages that one of them was made from."""

    text: str
    answers: tuple[str, ...] = ()
    passages: tuple[GivenPassage, ...] = ()
    gold: tuple[str, ...] = ()

    def to_find(self) -> tuple[str, ...]:
        """Texts that a search is to find: `gold`, or else the sentences of the passages that support the first
        answer."""
        return self.gold or (supporting(self.text, self.answers[0], self.passages) if self.answers else ())


def known_of(run_id: str, ordinal: int, session: Session) -> Known | None:
    """None for a question that is not kept any more."""
    question = questions_of(run_id).where(EvaluationQuestionRow.ordinal == ordinal)
    row, feedback, logged = session.execute(question).one()
    text = text_of(row, feedback, logged)
    if text is None:
        return None
    if row.given is not None:
        question = msgspec.convert(row.given, GivenQuestion)
        return Known(text, question.answers, question.passages, question.gold)
    answer = known_answer(row, feedback)
    if feedback is None or answer is None:
        return Known(text)
    rows = session.execute(passages_of(feedback.answer_id)).all()
    return Known(text, (answer,), tuple(GivenPassage(text, title) for title, text in rows))


def text_of(row: EvaluationQuestionRow, feedback: FeedbackRow | None, logged: str | None) -> str | None:
    if row.given is not None:
        return str(row.given["question"])
    return (logged or None) if feedback is None else feedback.question


def known_answer(row: EvaluationQuestionRow, feedback: FeedbackRow | None) -> str | None:
    """The first accepted answer: of a question that was rated the correction, or the answer that was rated up."""
    if row.given is not None:
        return next(iter(row.given["answers"]), None)
    if feedback is None:
        return None
    return feedback.correction or (feedback.answer if feedback.rating == "up" else "") or None


def supporting(question: str, answer: str, passages: Sequence[GivenPassage]) -> tuple[str, ...]:
    """Sentences of the passages that support an answer, as its citations would quote them."""
    chunks = (
        Chunk(str(number), str(number), number, passage.title, passage.text, 0, len(passage.text), None, ())
        for number, passage in enumerate(passages)
    )
    evidence = [Passage(chunk, 0.0, 1) for chunk in chunks]
    return tuple(dict.fromkeys(citation.quote for citation in cite(answer, question, evidence)))
