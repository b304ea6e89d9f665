"""Removal from memory of what other processes have deleted, while the service runs."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from litestar import Litestar

from api.beside import lifespan_of
from ingest.page_views import PageViews
from ragkv.catalog.forgetting import MemoryKeeper
from ragkv.errors import RagKVError
from ragkv.parts import Parts

log = logging.getLogger(__name__)

INTERVAL_S = 30.0


def forgetting_deleted(
    parts: Parts, page_views: PageViews, interval_s: float = INTERVAL_S
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """A lifespan that removes vectors, titles and pictures of deleted documents from memory within `interval_s`."""
    return lifespan_of(lambda: _keep_forgetting(MemoryKeeper(parts), page_views, interval_s))


async def _keep_forgetting(keeper: MemoryKeeper, page_views: PageViews, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            await asyncio.to_thread(page_views.forget_deleted)
            await asyncio.to_thread(keeper.forget_deleted)
        except RagKVError as error:
            log.warning("what was deleted elsewhere stays in memory until the next try: %s", error)
