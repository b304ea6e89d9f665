"""Cards of writers that were trained, and the figures of one that passed its evaluation."""

from ragkv.ids import utc_now
from ragkv.prefill.writer import Card, Gate

GOOD = Gate(contexts=32, kl=0.05, plain_kl=0.16, kl_ratio_upper=0.6, nll=1.0, plain_nll=1.1, one_chunk_kl=0.03)


def card(gate: Gate | None = GOOD, model_fingerprint: str = "f") -> Card:
    return Card(
        model="m",
        model_fingerprint=model_fingerprint,
        made_at=utc_now(),
        seed=0,
        rank=16,
        samples=9,
        seconds=60.0,
        curve=((0, 0.2), (9, 0.1)),
        gate=gate,
    )
