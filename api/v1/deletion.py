"""Deletion of collections, in batches."""

import asyncio
from collections.abc import Callable

from api.http.disconnect import stepwise
from ragkv.catalog.collection import delete_in_batches
from ragkv.parts import Parts


async def delete_collection(
    tenant_id: str, collection: str, parts: Parts, when_changed: Callable[[], None] = lambda: None
) -> None:
    """Run `delete_in_batches`, each batch in a thread. After each it pauses for as long as the batch took: other work
    gets its turn at the threads and the database."""
    async for took_s in stepwise(delete_in_batches(tenant_id, collection, parts, when_changed)):
        await asyncio.sleep(took_s)
