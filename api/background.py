"""Background work of the API process, from the start of the service to its end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from litestar import Litestar

from ingest.page_views import PageViews
from ragkv.errors import RagKVError
from ragkv.observe.throttled_log import ThrottledLog
from ragkv.service.base.database import Database
from ragkv.service.checks.cleaning import remove_unnamed_files
from ragkv.service.documents.removal import MemoryKeeper, Removal
from ragkv.service.evaluations.runner import EvaluationRunner
from ragkv.service.kv_admin.eviction import NOTHING
from ragkv.service.parts import Parts
from ragkv.settings import Settings

if TYPE_CHECKING:
    from ragkv.kv.store import KVStore
    from ragkv.service.base.file_store import FileStore


log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""Python 3.11's `wait_for` loses a cancellation that meets its result: then the task is cancelled again."""
FORGET_EVERY_S = 30.0
SWEEP_EVERY_S = 3600.0
IDLE_S = 1.0
"""Between two looks for an evaluation, and after one whose question could not be measured for now."""

Work = Coroutine[Any, Any, None]
Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def beside(work: Work) -> AsyncIterator[None]:
    """Run `work` as a task during the block. At the end cancel it, wait for it, and raise its error."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=AGAIN_S)
        if not task.cancelled():
            task.result()


def forgetting_deleted(removal: Removal, page_views: PageViews, interval_s: float = FORGET_EVERY_S) -> Lifespan:
    """A lifespan that removes from memory what other processes have deleted: vectors, titles and pictures of documents,
    within `interval_s`."""

    async def forget(keeper: MemoryKeeper) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await asyncio.to_thread(page_views.forget_deleted)
                await asyncio.to_thread(keeper.forget_deleted)
            except RagKVError as error:
                log.warning("what was deleted elsewhere stays in memory until the next try: %s", error)

    return lambda _: beside(forget(MemoryKeeper(removal)))


def sweeping_disk(
    database: Database,
    settings: Settings,
    files: "FileStore",
    kv_store: "KVStore",
    prefixes: Callable[[], set[str]],
    interval_s: float = SWEEP_EVERY_S,
) -> Lifespan:
    """A lifespan that removes KV files that nothing names from this host's disk, with an object store: the host may
    have no worker. Without an object store all hosts share the folder of KV with a worker, which sweeps it."""

    async def sweep() -> None:
        while settings.kv_remote is not None:
            await asyncio.sleep(interval_s)
            try:
                freed = await asyncio.to_thread(remove_unnamed_files, database, files, kv_store, prefixes)
            except (RagKVError, OSError) as error:
                log.warning("KV files that nothing names stay until the next sweep: %s", error)
            else:
                if freed != NOTHING:
                    log.info("removed %d KV files of %d bytes that nothing names", freed.files, freed.bytes)

    return lambda _: beside(sweep())


def evaluating(parts: Parts) -> Lifespan:
    """A lifespan that carries out evaluations: this process has the engine."""

    async def evaluate(runner: EvaluationRunner) -> None:
        measured, throttled = False, ThrottledLog(log)
        while True:
            if not measured:
                await asyncio.sleep(IDLE_S)
            measured = False
            try:
                measured = await runner.step()
            except RagKVError as error:
                throttled.warning("a question of an evaluation is measured later: %s", error)
            except Exception:
                log.exception("a question of an evaluation is measured later")

    return lambda _: beside(evaluate(EvaluationRunner(parts)))
