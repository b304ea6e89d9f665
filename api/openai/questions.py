"""Questions from OpenAI's requests: the collection, the question and its history."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from api.openai.errors import BadParam, NoSuchModel
from api.openai.models import collection_in
from ragkv.answer.question import Question, Turn, check_instructions, check_question_text
from ragkv.engine.protocol import Sampling
from ragkv.errors import NotFound
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION, CollectionRef, collection_ref
from ragkv.settings import Settings

BACKGROUND_TASK = "### Task:\n"
"""The beginning of a message that Open WebUI sends for itself."""

Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: its last message is the question; messages of system and developer are instructions."""

    question: str
    history: tuple[Turn, ...]
    instructions: str


class ContentPart(Protocol):
    """A part of a message's content."""

    @property
    def text(self) -> str: ...


def text_of(content: str | Sequence[ContentPart] | None) -> str:
    """The text of a message, whose content may come in parts."""
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


def chosen_collection(
    caller: Caller, model: str, vector_store_ids: Sequence[str] | None, database: Database, settings: Settings
) -> CollectionRef:
    """The collection that the model or the list names, or the default one.

    Raises NoSuchModel, NotFound, and BadParam if the two name different ones.
    """
    named = collection_in(model, settings)
    try:
        of_model = None if named is None else collection_ref(caller.tenant_id, named, database)
    except NotFound as error:
        raise NoSuchModel(str(error)) from None
    if vector_store_ids is None:
        return of_model or collection_ref(caller.tenant_id, DEFAULT_COLLECTION, database)
    ref = collection_ref(caller.tenant_id, vector_store_ids[0], database)
    if of_model not in (None, ref):
        raise BadParam("vector_store_ids", "`model` names another collection: set only one of them")
    return ref


def conversation_of(messages: Sequence[tuple[Role, str]], param: str, instructions: str = "") -> Conversation:
    """Build a conversation of messages as text. Raises BadParam unless the last message is a user's and not empty,
    TooLarge."""
    instruction_texts = [instructions, *(text for role, text in messages if role in ("system", "developer"))]
    turns = [
        Turn(role, text)
        for role, text in messages
        if role == "user" or role == "assistant"  # noqa: PLR1714 - it narrows the type
    ]
    if not turns or turns[-1].role != "user":
        raise BadParam(param, "the last message must have the role user: it is the question")
    if not turns[-1].text.strip():
        raise BadParam(param, "the question is empty: ask something")
    conversation = Conversation(turns[-1].text, tuple(turns[:-1]), "\n".join(filter(str.strip, instruction_texts)))
    check_question_text(conversation.question)
    check_instructions(conversation.instructions)
    return conversation


def question_about(
    caller: Caller,
    ref: CollectionRef,
    conversation: Conversation,
    sampling: Sampling,
    retrieval: bool | None,
    max_tokens: int | None,
) -> Question:
    """The question. Without `retrieval` passages are searched for, but not for what Open WebUI asks beside a chat: its
    title, tags, follow-ups."""
    return Question(
        tenant_id=ref.tenant_id,
        collection_id=ref.collection_id,
        text=conversation.question,
        history=conversation.history,
        instructions=conversation.instructions,
        sampling=sampling,
        retrieval=not conversation.question.startswith(BACKGROUND_TASK) if retrieval is None else retrieval,
        max_tokens=max_tokens,
        sees_kept_question=caller.may("admin"),
    )
