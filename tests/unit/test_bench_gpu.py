"""`ragkv bench gpu` without a GPU: what is refused, measured without an engine, written, resumed and drawn."""

import asyncio
import os
import struct
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from bench.gpu.command import gpu
from bench.gpu.corpus import Corpus
from bench.gpu.device import first_gpu
from bench.gpu.ingestion import IngestRow, measure_bare, measure_ingestion
from bench.gpu.loading import LoadRow, measure_loading
from bench.gpu.oracle import OracleRow
from bench.gpu.plot import plot
from bench.gpu.prune import pruned
from bench.gpu.report import PARTS, WITH_ENGINE, GpuReport, MemoryRow, basis_of, resumed, save, tables
from bench.gpu.run import Run
from bench.gpu.scale import ON_A_GPU, REHEARSAL
from bench.gpu.streams import StreamRow
from bench.serving.load import ServeRow
from bench.ttft import TtftRow
from ragkv.errors import Rejected
from ragkv.kv.format import KVFormat
from tests.support.echo_engine import EchoEngine

ROOT = Path(__file__).parents[2]
TOOL = """#!/bin/sh
echo "NVIDIA H200, NVL, 570.86.15, 143771, 2048"
"""


def report(**parts: object) -> GpuReport:
    facts = {"date": "2026-11-23", "machine": "a machine", "device": "a GPU", "versions": {"vllm": "0.32.0"}}
    return GpuReport(**facts, eager=True, **parts)


def test_without_a_gpu_the_command_says_how_to_rehearse(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = CliRunner().invoke(gpu, ["--json", str(tmp_path / "report.json")])

    assert isinstance(asked.exception, Rejected)
    assert "--rehearse" in str(asked.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_gpu_is_what_nvidia_smi_says(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(TOOL)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = first_gpu()

    assert found is not None
    assert (found.name, found.driver, found.used_gib) == ("NVIDIA H200, NVL", "570.86.15", 2.0)
    assert found.total_gib == pytest.approx(140.4, abs=0.1)


def test_the_shapes_are_those_of_the_published_models():
    """Weights of 8.03 and 8.19 billion, KV of 128 and 144 KiB a token, and windows that hold the largest context."""
    llama, qwen = ON_A_GPU.shapes
    assert [shape.weight_bytes // 2 // 10**7 for shape in (llama, qwen)] == [803, 819]
    assert [shape.layout.bytes_per_token // 1024 for shape in (llama, qwen)] == [128, 144]
    assert all(shape.config.max_position_embeddings > max(ON_A_GPU.sizes) + 1024 for shape in ON_A_GPU.shapes)


@pytest.mark.parametrize("scale", [ON_A_GPU, REHEARSAL], ids=["on a GPU", "a rehearsal"])
def test_every_model_has_the_window_that_its_engine_is_started_with(scale, tmp_path):
    """vLLM refuses a longer one."""
    for shape in (*scale.oracles, *scale.shapes):
        corpus = Corpus.of(shape, shape.save(tmp_path / shape.name), scale)
        assert corpus.settings.max_model_len <= shape.config.max_position_embeddings


SERVICE = {"alembic", "celery", "litestar", "qdrant_client", "redis", "sqlalchemy", "structlog"}


def test_it_needs_none_of_the_services_packages():
    """BENCHMARKS.md names what it needs: a machine with a GPU and vLLM may have no more."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({sorted(SERVICE)})); import bench.gpu.__main__"
    ran = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack without vLLM."""
    folder = tmp_path_factory.mktemp("pack")
    subprocess.run(
        [ROOT / "bench" / "gpu.sh", "--pack", folder, "--no-vllm"],
        check=True,
        env=os.environ | {"PYTHON": sys.executable},
    )
    return folder


def test_what_is_packed_starts_without_the_repository_and_begins_nothing_that_it_has_no_time_for(packed, tmp_path):
    kit = {"PYTHON": sys.executable, "KIT": str(tmp_path / "kit"), "OUT": str(tmp_path), "DATA": str(tmp_path / "data")}
    command = [packed / "run.sh", "--rehearse", "--seconds", "0", "ttft", "load"]
    ran = subprocess.run(command, env=os.environ | kit, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout
    assert [line.split(",")[:2] for line in ran.stdout.splitlines()] == [
        ["ttft", " Llama's shape: left out"],
        ["load", " Llama's shape: left out"],
        ["ttft", " Qwen3's shape: left out"],
    ]


def test_the_parts_worth_most_come_first_as_long_as_there_is_time(tmp_path):
    told: list[str] = []
    run = Run(
        REHEARSAL,
        tmp_path,
        report(ttft={"Llama's shape": []}),
        tmp_path / "report.json",
        True,
        told.append,
        told.append,
    )
    shape = REHEARSAL.shapes[0]

    assert run._due(WITH_ENGINE, PARTS, shape) == ["latency", "serve", "ingest", "memory"]
    assert run._due(WITH_ENGINE, ("memory", "serve"), shape) == ["serve", "memory"]
    in_time = replace(run, ends_at=time.monotonic() + 100)
    assert in_time._due(WITH_ENGINE, PARTS, shape, start_s=50) == ["serve", "memory"]
    assert [line.split(":")[0] for line in told] == ["latency, Llama's shape", "ingest, Llama's shape"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--rehearse", "--shape", "mistral"], "--shape mistral: there are such models only without --rehearse"),
        (["ttft", "--shape", "deepseek_v3"], "--shape deepseek_v3: there are such models in the part oracle alone"),
    ],
)
def test_a_kind_without_a_model_to_measure_is_refused(arguments, reason, tmp_path):
    refused = CliRunner().invoke(gpu, [*arguments, "--json", str(tmp_path / "report.json")])
    assert str(refused.exception) == reason


def test_of_one_kind_there_are_its_models_alone():
    scale = ON_A_GPU.of_kind("qwen3")
    assert [shape.name for shape in (*scale.oracles, *scale.shapes)] == ["small Qwen3", "Qwen3-8B"]


def entry(kind: int, chip: int, code: bytes) -> bytes:
    return struct.pack("<HHIQ12xI32x", kind, 0, 64, len(code), chip) + code


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def library(code: bytes) -> bytes:
    """An ELF file of two sections: the code for GPUs, and the sections' names."""
    names = b"\0.nv_fatbin\0.names\0"
    sections = [(1, 64, len(code)), (12, 64 + len(code), len(names))]
    headers = b"".join(struct.pack("<I20xQQ24x", *section) for section in sections)
    start = struct.pack("<40xQ12xHH", 64 + len(code) + len(names), len(sections), 1)
    return start + code + names + headers


def test_a_library_keeps_one_chips_code_and_its_size():
    cubin, ptx, older = entry(2, 90, b"cubin" * 8), entry(1, 80, b"assembler" * 8), entry(2, 80, b"old" * 8)
    whole = library(container(older, ptx, cubin) + container(older, ptx) + container(entry(2, 100, b"new" * 16), older))
    left = pruned(whole)

    assert len(left) == len(whole)
    assert [left.count(code) for code in (cubin, ptx, older)] == [1, 1, 1]
    assert b"new" not in left
    assert pruned(left) == left
    with pytest.raises(ValueError, match="no GPU code"):
        pruned(library(b"").replace(b".nv_fatbin", b".something"))


def test_ingestion_and_loading_are_measured_over_kv_that_stays(tmp_path):
    shape = REHEARSAL.shapes[1]
    folder = shape.save(tmp_path / shape.name)
    corpus = Corpus.of(shape, folder, REHEARSAL)
    engine = EchoEngine(corpus.settings)

    async def ingest() -> list[IngestRow]:
        await corpus.write(engine)
        bare_s = measure_bare(shape, corpus, REHEARSAL)
        return await measure_ingestion(shape, corpus, engine, REHEARSAL, bare_s)

    ingested = asyncio.run(ingest())
    loaded = measure_loading(shape, folder, REHEARSAL)

    assert [row.work for row in ingested] == ["bare forward", *(f"KV files, {f}" for f in KVFormat)]
    assert all(row.tokens_per_s > 0 and row.tokens == REHEARSAL.ingest_tokens for row in ingested)
    assert ingested[0].share == 1.0
    assert Corpus.of(shape, folder, REHEARSAL).is_written
    assert {(row.kv_format, row.source) for row in loaded} >= {
        (kept, source) for kept in KVFormat for source in ("page cache", "host tier")
    }
    assert all(0 < row.read_ms <= row.ms and row.bf16_gb_s > 0 for row in loaded)


def test_a_report_is_gone_on_with_on_the_same_machine_alone(tmp_path):
    file = tmp_path / "report.json"
    before = report(memory={"Llama": [MemoryRow("weights", 15.0)]}, failed={"serve, Llama": "Unavailable: away"})
    save(before, file)

    assert resumed(file, report()) == before
    assert resumed(tmp_path / "none.json", report()) == report()
    with pytest.raises(Rejected, match="device a GPU, this is another"):
        resumed(file, msgspec.structs.replace(report(), device="another"))
    file.write_text("{}")
    with pytest.raises(Rejected, match="not a report"):
        resumed(file, report())


def test_what_was_measured_by_other_code_or_at_another_scale_is_measured_anew():
    def gone_on_with(code: str, **scale: object) -> list[str]:
        found = report(
            oracle={"Llama": []}, ttft={"Llama": []}, memory={"Llama": []},
            basis={part: basis_of(part, "this", REHEARSAL) for part in PARTS},
        )  # fmt: skip
        for part in PARTS:
            found.begin(part, basis_of(part, code, replace(REHEARSAL, **scale)))
        return [part for part in PARTS if found.has(part, "Llama")]

    assert gone_on_with("this") == ["oracle", "ttft", "memory"]
    assert gone_on_with("this", runs=9) == ["oracle", "memory"]
    assert gone_on_with("this", sizes=(256, 1024)) == ["oracle"]
    assert gone_on_with("other") == []


def test_a_report_without_a_basis_is_measured_anew():
    found = report(ttft={"Llama": []})
    found.begin("ttft", basis_of("ttft", "this", REHEARSAL))

    assert not found.has("ttft", "Llama")


def test_a_bound_of_the_oracle_that_does_not_hold_is_an_error():
    rows = [
        OracleRow(check="all", prompts=1, kl_max=0.03, kl_mean=0.01, bound=0.02),
        OracleRow(check="none", prompts=1, kl_max=9.0, kl_mean=9.0, bound=None),
    ]
    broken = report(oracle={"Llama": rows}, failed={"serve, Llama": "Unavailable: away"}).broken
    assert broken == ["Llama, all: KL 0.03, at most 0.02 is right", "serve, Llama: Unavailable: away"]


def test_every_part_has_a_table_and_the_picture_has_its_texts(tmp_path):
    timed = [("full", None, 1.0), ("floor", None, 0.1), *(("stitched", ratio, 0.2) for ratio in (0.0, 0.02, 0.05, 0.1))]
    ttft = [
        TtftRow(size, 20, method, ratio, None, seconds, 5) for size in (4096, 16384) for method, ratio, seconds in timed
    ]
    served = ServeRow(
        mode="full", clients=16, rate=None, context_tokens=8192, questions=48, qps=3.0, ttft_p50_s=1.0, ttft_p95_s=1.0,
        ttft_p99_s=None, itl_p50_s=0.01, itl_p99_s=0.02, errors=0,
    )  # fmt: skip
    streamed = StreamRow(
        arriving="stitched", streams=8, prompts=12, context_tokens=8192, itl_p50_s=0.01, itl_p99_s=0.02, itl_max_s=0.03,
        ttft_p50_s=0.4, errors=0,
    )  # fmt: skip
    loaded = LoadRow(
        kv_format=KVFormat.INT4, source="disk", tokens=8192, stored_gb_s=1.0, bf16_gb_s=3.5, ms=300.0, read_ms=200.0
    )
    whole = report(
        oracle={"Llama": [OracleRow(check="all", prompts=20, kl_max=0.001, kl_mean=0.0005, bound=0.02)]},
        ingest={"Llama": [IngestRow(work="bare forward", tokens=8192, tokens_per_s=28_000.0, share=1.0)]},
        load={"Llama": [loaded]},
        ttft={"Llama": ttft},
        latency={"Llama": [streamed]},
        serve={"Llama": [served]},
        memory={"Llama": [MemoryRow("weights", 15.0)]},
    )
    shown = StringIO()
    for table in tables(whole):
        Console(width=150, file=shown).print(table)
    drawn = tmp_path / "report.svg"
    assert plot(whole, drawn)

    for text in ("5.00", "1.0e-03", "28,000", "int4", "2% s", "weights"):
        assert text in shown.getvalue()
    for text in ("prefix-cache hit", "stitched, 2% recomputed", "disk, int4", "16 clients, full", "stitched arrives"):
        assert text in drawn.read_text()
    assert not plot(report(), Path("nowhere.svg"))
