"""Strength of a trained writer: the share of its trained change that it keeps.

Weights between the plain model's and the trained ones (WiSE-FT, Wortsman et al., arXiv 2109.01903, section 3) are
often as good on what was trained and better elsewhere. Of a writer, a chunk that is asked for alone shows it: its
distance from full prefill falls with the square of the strength, while that of several chunks hardly changes near 1.
"""

from collections.abc import Callable

from ingest.writer.adapter import Adapter
from ingest.writer.train import Trainer
from ragkv.writer import MAX_ONE_CHUNK_KL

STRENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6)
MARGIN = 0.8
"""Share of the gate's limit for one chunk that may be used up: the gate measures on other contexts."""


def settle(trainer: Trainer, adapter: Adapter, progress: Callable[[float], None] = lambda strength: None) -> float:
    """Give a trained adapter the strength with the least KL on the validation samples, of those at which one chunk
    alone passes the gate with a margin, or the least strength. Returns it. `progress` is told each strength before it
    is tried."""
    passing = {}
    for strength in STRENGTHS:
        progress(strength)
        with adapter.at_strength(strength):
            if trainer.validate(alone=True).kl < MARGIN * MAX_ONE_CHUNK_KL:
                passing[strength] = trainer.validate().kl
    chosen = min(passing, key=passing.__getitem__, default=min(STRENGTHS))
    adapter.weaken(chosen)
    return chosen
