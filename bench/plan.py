"""`ragkv plan`: what stored KV takes and saves for a model, a corpus and its questions, by tier and format."""

import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich import filesize
from rich.console import Console
from rich.table import Table

from bench.measuring import json_option, write_report
from ragkv.engine.protocol import Prefill
from ragkv.errors import Rejected
from ragkv.kv.format import KVFormat
from ragkv.models import model_folder
from ragkv.service.planning.plan import DISK, MEMORY, SCALING, TIERS, CostPlan, Device, Load, by_name
from ragkv.service.planning.plan import plan as plan_for
from ragkv.service.planning.shape import shape_of
from ragkv.settings import Settings

MEASURED_BYTES = 512 * 2**20
PREFILL_TOKENS = 2048
_PIECE = 16 * 2**20
_WHOLE = 100.0
"""Figures from here on are shown as whole numbers."""
_LOAD, _DEVICE = Load(), Device()
_CAPTION = (
    "needed: GB/s from which loading beats computing (dim: it does not). first token: loading a question's context, and "
    "computing what is recomputed; speed-up: over full prefill. pays from: reads of a token a month from which rented storage "
    "costs less than computing."
)


bandwidth_option = click.option(
    "--bandwidth",
    "bandwidths",
    multiple=True,
    metavar="TIER=GB/S",
    help="Bandwidth of a tier, such as disk=3.5. May be given several times.",
)
measure_option = click.option(
    "--measure", is_flag=True, help="Measure memory, disk and the served model's prefill on this machine."
)


@click.command()
@click.option(
    "--model", help="Folder of a model, its config.json, or a name such as Llama-3.1-8B.  [default: the served model]"
)
@click.option("--documents", type=click.IntRange(1), default=_LOAD.documents, help="Number of documents.")
@click.option("--tokens", type=click.IntRange(1), default=_LOAD.tokens, help="Average tokens per document.")
@click.option(
    "--questions-per-day", type=click.FloatRange(0), default=_LOAD.questions_per_day, help="Questions per day."
)
@click.option("--context", type=click.IntRange(1), default=_LOAD.context, help="Context tokens per question.")
@click.option(
    "--recomputed",
    type=click.FloatRange(0, 0.99),
    default=_LOAD.recomputed,
    help="Share of the context that is recomputed.",
)
@click.option("--tflops", type=float, default=_DEVICE.tflops, help="Dense bfloat16 TFLOPS of one GPU: an H100's.")
@click.option("--utilisation", type=float, default=_DEVICE.utilisation, help="Share of --tflops that prefill reaches.")
@click.option(
    "--gpus",
    type=click.Choice([str(n) for n in SCALING]),
    default=str(_DEVICE.count),
    help="GPUs that share the model (tensor parallelism).",
)
@click.option("--gpu-price", type=click.FloatRange(0), default=_DEVICE.price, help="Dollars per GPU-hour.")
@bandwidth_option
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="TIER=DOLLARS",
    help="Price of a tier per GB and month, such as disk=0.08.",
)
@measure_option
@json_option("Write the plan as JSON.")
def plan(
    *,
    model: str | None,
    gpus: str,
    gpu_price: float,
    bandwidths: Sequence[str],
    prices: Sequence[str],
    measure: bool,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Plan storage: bytes a token, where loading beats computing, when it pays, and which settings follow.

    Loading stored KV is faster than computing it if the tier's bandwidth is above bytes per token times prefill rate
    over the share that is not recomputed. Figures that are neither given nor measured are typical ones.
    """
    model, bandwidth, rate = served(model, figures("--bandwidth", bandwidths), None, measure=measure)
    speed = {name: options.pop(name) for name in ("tflops", "utilisation")}
    device = Device(**speed, count=int(gpus), price=gpu_price, rate=rate)
    tiers = by_name(TIERS, bandwidth, figures("--price", prices))
    result = plan_for(shape_of(model), Load(**options), device, tiers)
    write_report(result, json_file)
    _show(result, Console())


def served(
    model: str | None, bandwidth: dict[str, float], rate: float | None, *, measure: bool
) -> tuple[str, dict[str, float], float | None]:
    """The model, the served one if none is named, with bandwidths by tier and prefill rate: where it is to be measured,
    those that are not given. Raises Rejected for another model than the served one to be measured."""
    if model is not None:
        if measure:
            raise Rejected("--measure runs the served model: set RAGKV_MODEL instead of --model")
        return model, bandwidth, rate
    settings = Settings.from_env(os.environ)
    folder = model_folder(settings)
    if measure:
        with Console(stderr=True).status("measuring memory, disk and prefill"):
            bandwidth = measured_bandwidths(settings.data_dir) | bandwidth
            rate = rate or measured_prefill(settings)
    return str(folder), bandwidth, rate


def measured_bandwidths(folder: Path, num_bytes: int = MEASURED_BYTES) -> dict[str, float]:
    """GB a second that a file in the folder is read at: from memory, and from the disk with the page cache dropped."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".bandwidth-") as file:
        block = os.urandom(_PIECE)
        for _ in range(num_bytes // _PIECE):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        disk = _read(file.fileno(), num_bytes)
        return {DISK: disk, MEMORY: max(_read(file.fileno(), num_bytes) for _ in range(3))}


def measured_prefill(settings: Settings) -> float:
    """Tokens a second of an engine with the served model over at most its window, the best of three runs."""
    from ragkv.engine.local import LocalEngine  # noqa: PLC0415 - seconds to import, needed here alone
    from ragkv.engine.loop import EngineLoop  # noqa: PLC0415 - see above
    from ragkv.kv.layout import layout_of, read_config  # noqa: PLC0415 - see above

    folder = model_folder(settings)
    config = read_config(folder)
    drawn = random.Random(0)  # noqa: S311 - not for secrets
    num_tokens, times = min(PREFILL_TOKENS, settings.max_model_len), []
    with tempfile.TemporaryDirectory() as home:
        settings = msgspec.structs.replace(settings, data_dir=Path(home))
        engine = LocalEngine(settings, folder, layout_of(config, settings.dtype))
        with EngineLoop(engine) as loop:
            for _ in range(4):  # the first is not counted
                ids = drawn.choices(range(config.vocab_size), k=num_tokens)
                began = time.perf_counter()
                loop.run(engine.prefill(Prefill(secrets.token_hex(32), tuple(ids), ())))
                times.append(time.perf_counter() - began)
    return num_tokens / min(times[1:])


def _read(descriptor: int, num_bytes: int) -> float:
    buffer = bytearray(_PIECE)
    began = time.perf_counter()
    for start in range(0, num_bytes, _PIECE):
        os.preadv(descriptor, [buffer], start)
    return num_bytes / (time.perf_counter() - began) / 1e9


def figures(option: str, texts: Sequence[str]) -> dict[str, float]:
    """NAME=NUMBER of an option that may be repeated. Raises Rejected for what is none."""
    figures = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            figures[name.strip()] = float(number)
        except ValueError:
            raise Rejected(f"{option} {text}: give a tier and a number, such as disk=3.5") from None
    return figures


def _show(result: CostPlan, console: Console) -> None:
    facts = Table(box=None, show_header=False)
    reads = f"{result.reads:.3g}" if result.reads < _WHOLE else f"{result.reads:,.0f}"
    kib = ", ".join(f"{size / 1024:.1f} KiB in {name}" for name, size in result.bytes_per_token.items())
    storage = ", ".join(f"{filesize.decimal(int(size * 1e9))} in {name}" for name, size in result.storage_gb.items())
    for name, value in (
        ("model", result.model),
        ("a token", kib),
        ("corpus", f"{result.corpus_tokens:,} tokens: {storage}"),
        (
            "full prefill",
            f"{result.prefill_rate:,.0f} tokens/s: {result.context:,} tokens in {result.prefill_s * 1e3:,.0f} ms",
        ),
        ("computing", f"${result.million_price:.3g} a million tokens"),
        ("reads", f"{reads} of a stored token a month"),
    ):
        facts.add_row(name, value)
    console.print(facts, highlight=False)
    table = Table(box=None, padding=(0, 1, 0, 0), caption=_CAPTION, caption_justify="left")
    for column in ("tier", "format", "GB/s", "needed", "first token", "speed-up", "$/month", "pays from"):
        table.add_column(column, justify="left" if column in {"tier", "format"} else "right", no_wrap=True)
    for option in result.options:
        table.add_row(
            option.tier if option.format is KVFormat.BF16 else "",
            option.format,
            f"{option.bandwidth:.3g}",
            f"{option.needed_bandwidth:.3g}",
            f"{option.total_s * 1e3:,.0f} ms",
            f"{option.sooner:.2g}x",
            f"{option.storage_price:,.0f}",
            f"{option.break_even_reads:,.0f}",
            style=None if option.wins else "dim",
        )
    console.print(table, highlight=False)
    for line in result.advice:
        console.print(f"- {line}", highlight=False, soft_wrap=not sys.stdout.isatty())
    for name, value in result.settings.items():
        console.print(f"{name}={value}", style="green", highlight=False)
