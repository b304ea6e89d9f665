"""A worker's turn with one document, which ends early where other documents wait."""

from collections.abc import Callable

TURN_TOKENS = 16_384
"""Tokens of KV to compute before others may come in between."""


class TurnOver(Exception):
    """Others wait: the document goes back to the queue with what was done, and no attempt is counted."""


def nobody() -> bool:
    """For callers that work through a document without a break."""
    return False


class Turn:
    """What was done since others were last looked for. Both methods raise TurnOver."""

    def __init__(self, others_wait: Callable[[], bool]) -> None:
        self._others_wait = others_wait
        self._tokens = 0

    def made_searchable(self) -> None:
        self._look()

    def computed(self, tokens: int) -> None:
        """KV of so many tokens is kept."""
        self._tokens += tokens
        if self._tokens >= TURN_TOKENS:
            self._tokens = 0
            self._look()

    def _look(self) -> None:
        if self._others_wait():
            raise TurnOver
