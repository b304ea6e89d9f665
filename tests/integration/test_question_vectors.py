"""The question's vectors, which the engine computes while retrieval runs."""

import asyncio

from ragkv.answer.question import Answer, Question
from ragkv.service.parts import Parts
from tests.support.echo_engine import EchoEngine


def test_they_are_given_up_if_retrieval_finds_nothing(parts: Parts, engine: EchoEngine):
    engine.started, engine.token_s = True, 10.0
    ref = parts.default_collection
    question = Question(ref.tenant_id, ref.collection_id, "Who wrote it?", policy="initial")

    async def ask() -> set[asyncio.Task[object]]:
        *_, answer = [event async for event in parts.answerer.stream(question)]
        assert isinstance(answer, Answer)
        assert answer.no_passages
        await asyncio.sleep(0.1)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(ask()) == set()
    assert engine.running == 0
