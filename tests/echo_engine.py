"""An engine without a model: it gives the prompt's own tokens back. For tests of everything around the engine."""

import asyncio
from collections.abc import AsyncGenerator

import torch

from ragkv.engine.protocol import Generate, Piece, Report
from ragkv.errors import Unavailable

QUERIES = (30, 9, 64)
"""Layers, query heads and head size that `capture` reports: SmolLM2-135M's."""


class EchoEngine:
    """Keeps the Engine protocol. `running` counts generations in progress, `closed` those ended early."""

    def __init__(self, window: int, piece_s: float = 0.0, words: str = "Ada Lovelace wrote it.") -> None:
        self.window = window
        self.piece_s = piece_s
        self.words = words.split(" ")
        self.started = False
        self.running = 0
        self.closed = 0
        self.fail_after: int | None = None

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.started = False

    async def ready(self) -> bool:
        return self.started

    async def generate(self, request: Generate) -> AsyncGenerator[Piece, None]:
        """The fixed words, one piece each, at most `max_tokens` of them."""
        if not self.started:
            raise Unavailable("the engine has not started yet: try again in a minute")
        request.check_fits(self.window)
        self.running += 1
        finished = False
        try:
            words = self.words[: request.max_tokens]
            for i, word in enumerate(words):
                await asyncio.sleep(self.piece_s)
                if self.fail_after == i:
                    raise Unavailable("the engine failed: it was told to")
                finished = i == len(words) - 1
                yield self._piece(request, word if i == 0 else f" {word}", i, finished)
        finally:
            self.running -= 1
            self.closed += not finished

    def _piece(self, request: Generate, text: str, index: int, last: bool) -> Piece:
        reason = "length" if request.max_tokens < len(self.words) else "stop"
        report = _report(request) if last else None
        return Piece(text, (request.token_ids[index],), finish_reason=reason if last else None, report=report)


def _report(request: Generate) -> Report:
    queries = torch.ones(QUERIES) if request.capture else None
    return Report(computed=len(request.token_ids), queries=queries)
