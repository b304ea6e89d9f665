"""Deltas of OpenAI's streams are together exactly the answer."""

from collections.abc import AsyncIterator

import pytest

from api.openai.streaming import trimmed
from ragkv.answer.question import Answer, Delta


async def answered(*texts: str) -> AsyncIterator[Delta | Answer]:
    for text in texts:
        yield Delta(text)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "texts", [("a", " b", " c"), (" ", "\n a", " ", " b", "  "), ("a ", "", "\n"), ("  ", " "), (" a b ", " c ")]
)
async def test_white_space_around_an_answer_is_not_streamed(texts: tuple[str, ...]):
    deltas = [one.text async for one in trimmed(answered(*texts)) if isinstance(one, Delta)]

    assert "".join(deltas) == "".join(texts).strip()
    assert all(deltas)
