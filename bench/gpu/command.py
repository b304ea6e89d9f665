"""`ragkv bench gpu`: measures ragkv on this machine's GPU, with random weights: no model, document or network is
needed."""

import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from bench.gpu.device import first_gpu
from bench.gpu.plot import can_plot, plot
from bench.gpu.report import PARTS, GpuReport, Part, basis_of, resumed, tables
from bench.gpu.run import Run
from bench.gpu.scale import KINDS, ON_A_GPU, REHEARSAL, Kind
from bench.measuring import OUTPUT
from bench.records import code_digest, package_versions
from bench.ttft import machine
from ragkv.errors import Rejected

_WIDTH = 150
"""Width of tables, which also go to files."""


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option(
    "--json",
    "json_file",
    type=OUTPUT,
    default="bench-gpu.json",
    help="The report, written after each part and continued by the next call; a picture goes beside it if matplotlib is installed.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=".bench-gpu",
    help="Folder for KV: some 15 GB, removed once all parts have been measured.",
)
@click.option("--size", "sizes", type=click.IntRange(min=512), multiple=True, help="Context tokens; may be repeated.")
@click.option("--eager", is_flag=True, help="Launch every forward by itself, as RAGKV_ENFORCE_EAGER=true does.")
@click.option("--shape", type=click.Choice(KINDS), help="The models of one kind alone.  [default: all]")
@click.option("--seconds", type=click.FloatRange(min=0), help="Leave out what would not end within so many.")
@click.option("--rehearse", is_flag=True, help="Check that everything runs, with tiny models on any machine.")
def gpu(
    parts: tuple[Part, ...],
    json_file: Path,
    folder: Path,
    sizes: tuple[int, ...],
    eager: bool,
    shape: Kind | None,
    seconds: float | None,
    rehearse: bool,
) -> None:
    """Check and measure ragkv on this machine's GPU: everything that the report lacks, or these PARTS again, those
    worth most first.

    Figures from another version of ragkv, or with another --size, are measured again.

    oracle: recomputing everything is full prefill. ingest: tokens a second against a bare forward. load: KV onto the
    device, by source and format. ttft: the first token of full prefill, a prefix-cache hit and stitched. latency:
    running streams while prompts arrive. serve: many clients. memory: of device and host. RAGKV_* settings are not
    read.
    """
    scale = REHEARSAL if rehearse else ON_A_GPU
    scale = replace(scale, sizes=sizes or scale.sizes)
    ends_at = math.inf if seconds is None else time.monotonic() + seconds
    if shape is not None:
        scale = scale.of_kind(shape)
        if not scale.oracles or (parts and "oracle" not in parts and not scale.shapes):
            only = "only without --rehearse" if rehearse else "in the part oracle alone"
            raise Rejected(f"--shape {shape}: there are such models {only}")
    report = resumed(json_file, _fresh(eager=eager, rehearse=rehearse))
    code = code_digest("bench.gpu.run")
    for part in parts:
        report.forget(part)
    for part in parts or PARTS:
        report.begin(part, basis_of(part, code, scale))
    console = Console(stderr=True)
    with console.status("measuring") as status:
        run = Run(scale, folder, report, json_file, eager, status.update, console.print, ends_at)
        run.measure(parts or PARTS)
    shown = Console(width=_WIDTH)
    for table in tables(report):
        shown.print(table)
    svg_file = json_file.with_suffix(".svg")
    if not can_plot():
        console.print("no picture: pip install 'ragkv\\[lab]', then call again")
    elif plot(report, svg_file):
        console.print(f"{json_file} and {svg_file} are written")
    if broken := report.broken:
        raise Rejected("; ".join(broken))
    if all(getattr(report, part) for part in PARTS):
        run.remove_models()


def _fresh(*, eager: bool, rehearse: bool) -> GpuReport:
    """A report without rows. Raises Rejected without a GPU."""
    gpu = first_gpu()
    if gpu is None and not rehearse:
        raise Rejected("nvidia-smi finds no GPU here: --rehearse runs everything with tiny models without one")
    versions = package_versions()
    if gpu is not None:
        versions["driver"] = gpu.driver
    device = "CPU" if gpu is None else f"{gpu.name}, {gpu.total_gib:.0f} GiB"
    if rehearse:
        device += ", rehearsal"
    return GpuReport(
        date=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine(), device=device, versions=versions, eager=eager
    )
