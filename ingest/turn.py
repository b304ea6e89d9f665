"""A worker's turn with one document, which ends early if other documents are waiting."""

from collections.abc import Callable

TURN_TOKENS = 16_384
"""Tokens of KV to compute before others may come in between."""


class TurnOver(Exception):
    """Other documents are waiting: this one returns to the queue with its progress and without a counted attempt."""


def none_waiting() -> bool:
    """No document is waiting: for callers that ingest a document in one go."""
    return False


class Turn:
    """Work done since other documents were last looked for. Both methods raise TurnOver."""

    def __init__(self, others_wait: Callable[[], bool]) -> None:
        self._others_wait = others_wait
        self._tokens = 0

    def made_searchable(self) -> None:
        self._look()

    def computed(self, tokens: int) -> None:
        """Count the tokens of KV that were stored."""
        self._tokens += tokens
        if self._tokens >= TURN_TOKENS:
            self._tokens = 0
            self._look()

    def _look(self) -> None:
        if self._others_wait():
            raise TurnOver
