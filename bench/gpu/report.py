"""The report of `ragkv bench gpu`: one JSON file, written after each part, and its tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from rich.table import Table

from bench.gpu.ingestion import IngestRow
from bench.gpu.loading import LoadRow
from bench.gpu.oracle import OracleRow
from bench.gpu.scale import Scale
from bench.gpu.streams import StreamRow
from bench.serving.load import ServeRow
from bench.ttft import TtftReport, TtftRow, describe
from ragkv.errors import Rejected
from ragkv.files_io import replace_file

Part = Literal["oracle", "ingest", "load", "ttft", "latency", "serve", "memory"]
PARTS: tuple[Part, ...] = get_args(Part)
WITH_ENGINE: tuple[Part, ...] = ("ttft", "latency", "serve", "ingest", "memory")
"""Parts that one engine measures, those worth most first."""
EXPECTED_S: dict[Part, float] = {
    "oracle": 120.0, "ttft": 35.0, "latency": 85.0, "serve": 40.0, "ingest": 30.0, "load": 25.0, "memory": 5.0,
}  # fmt: skip
"""Seconds that a part of an 8B shape takes on an H100, measured."""
ENGINE_START_S = 65.0
"""Seconds from a start of vLLM there to KV that is written."""
TITLES: dict[Part, str] = {
    "oracle": "KL of the first token to full prefill, nats",
    "ingest": "ingestion, tokens a second",
    "load": "loading KV onto the device, one chunk after the other",
    "ttft": "seconds to first token, medians; percents: stitched, with so much recomputed",
    "latency": "seconds between tokens of running streams while prompts arrive",
    "serve": "many questions at once",
    "memory": "memory",
}


class MemoryRow(msgspec.Struct, frozen=True):
    """GiB of one thing, on the device or on the host."""

    what: str
    gib: float


class Basis(msgspec.Struct, frozen=True):
    """The basis of a part's rows: the code, by its digest, and sizes and runs where they count."""

    code: str
    sizes: tuple[int, ...] | None = None
    runs: int | None = None


class GpuReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Rows of each part by model. basis: that of each part. failed: reasons by part and model; a later run tries again.
    seconds: that each part took."""

    date: str
    machine: str
    device: str
    versions: dict[str, str]
    eager: bool
    oracle: dict[str, list[OracleRow]] = {}
    ingest: dict[str, list[IngestRow]] = {}
    load: dict[str, list[LoadRow]] = {}
    ttft: dict[str, list[TtftRow]] = {}
    latency: dict[str, list[StreamRow]] = {}
    serve: dict[str, list[ServeRow]] = {}
    memory: dict[str, list[MemoryRow]] = {}
    basis: dict[str, Basis] = {}
    failed: dict[str, str] = {}
    seconds: dict[str, float] = {}

    def has(self, part: Part, model: str) -> bool:
        return model in getattr(self, part)

    def forget(self, part: Part) -> None:
        """Drop what was measured of a part, so that it is measured again."""
        getattr(self, part).clear()

    def begin(self, part: Part, basis: Basis) -> None:
        """Drop what was measured of a part on another basis."""
        if self.basis.get(part) != basis:
            self.forget(part)
        self.basis[part] = basis

    @property
    def broken(self) -> list[str]:
        """Bounds of the oracle that do not hold, and parts that failed."""
        bounds = [
            f"{model}, {row.check}: KL {row.kl_max:.3g}, at most {row.bound:g} is right"
            for model, rows in self.oracle.items()
            for row in rows
            if not row.holds
        ]
        return bounds + [f"{name}: {reason}" for name, reason in self.failed.items()]


def basis_of(part: Part, code: str, scale: Scale) -> Basis:
    """The basis of a part. Sizes count for all that an engine measures: its window, its cache and the text that
    contexts are drawn from depend on them."""
    if part not in WITH_ENGINE:
        return Basis(code)
    return Basis(code, scale.sizes, scale.runs if part == "ttft" else None)


def resumed(file: Path, fresh: GpuReport) -> GpuReport:
    """The report that the file holds, or a fresh one. Raises Rejected for a file of another machine, version or kind of
    run."""
    if not file.exists():
        return fresh
    try:
        report = msgspec.json.decode(file.read_bytes(), type=GpuReport)
    except msgspec.DecodeError as error:
        raise Rejected(f"{file} is not a report of this command: move it away ({error})") from None
    for name in ("device", "versions", "eager"):
        recorded, current = getattr(report, name), getattr(fresh, name)
        if recorded != current:
            raise Rejected(
                f"{file} was measured with {name} {recorded}, this is {current}: move it away, or give --json"
            )
    return report


def save(report: GpuReport, file: Path) -> None:
    """Write the report in one step: whoever stops the command finds it whole."""
    replace_file(file, msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def tables(report: GpuReport) -> Iterator[Table]:
    """A table for each part and model that was measured."""
    for part in PARTS:
        for model, rows in getattr(report, part).items():
            described = (
                describe(TtftReport(model, report.machine, rows)) if part == "ttft" else msgspec.to_builtins(rows)
            )
            table = Table(title=f"{model} on {report.device}: {TITLES[part]}")
            shown = [{name: _cell(name, value) for name, value in row.items()} for row in described]
            for name in dict.fromkeys(name for row in shown for name in row):
                table.add_column(name, justify="left" if isinstance(described[0][name], str) else "right")
            for row in shown:
                table.add_row(*row.values())
            yield table


_FORMATS = (
    ("kl", ".1e"),
    ("tokens_per_s", ",.0f"),
    ("gib", ".3f"),
    ("ttft", ".4f"),
    ("itl", ".4f"),
)
"""Format of decimals, by how the name of a column begins; of the table of first tokens' seconds four places, two
otherwise."""


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        default = ".4f" if name.endswith(" s") else ".2f"
        return format(value, next((spec for begins, spec in _FORMATS if name.startswith(begins)), default))
    return f"{value:,}" if isinstance(value, int) else str(value)
