"""The setting that a trained writer is kept at: the share of its trained change, and that of its stand-ins.

Weights between the plain model's and the trained ones (WiSE-FT, Wortsman et al., arXiv 2109.01903, section 3) are
often as good on what was trained and better elsewhere. Of a writer, a chunk that is asked for alone shows it: its
distance from full prefill falls with the square of the strength, while that of several chunks hardly changes near 1.
The share of the stand-ins in the mean with the bare prefix is a second way between the plain model and the writer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ingest.writer.train import Trainer
from ingest.writer.trainable import TrainableAdapter
from ragkv.writer import MAX_ONE_CHUNK_KL

STRENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6)
SHARES = (1.0, 0.8, 0.6, 0.4)
"""Of the share that the stand-ins had in the training."""
MARGIN = 0.8
"""Share of the gate's limit for one chunk that may be used up: the gate measures on other contexts."""


@dataclass(frozen=True, slots=True)
class Setting:
    """strength: share of the trained change. share: the stand-ins' in the mean, 0 without any."""

    strength: float
    share: float


def settle(
    trainer: Trainer, adapter: TrainableAdapter, progress: Callable[[Setting], None] = lambda setting: None
) -> Setting:
    """Give an adapter the strongest setting at which one chunk alone of the validation samples passes the gate with a
    margin, or the weakest. Returns it. `progress` is told each before it is tried.

    Less strength is tried only for a larger share of the stand-ins. Of several settings the one with the least KL on
    the whole validation samples is taken.
    """
    strengths = STRENGTHS if trainer.samples else STRENGTHS[:1]
    planned = adapter.stand_in_share
    shares = [share * planned for share in SHARES] if planned else [0.0]
    passing: list[Setting] = []
    for strength in strengths:
        larger = shares[: shares.index(passing[-1].share)] if passing else shares
        for setting in (Setting(strength, share) for share in larger):
            progress(setting)
            if _validated(trainer, adapter, setting, alone=True) < MARGIN * MAX_ONE_CHUNK_KL:
                passing.append(setting)
                break
    best = passing[0] if passing else Setting(strengths[-1], shares[-1])
    if len(passing) > 1:
        best = min(passing, key=lambda setting: _validated(trainer, adapter, setting, alone=False))
    adapter.weigh_stand_ins(best.share)
    adapter.weaken(best.strength)
    return best


def _validated(trainer: Trainer, adapter: TrainableAdapter, setting: Setting, *, alone: bool) -> float:
    adapter.weigh_stand_ins(setting.share)
    with adapter.at_strength(setting.strength):
        return trainer.validate(alone=alone).kl
