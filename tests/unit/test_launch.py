"""Arguments that vLLM is started with, for one rank and for several."""

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import Gemma3Config, Gemma3TextConfig, LlamaConfig, SiglipVisionConfig

from ragkv.engine.launch import (
    FREE_AT_START,
    HOST_KV_BYTES,
    LANGUAGE_MODELS,
    SCHEMAS,
    SHARE_OF_GPU,
    engine_arguments,
    host_memory,
    processor_variables,
    serve_command,
    transfer_config,
)
from ragkv.errors import Unsupported
from ragkv.kv.families import SEEING
from ragkv.kv.layout import Layout
from ragkv.settings import Settings

LAYOUT = Layout(layers=2, q_heads=8, kv_heads=4, head_dim=8, dtype=torch.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder without weights."""
    LlamaConfig().save_pretrained(tmp_path)
    return tmp_path


def test_ranks_share_the_cache_and_run_in_processes_of_their_own(folder: Path):
    alone, together = (
        engine_arguments(Settings(tensor_parallel_size=ranks, kv_cache_gib=3), folder, LAYOUT) for ranks in (1, 2)
    )
    assert (alone["tensor_parallel_size"], together["tensor_parallel_size"]) == (1, 2)
    assert together["kv_cache_memory_bytes"] * 2 == alone["kv_cache_memory_bytes"] == 3 * 2**30
    assert "distributed_executor_backend" not in together


def test_the_server_is_told_too(folder: Path):
    command = serve_command(Settings(tensor_parallel_size=2, speculative_tokens=3), folder, LAYOUT, "127.0.0.1", 8001)
    assert command[command.index("--tensor-parallel-size") + 1] == "2"
    assert json.loads(command[command.index("--structured-outputs-config") + 1]) == SCHEMAS
    guesses = json.loads(command[command.index("--speculative-config") + 1])
    assert (guesses["method"], guesses["num_speculative_tokens"]) == ("ngram", 3)


def test_of_a_checkpoint_that_sees_the_language_model_alone_is_loaded(folder: Path):
    Gemma3Config(text_config=Gemma3TextConfig(), vision_config=SiglipVisionConfig()).save_pretrained(folder)

    command = serve_command(Settings(), folder, LAYOUT, "127.0.0.1", 8001)
    overrides = json.loads(command[command.index("--hf-overrides") + 1])
    assert overrides == {"architectures": ["Gemma3LanguageModel"], "is_mm_prefix_lm": False}


def test_every_kind_that_sees_has_a_language_model():
    assert set(LANGUAGE_MODELS) == SEEING


def test_a_gpu_replays_whole_forwards_from_graphs(monkeypatch: pytest.MonkeyPatch, folder: Path):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    graphs = {"mode": 0, "cudagraph_mode": "FULL"}
    for setting, eager, compilation in [(None, False, graphs), (False, False, graphs), (True, True, None)]:
        arguments = engine_arguments(Settings(enforce_eager=setting), folder, LAYOUT)
        assert (arguments["enforce_eager"], arguments.get("compilation_config")) == (eager, compilation)
    command = serve_command(Settings(), folder, LAYOUT, "127.0.0.1", 8001)
    assert json.loads(command[command.index("--compilation-config") + 1]) == graphs


def test_a_cpu_runs_eagerly_unless_told_to_compile(monkeypatch: pytest.MonkeyPatch, folder: Path):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for setting, eager in [(None, True), (True, True), (False, False)]:
        arguments = engine_arguments(Settings(enforce_eager=setting), folder, LAYOUT)
        assert (arguments["enforce_eager"], "compilation_config" in arguments) == (eager, False)


def test_what_is_not_set_of_memory_follows_the_device(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path, subtests: pytest.Subtests
):
    def of_device(on_gpu: bool, **values: float) -> tuple[object, ...]:
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: on_gpu)
        settings = Settings(data_dir=tmp_path, **values)  # type: ignore[arg-type]
        arguments = engine_arguments(settings, folder, LAYOUT)
        names = "kv_cache_memory_bytes", "gpu_memory_utilization"
        extra = transfer_config(settings, folder, LAYOUT)["kv_connector_extra_config"]
        return *(arguments.get(name) for name in names), extra["host_kv_bytes"]

    assert of_device(False) == (2 * 2**30, FREE_AT_START, HOST_KV_BYTES)
    assert of_device(True) == (None, SHARE_OF_GPU, host_memory() // 4)
    for on_gpu in (False, True):
        with subtests.test(on_gpu=on_gpu):
            assert of_device(on_gpu, kv_cache_gib=3, host_kv_bytes=0) == (3 * 2**30, FREE_AT_START, 0)


def test_the_host_has_as_much_memory_as_its_container_allows(tmp_path: Path):
    whole, limit = host_memory(tmp_path / "none"), tmp_path / "memory.max"
    for text, memory in (("max\n", whole), (f"{2**30}\n", 2**30), (f"{2 * whole}\n", whole)):
        limit.write_text(text)
        assert host_memory(limit) == memory


@pytest.mark.parametrize(("on_gpu", "tokens"), [(False, 32), (True, None)])
def test_on_a_cpu_a_prompt_shares_blocks_of_few_tokens(
    monkeypatch: pytest.MonkeyPatch, folder: Path, on_gpu: bool, tokens: int | None
):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: on_gpu)
    assert engine_arguments(Settings(), folder, LAYOUT).get("block_size") == tokens


def test_more_ranks_than_heads_can_be_shared_among_are_refused(folder: Path):
    with pytest.raises(Unsupported, match="3 ranks"):
        engine_arguments(Settings(tensor_parallel_size=3), folder, LAYOUT)


@pytest.mark.parametrize(
    ("cores", "ranks", "bound"),
    [({0, 1}, 1, None), ({0, 1}, 2, "0|1"), ({4, 5, 6}, 2, "4,6|5"), ({7}, 2, "7|7"), (set(range(8)), 2, None)],
)
def test_on_a_small_cpu_each_rank_has_its_part_of_the_cores(
    cores: set[int], ranks: int, bound: str | None, monkeypatch: pytest.MonkeyPatch
):
    """On a larger one vLLM binds them by NUMA node itself."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert processor_variables(Settings(tensor_parallel_size=ranks)).get("VLLM_CPU_OMP_THREADS_BIND") == bound


def test_an_engine_on_a_cpu_keeps_few_of_the_kernels_that_it_makes_for_each_new_length():
    """Measured in docs/log: 0.5 GB after 320 prompts of different lengths."""
    assert processor_variables(Settings())["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "128"
