"""Real engines, each started once and shared by every test of this folder that needs it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from bench.fidelity.methods import INFOFLOW_CONNECTOR
from ragkv.engine.local import LocalEngine
from ragkv.kv.layout import computed_in, layout_of
from ragkv.settings import Settings
from tests.engine.quantised import FORMS, quantise
from tests.engine.tiny import IN_SMALL_STEPS, QUANTISED, WAYS, config_of, save_tiny
from tests.engine.world import Model, World

NUM_CHUNKS = 24
STEP_TOKENS, CACHE_TOKENS = 128, 3150
"""Of the families in small steps."""


def started(settings: Settings, num_chunks: int, **overrides: object) -> World:
    model = Model.prepare(settings, num_chunks)
    arguments = {"max_logprobs": -1} | overrides
    engine = LocalEngine(settings, Path(settings.model), model.layout, arguments, INFOFLOW_CONNECTOR)
    return World(model, engine).start()


def embedded_settings(folder: Path, data_dir: Path, dtype: str) -> Settings:
    return Settings(data_dir=data_dir, model=str(folder), dtype=dtype, chunk_tokens=96, kv_cache_gib=1.0)


@pytest.fixture(scope="package")
def exact(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The embedded model in float32: what differs here is wrong, not rounded."""
    settings = embedded_settings(language_model, tmp_path_factory.mktemp("float32"), "float32")
    world = started(settings, NUM_CHUNKS, worker_extension_cls="tests.engine.peek.Peek")
    yield world
    world.stop()


@pytest.fixture(scope="package")
def served(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The embedded model in bfloat16, as it is served."""
    settings = embedded_settings(language_model, tmp_path_factory.mktemp("bfloat16"), "bfloat16")
    world = started(settings, NUM_CHUNKS)
    yield world
    world.stop()


@pytest.fixture(scope="package")
def tiny(
    request: pytest.FixtureRequest, language_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A tiny model of the family, or quantised in the form, that `request.param` names, alone or with a way of WAYS.
    The cache and the steps of those that are asked often are small: requests are preempted, and questions are prefilled
    in several steps."""
    family, _, way = request.param.partition(" as ")
    home = tmp_path_factory.mktemp("family")
    is_quantised = family in FORMS
    config = config_of(QUANTISED if is_quantised else family)
    settings = Settings(
        data_dir=home / "data", model=str(save_tiny(config, language_model, home / "model")),
        dtype="bfloat16" if is_quantised else "float32", chunk_tokens=96, max_model_len=2048, kv_cache_gib=0.04,
    )  # fmt: skip
    if is_quantised:
        if computed_in(torch.bfloat16) is not torch.bfloat16:
            pytest.skip("vLLM's kernels for quantised weights compute in bfloat16")
        quantise(home / "model", family)
    if family in IN_SMALL_STEPS:
        settings = msgspec.structs.replace(
            settings,
            kv_cache_gib=CACHE_TOKENS * layout_of(config, "float32").bytes_per_token / 2**30,
            max_batched_tokens=STEP_TOKENS,
            speculative_tokens=IN_SMALL_STEPS[family],
        )
    if way:
        settings = msgspec.structs.replace(settings, **WAYS[way].settings)
    world = started(settings, 12, worker_extension_cls="tests.engine.peek.Peek", **(WAYS[way].arguments if way else {}))
    yield world
    world.stop()
