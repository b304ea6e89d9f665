"""`ragkv bench gpu` rehearsed: every part against a real engine of a tiny model."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.gpu.engine import measuring
from bench.gpu.oracle import check_oracle
from bench.gpu.report import PARTS, GpuReport
from bench.gpu.scale import RATIOS, REHEARSAL

ROOT = Path(__file__).parents[2]
SCALE = replace(REHEARSAL, sizes=(256,), clients={4: 8})
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Rows of each part, of one engine. Its weights are saved ones, so that the oracle can be asked too."""
    shape = SCALE.oracles[1]
    folder = shape.save_with_weights(tmp_path_factory.mktemp("gpu") / "model")

    async def measure() -> dict[str, list[Any]]:
        async with measuring(shape, folder, SCALE, eager=True, dummy=False, bare_s=1.0) as started:
            rows = {"oracle": await check_oracle(started.engine, started.corpus, SCALE.oracle_prompts)}
            for part in (started.ingest, started.ttft, started.latency, started.serve, started.memory):
                rows[part.__name__] = await part(lambda line: None)
            return rows

    return asyncio.run(measure())


def test_the_oracle_holds_and_could_fail(measured):
    everything, single, nothing = measured["oracle"]
    assert everything.holds and single.holds
    assert nothing.kl_mean > 50 * everything.kl_mean


def test_first_tokens_are_timed_in_every_way(measured):
    ways = [("full", None), ("floor", None), *(("stitched", ratio) for ratio in RATIOS)]
    assert [(row.method, row.ratio) for row in measured["ttft"]] == ways
    assert all(row.ttft_s > 0 for row in measured["ttft"])
    stitched = [row for row in measured["ttft"] if row.method == "stitched"]
    assert all(row.kv_load_ms > 0 for row in stitched)
    assert [row.recompute_ms > 0 for row in stitched] == [False, True, True, True]


def test_streams_run_while_prompts_arrive(measured):
    assert [row.arriving for row in measured["latency"]] == ["nothing", "stitched", "full"]
    assert [row.prompts for row in measured["latency"]] == [0, SCALE.arrivals, SCALE.arrivals]
    assert all(0 < row.itl_p50_s <= row.itl_p99_s <= row.itl_max_s for row in measured["latency"])


def test_clients_are_answered_without_an_error(measured):
    assert [(row.mode, row.clients, row.questions, row.errors) for row in measured["serve"]] == [
        ("stitched", 4, 8, 0),
        ("full", 4, 8, 0),
    ]


def test_memory_is_told_of_the_host_and_of_kv(measured):
    gib = {row.what: row.gib for row in measured["memory"]}
    assert gib["host, vLLM's processes"] > 0.1
    assert gib["KV of 1,000 tokens, int4"] < gib["KV of 1,000 tokens, int8"] < gib["KV of 1,000 tokens, bf16"]


def test_the_whole_command_is_rehearsed_from_a_pack_and_gone_on_with(tmp_path):
    """All parts, of which a second call measures nothing again; a part by itself is measured anew."""
    python = os.environ | {"PYTHON": sys.executable}
    subprocess.run([ROOT / "bench" / "gpu.sh", "--pack", tmp_path / "pack", "--no-vllm"], check=True, env=python)
    kit, data = tmp_path / "kit", tmp_path / "data"

    def call(*parts: str) -> GpuReport:
        environ = python | {"KIT": str(kit), "OUT": str(tmp_path), "DATA": str(data)}
        subprocess.run([tmp_path / "pack" / "run.sh", "--rehearse", *parts], check=True, env=environ, cwd=tmp_path)
        return msgspec.json.decode((tmp_path / "bench-gpu.json").read_bytes(), type=GpuReport)

    data.mkdir()
    mine = data / "mine"
    mine.touch()
    whole = call()
    assert all(getattr(whole, part) for part in PARTS)
    assert "prefix-cache hit" in (tmp_path / "bench-gpu.svg").read_text()
    assert list(data.iterdir()) == [mine]
    assert call() == whole
    again = call("memory")
    assert again.ttft == whole.ttft
    assert again.memory
