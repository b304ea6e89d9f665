"""Condition of the components that a service depends on, the engine among them, in words for any client.

Every function of `Parts` returns OK or a sentence about the problem. Messages of drivers name hosts and users: they go
to the log.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ragkv.answer.recompute import Recomputing
from ragkv.engine.launch import cache_gib_of
from ragkv.engine.protocol import Engine
from ragkv.errors import OutOfSpace, RagKVError
from ragkv.files_io import check_room
from ragkv.service.base.redis import check_takes, ping
from ragkv.service.parts import Parts
from ragkv.settings import Settings

log = logging.getLogger(__name__)

OK = "ok"
AWAY = "cannot be reached: see the service's log"
OLD_BACKLOG_S = 1800.0
_UNITS = (("h", 3600), ("min", 60), ("s", 1))

PATIENCE_S = 2.0
SILENT = f"does not answer within {PATIENCE_S:.0f} s"


def database(parts: Parts) -> str:
    return _answering("the database", parts.database.ping)


def redis(parts: Parts) -> str:
    """Whether Redis answers, and takes data where requests are refused that it cannot count."""
    settings = parts.settings
    must_count = settings.redis_url and (settings.requests_per_minute or settings.tenant_requests_per_minute)
    return _answering("Redis", lambda: (check_takes if must_count else ping)(parts.redis))


def index(parts: Parts) -> str:
    """The Qdrant server; without one the index is in this process."""
    if parts.settings.qdrant_url is None:
        return OK

    def ping_index() -> None:
        assert parts.server_index is not None, "there is a URL"
        parts.server_index.ping()

    return _answering("Qdrant", ping_index)


def worker(parts: Parts) -> str:
    """Whether at least one worker reports and moves on."""
    try:
        beats = parts.heartbeats.read()
    except RagKVError:
        return "not known while Redis cannot be reached"
    if any(beat.is_working for beat in beats):
        return OK
    if not beats:
        return "no worker runs: uploads wait until one does"
    if not beats[0].is_alive:
        return f"no worker has reported for {_duration(beats[0].silent_s)}: uploads wait until one does"
    stalled_s = min(beat.stalled_s for beat in beats if beat.is_alive)
    return f"no progress on the current document for {_duration(stalled_s)}: see the worker's log, or restart it"


def queue(parts: Parts) -> str:
    """Whether documents are read within half an hour of their upload, and workers are woken for them."""
    try:
        waiting, takes_changes = parts.backlog.read(), parts.database.takes_changes()
    except RagKVError:
        return "not known while the database cannot be reached"
    if not takes_changes:
        return "the database takes no changes: uploads are refused until it does"
    if waiting.oldest_s >= OLD_BACKLOG_S:
        return f"{waiting.jobs:,} documents wait to be read, the oldest for {_duration(waiting.oldest_s)}"
    try:
        check_takes(parts.redis)
    except RagKVError:
        return "Redis is full or cannot be reached: uploads wait until it has room"
    return OK


def disk(parts: Parts) -> str:
    """Whether there is room for uploads and KV, by the rule that refuses them where there is none."""
    settings = parts.settings
    try:
        for folder in (settings.files_dir, settings.kv_dir):
            check_room(folder, settings.min_free_bytes)
    except OutOfSpace as full:
        return str(full)
    except OSError as error:
        log.warning("the data folder: %s", error)
        return "the data folder cannot be read: see the service's log"
    return OK


def free_bytes(settings: Settings) -> int | None:
    """Free bytes where the data folder lies; None if that cannot be known."""
    try:
        return shutil.disk_usage(settings.data_dir).free
    except OSError as error:
        log.warning("the data folder: %s", error)
        return None


class EngineView(msgspec.Struct, frozen=True, kw_only=True):
    """The state and settings of the engine, which all tenants share."""

    ready: Annotated[bool, "Whether the engine answers."]
    status: Annotated[str, '"ok", or a description of the problem.', Meta(examples=["ok"])]
    place: Annotated[Literal["local", "remote"], "`local`: in the service's process. `remote`: at RAGKV_ENGINE_URL."]
    model: Annotated[str, "Name of the served model.", Meta(examples=["Qwen3-0.6B"])]
    window: Annotated[int, "Maximum number of tokens of prompt and answer.", Meta(examples=[8192])]
    kv_cache_gib: (
        Annotated[
            float,
            "Size of the engine's KV cache in GiB; null for a remote engine, and where vLLM takes what a GPU has free.",
            Meta(examples=[2.0]),
        ]
        | None
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
        kv_cache_gib=None if remote else cache_gib_of(settings),
        policy=settings.recompute_policy,
        recompute_ratio=recomputing.default(written=True).ratio,
    )


async def status_of(engine: Engine) -> str:
    """The engine's own status; an engine that does not say it within PATIENCE_S is silent."""
    try:
        return await asyncio.wait_for(engine.status(), PATIENCE_S)
    except TimeoutError:
        return SILENT


def _answering(name: str, ask: Callable[[], object]) -> str:
    try:
        ask()
    except RagKVError as error:
        log.warning("%s cannot be used: %s", name, error)
        return AWAY
    return OK


def _duration(seconds: float) -> str:
    """The duration in the largest unit of which there are at least two."""
    count, unit = next((seconds / size, unit) for unit, size in _UNITS if seconds >= 2 * size or size == 1)
    return f"{count:.0f} {unit}"
