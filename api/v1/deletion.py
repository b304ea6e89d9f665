"""Deletion of what takes long to delete."""

import asyncio

from api.http.disconnect import stepwise
from ragkv.catalog.collection import delete_in_batches
from ragkv.parts import Parts


async def delete_collection(tenant_id: str, collection: str, parts: Parts) -> None:
    """`delete_in_batches`, each batch a piece of work of its own: others take their turns in between, and have the database
    for as long as the batch had it."""
    async for took_s in stepwise(delete_in_batches(tenant_id, collection, parts)):
        await asyncio.sleep(took_s)
