"""A calibration that passes."""

from ragkv.calibration import Calibration, Ratio
from ragkv.clock import utc_now

FOUND = Calibration(
    model="m", model_fingerprint="f", writer_fingerprint="", made_at=utc_now(), collection="default", contexts=12, seed=0,
    layers="10-19", sink_aware=True, ratio=0.1, kl=0.05, default_kl=0.08, random_kl=0.15, to_default=Ratio(0.7, 0.5, 0.9),
    to_random=Ratio(0.4, 0.2, 0.6), target_kl=0.05, kl_at=((0.0, 0.2), (0.1, 0.05)),
)  # fmt: skip
