"""What can be said of the engine from outside."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ragkv.engine.protocol import Engine
from ragkv.settings import Settings

PATIENCE_S = 2.0


class EngineView(msgspec.Struct, frozen=True, kw_only=True):
    """ready: it answers. place: in this process, or behind RAGKV_ENGINE_URL. window: tokens of prompt and answer.

    kv_cache_gib: the size of its own KV cache; null for an engine that was started elsewhere.
    """

    ready: bool
    place: Literal["local", "remote"]
    model: Annotated[str, Meta(examples=["Qwen3-0.6B"])]
    window: Annotated[int, Meta(examples=[8192])]
    kv_cache_gib: Annotated[float, Meta(examples=[2.0])] | None
    policy: Annotated[str, Meta(examples=["question"])]
    recompute_ratio: Annotated[float, Meta(examples=[0.1])]


async def engine_view(engine: Engine, settings: Settings) -> EngineView:
    """An engine that does not say within PATIENCE_S that it is ready is not."""
    remote = settings.engine_url is not None
    return EngineView(
        ready=await is_ready(engine),
        place="remote" if remote else "local",
        model=Path(settings.model).name,
        window=settings.max_model_len,
        kv_cache_gib=None if remote else settings.kv_cache_gib,
        policy=settings.recompute_policy,
        recompute_ratio=settings.recompute_ratio,
    )


async def is_ready(engine: Engine) -> bool:
    """Whether it says so within PATIENCE_S."""
    try:
        return await asyncio.wait_for(engine.ready(), PATIENCE_S)
    except TimeoutError:
        return False
