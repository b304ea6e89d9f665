"""Real engines, each started once and shared by every test of this folder that needs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragkv.engine.local import LocalEngine
from ragkv.settings import Settings
from tests.engine.world import Model, World

NUM_CHUNKS = 24


def started(settings: Settings, num_chunks: int, **overrides: object) -> World:
    model = Model.prepare(settings, num_chunks)
    engine = LocalEngine(settings, Path(settings.model), model.layout, {"max_logprobs": -1} | overrides)
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
