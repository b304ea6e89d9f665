"""The strength that a trained writer is kept at: the share of its trained change.

Weights between the plain model's and the trained ones (WiSE-FT, Wortsman et al., arXiv 2109.01903, section 3) are
often as good on what was trained and better elsewhere. Of a writer, a chunk that is asked for alone shows it: its
distance from full prefill falls with the square of the strength, while that of several chunks hardly changes near 1.
"""

from collections.abc import Callable

from bench.writer.train import Trainer
from bench.writer.trainable import TrainableAdapter
from ragkv.prefill.writer import MAX_ONE_CHUNK_KL

STRENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6)
MARGIN = 0.8
"""Share of the gate's limit for one chunk that may be used up: the gate measures on other contexts."""


def settle(
    trainer: Trainer, adapter: TrainableAdapter, progress: Callable[[float], None] = lambda strength: None
) -> float:
    """Give an adapter the greatest strength at which one chunk alone of the validation samples passes the gate with a
    margin, or the least. Returns it. `progress` is called with each before it is tried."""
    for strength in STRENGTHS if trainer.samples else STRENGTHS[:1]:
        progress(strength)
        with adapter.at_strength(strength):
            if trainer.validate(alone=True).kl < MARGIN * MAX_ONE_CHUNK_KL:
                break
    adapter.weaken(strength)
    return strength
