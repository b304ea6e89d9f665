"""Sampling of answers: fields that several bodies share."""

from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import Meta

from ragkv.engine.protocol import Sampling

Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Temperature = (
    Annotated[
        float,
        Meta(ge=0, le=2, description="Sampling temperature. Omitted or 0: the likeliest token each time (greedy)."),
    ]
    | None
)
Penalty = (
    Annotated[float, Meta(ge=-2, le=2, description="Penalty on tokens that are in the answer already; 0 by default.")]
    | None
)
Seed = Annotated[Whole, "Seed of sampling: the same seed and request give the same answer."] | None
TopP = (
    Annotated[
        float,
        Meta(gt=0, le=1, description="Probability mass of the tokens to sample from; no effect at temperature 0."),
    ]
    | None
)
StopWord = Annotated[str, Meta(min_length=1, max_length=100)]
Stop = (
    Annotated[
        StopWord | Annotated[list[StopWord], Meta(max_length=16)],
        "Text before which the answer ends, or several, at most 16.",
    ]
    | None
)


class TemperatureFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of sampling that every body has. An omitted one leaves the choice of the likeliest token."""

    temperature: Temperature = None
    top_p: TopP = None

    def sampling(self, schema: str | None = None) -> Sampling:
        """The sampling that the body asks for, of an answer that follows a schema."""
        return Sampling(self.temperature or 0.0, 1.0 if self.top_p is None else self.top_p, schema=schema)


class SamplingFields(TemperatureFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of sampling."""

    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    seed: Seed = None
    stop: Stop = None

    def sampling(self, schema: str | None = None) -> Sampling:
        stop = self.stop or ()
        return replace(
            super().sampling(schema),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            seed=self.seed,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
        )
