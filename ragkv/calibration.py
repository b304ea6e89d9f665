"""The calibration in use: the layers that select tokens, found on a collection's text and stored in a file in the
data folder."""

from datetime import datetime
from pathlib import Path

import msgspec

from ragkv.choosing import DEFAULT_CHOICE, Choice
from ragkv.errors import Rejected
from ragkv.json_file import read_json, write_json


class Ratio(msgspec.Struct, frozen=True):
    """A geometric mean of KL over another KL, with its 95% bootstrap interval over contexts."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that choose, for one model and the writer that it was calibrated with (empty: none).

    `layers` as RAGKV_CHOOSING_LAYERS has them. The figures are of `contexts` contexts that the choice was not made on,
    a share `ratio` of them recomputed; KL in nats a token of the answer. `kl_at`: (ratio, KL) of the choice;
    `least_ratio`: the smallest of these ratios that keeps `target_kl`, None if none does.
    """

    model: str
    model_fingerprint: str
    writer_fingerprint: str
    made_at: datetime
    collection: str
    contexts: int
    seed: int
    layers: str
    sink_aware: bool
    ratio: float
    kl: float
    default_kl: float
    random_kl: float
    to_default: Ratio
    to_random: Ratio
    target_kl: float
    kl_at: tuple[tuple[float, float], ...]
    plain_kl_at: tuple[tuple[float, float], ...] = ()

    @property
    def choice(self) -> Choice:
        return Choice.of(self.layers, self.sink_aware)

    @property
    def least_ratio(self) -> float | None:
        """The smallest ratio that keeps `target_kl`, None if none does."""
        return self._least(self.kl_at)

    def objections(self) -> list[str]:
        """Reasons against using it; none if it passes."""
        reasons = []
        if self.choice != DEFAULT_CHOICE and not self.to_default.mean < 1:
            reasons.append(f"its KL is {self.to_default.mean:.2f} times the default's")
        if not self.to_random.mean < 1:
            reasons.append(f"its KL is {self.to_random.mean:.2f} times that of random blocks")
        return reasons

    def described(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        kept = " (the default was kept)" if self.choice == DEFAULT_CHOICE else ""
        least = "none of these" if self.least_ratio is None else f"RAGKV_RECOMPUTE_RATIO={self.least_ratio:g}"
        plain = []
        if self.plain_kl_at:
            plain.append(("KL by ratio, without the writer", _listed(self.plain_kl_at)))
            without = self._least(self.plain_kl_at)
            least += f"; without the writer {'none of these' if without is None else f'{without:g}'}"
        return [
            ("Layers", self.choice.label + kept),
            ("Model", self.model + (", with a writer" if self.writer_fingerprint else "")),
            ("Checked", f"{self.made_at:%Y-%m-%d %H:%M}, {self.contexts} questions, {self.ratio:.0%} recomputed"),
            ("KL", f"{self.kl:.3f}; default {self.default_kl:.3f}, random {self.random_kl:.3f}"),
            ("KL over the default's", f"{self.to_default} (geometric mean)"),
            ("KL over random's", f"{self.to_random} (geometric mean)"),
            ("KL by ratio", _listed(self.kl_at)),
            *plain,
            (f"Least that keeps a KL of {self.target_kl:g}", least),
        ]

    def _least(self, kl_at: tuple[tuple[float, float], ...]) -> float | None:
        return next((ratio for ratio, kl in kl_at if kl <= self.target_kl), None)


def _listed(kl_at: tuple[tuple[float, float], ...]) -> str:
    return ", ".join(f"{ratio:g}: {kl:.3f}" for ratio, kl in kl_at)


def read_calibration(path: Path) -> Calibration | None:
    """The calibration in a file, None if there is no file. Raises Rejected for one that cannot be read."""
    return read_json(path, Calibration, "delete it, or run `ragkv calibrate` again")


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Put a calibration into use, from the next start on. Raises Rejected for one with objections."""
    if objections := calibration.objections():
        raise Rejected(
            f"the layers {calibration.layers} were not put into use: {'; '.join(objections)}; nothing was changed"
        )
    write_json(path, calibration)
