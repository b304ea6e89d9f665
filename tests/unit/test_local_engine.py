"""The engine in this process, as far as it needs no vLLM."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import torch

from ragkv.engine.local import LocalEngine
from ragkv.engine.protocol import Generate, Output
from ragkv.errors import Unavailable
from ragkv.kv.layout import Layout
from ragkv.settings import Settings


class Silent(LocalEngine):
    """Loads, and never says a token."""

    def _load(self) -> None:
        pass

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        await asyncio.sleep(60)
        yield Output("", ())


def test_an_engine_that_is_silent_when_it_starts_says_so(tmp_path: Path):
    settings = Settings(data_dir=tmp_path, engine_silence_s=0.05)
    engine = Silent(settings, tmp_path, Layout(1, 1, 1, 2, torch.float32))

    with pytest.raises(Unavailable, match="vLLM did not start: it stopped responding"):
        asyncio.run(engine.start())
