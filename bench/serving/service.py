"""Questions to a running service over HTTP: stitched by its defaults, and with full prefill."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import httpx
import msgspec

from bench.api import streamed
from bench.serving.load import Ask
from bench.serving.report import Mode, Plan, ServeRow, measure, row_of


class Asking:
    """A running service, asked the questions in turn. Each is asked as if it were new: no earlier answer serves."""

    def __init__(self, client: httpx.AsyncClient, questions: Sequence[str]) -> None:
        self._client = client
        self._questions = questions
        self._prompt_tokens: list[int] = []

    async def measure(self, plan: Plan, progress: Callable[[Mode], None]) -> list[ServeRow]:
        """A row a mode. The warm-up asks each question once: the passages of each are then known to the engine in
        either mode, as far as its own cache holds them."""
        asks = {mode: self.ask(mode, plan.answer) for mode in plan.modes}
        seen = await measure(asks, plan, len(self._questions), progress)
        tokens = sum(self._prompt_tokens) // max(len(self._prompt_tokens), 1)
        return [row_of(mode, outcomes, plan, tokens) for mode, outcomes in seen.items()]

    def ask(self, mode: Mode, answer_tokens: int) -> Ask:
        async def asked(number: int) -> AsyncGenerator[object, None]:
            question = self._questions[number % len(self._questions)]
            body: dict[str, Any] = {"question": question, "mode": mode, "max_tokens": answer_tokens}
            async for name, data in streamed(self._client, body | {"stream": True, "answer_cache": False}):
                if name == "done":
                    self._prompt_tokens.append(msgspec.json.decode(data)["usage"]["prompt"])
                else:
                    yield data

        return asked
