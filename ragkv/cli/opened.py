"""The service's parts for one command, closed at its end, and the tenant that it names."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ragkv.service.base.database import Database
from ragkv.service.base.tenants import find_collection_ref
from ragkv.service.parts import Parts
from ragkv.settings import Settings


@contextmanager
def opened_parts(prepare: Callable[[Parts], object] | None = None) -> Iterator[Parts]:
    """Parts by the environment's settings. prepare: called with them before the block; they are closed if it raises."""
    parts = Parts(Settings.from_env(os.environ))
    try:
        if prepare is not None:
            prepare(parts)
        yield parts
    finally:
        parts.close()


def tenant_id_of(name: str, database: Database) -> str:
    """The tenant's id. Raises NotFound."""
    return find_collection_ref(database, name).tenant_id
