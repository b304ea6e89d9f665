"""Removal of KV files that nothing names from this host's disk, while the service runs: it may have no worker."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from litestar import Litestar

from api.beside import lifespan_of
from ragkv.errors import RagKVError
from ragkv.parts import Parts
from ragkv.upkeep.eviction import NOTHING, remove_unnamed_files

log = logging.getLogger(__name__)

INTERVAL_S = 3600.0


def sweeping_disk(
    parts: Parts, interval_s: float = INTERVAL_S
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """A lifespan that sweeps the disk every `interval_s`, with an object store: without one all hosts share the folder
    of KV with a worker, which sweeps it."""
    return lifespan_of(lambda: _keep_sweeping(parts, interval_s))


async def _keep_sweeping(parts: Parts, interval_s: float) -> None:
    while parts.settings.kv_remote is not None:
        await asyncio.sleep(interval_s)
        try:
            freed = await asyncio.to_thread(remove_unnamed_files, parts)
        except (RagKVError, OSError) as error:
            log.warning("KV files that nothing names stay until the next sweep: %s", error)
        else:
            if freed != NOTHING:
                log.info("removed %d KV files of %d bytes that nothing names", freed.files, freed.bytes)
