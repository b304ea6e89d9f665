"""Answers questions, from the answer cache if it has the answer."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ragkv.answer.question import Answer, Delta, Question
from ragkv.answer.service import Answerer
from ragkv.service.answer_cache.cache import AnswerCache, Look
from ragkv.service.answer_cache.recent import RecentAnswers
from ragkv.threads import Threads

THREADS = 2


class CachingAnswerer:
    """An `Answerer` with a cache before it. Every answer can be given feedback for a while, whichever it came from."""

    def __init__(
        self,
        uncached: Answerer,
        cache: AnswerCache,
        recent: RecentAnswers,
        generation_of: Callable[[str, str], int],
    ) -> None:
        """generation_of: of a tenant's collection."""
        self._generation_of = generation_of
        self.uncached = uncached
        self._cache = cache
        self._recent = recent
        self._threads = Threads("answer-cache", THREADS)

    async def check(self, question: Question) -> None:
        await self.uncached.check(question)

    async def stream(self, question: Question) -> AsyncGenerator[Delta | Answer, None]:
        """Like `Answerer.stream`. A kept answer comes as one Delta;
        it is recorded nowhere but in the cache's counts."""
        began = time.perf_counter()
        generation, look = await self._threads.run(self._look, question)
        if look is not None and look.hit is not None:
            yield Delta(look.hit.body.answer)
            answer = look.hit.as_answer(question, (time.perf_counter() - began) * 1e3)
            await self._threads.run(self._recent.keep, question, answer, generation)
            yield answer
            return
        async with aclosing(self.uncached.stream(question)) as events:
            async for event in events:
                if isinstance(event, Answer):
                    await self._threads.run(self._recent.keep, question, event, generation)
                    if look is not None and not event.no_passages:
                        await self._threads.run(self._cache.keep, question, look, event)
                yield event

    def _look(self, question: Question) -> tuple[int, Look | None]:
        """The generation first: an answer of it may show no document that is deleted afterwards."""
        return self._generation_of(question.tenant_id, question.collection_id), self._cache.look(question)
