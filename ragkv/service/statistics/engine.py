"""The state and settings of the engine, as clients and probes see them."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ragkv.answer.recompute import Recomputing
from ragkv.engine.protocol import Engine

PATIENCE_S = 2.0
SILENT = f"does not answer within {PATIENCE_S:.0f} s"


class EngineView(msgspec.Struct, frozen=True, kw_only=True):
    """The state and settings of the engine, which all tenants share."""

    ready: Annotated[bool, "Whether the engine answers."]
    status: Annotated[str, '"ok", or a description of the problem.', Meta(examples=["ok"])]
    place: Annotated[Literal["local", "remote"], "`local`: in the service's process. `remote`: at RAGKV_ENGINE_URL."]
    model: Annotated[str, "Name of the served model.", Meta(examples=["Qwen3-0.6B"])]
    window: Annotated[int, "Maximum number of tokens of prompt and answer.", Meta(examples=[8192])]
    kv_cache_gib: (
        Annotated[float, "Size of the engine's KV cache in GiB; null for a remote engine.", Meta(examples=[2.0])] | None
    )
    policy: Annotated[str, "Default recomputation policy.", Meta(examples=["question"])]
    recompute_ratio: Annotated[
        float,
        "Default share of tokens to recompute, for KV by the writer in use if there is one.",
        Meta(examples=[0.1]),
    ]


async def engine_view(engine: Engine, recomputing: Recomputing) -> EngineView:
    """An engine that does not say within PATIENCE_S that it is ready is not."""
    settings = recomputing.settings
    remote = settings.engine_url is not None
    status = await status_of(engine)
    return EngineView(
        ready=status == "ok",
        status=status,
        place="remote" if remote else "local",
        model=Path(settings.model).name,
        window=settings.max_model_len,
        kv_cache_gib=None if remote else settings.kv_cache_gib,
        policy=settings.recompute_policy,
        recompute_ratio=recomputing.default(written=True).ratio,
    )


async def status_of(engine: Engine) -> str:
    """The engine's own status; an engine that does not say it within PATIENCE_S is silent."""
    try:
        return await asyncio.wait_for(engine.status(), PATIENCE_S)
    except TimeoutError:
        return SILENT
