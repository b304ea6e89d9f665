"""Prefixes whose KV was lost are computed again.

No entry and no chunk names them, so their loss queues nothing: without this every stitched answer would recompute its
tenant's prefix until some document of the tenant is ingested.
"""

from typing import TYPE_CHECKING

from ragkv.service.base.database import Database
from ragkv.service.documents.job_statements import KEEP
from ragkv.service.kv_admin.entry_statements import document_with_kv, tenants_with_kv
from ragkv.service.kv_admin.tier_statements import tenants_with_remote
from ragkv.service.kv_admin.usage import request_kv

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragkv.kv.key import KeyMaker
    from ragkv.kv.remote import ObjectStore
    from ragkv.kv.store import KVStore


def request_lost_prefixes(
    database: Database, kv_store: "KVStore", kv_remote: "ObjectStore | None", keys_of: "Callable[[str], KeyMaker]"
) -> int:
    """Request the KV of one document of each tenant that has KV and whose prefix is neither on this disk nor in the
    object store: the worker that takes it computes the prefix too. Returns how many. Raises Unavailable.

    With an object store, a prefix that is not there may be on another host's disk until its tenant's first upload.
    """
    with database.reading() as session:
        with_kv = tenants_with_kv() if kv_remote is None else tenants_with_remote()
        tenants = session.scalars(with_kv).all()
    requested = 0
    for tenant_id in tenants:
        key = keys_of(tenant_id).prefix()
        if key in kv_store or (kv_remote is not None and kv_remote.has(key)):
            continue
        with database.writing() as session:
            document_id = session.scalar(document_with_kv(tenant_id))
            requested += document_id is not None and request_kv(session, tenant_id, document_id, KEEP)
    return requested
