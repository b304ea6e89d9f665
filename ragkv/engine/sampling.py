"""Sampling of an answer's tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of each token: by default the likeliest, so that the same question gets the same answer.

    `schema`: the JSON Schema, as text, that the answer follows. `stop`: the answer ends before the first of these.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: str | None = None


GREEDY = Sampling()
