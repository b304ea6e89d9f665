"""A document of many chunks, and the KV and the uses of chunks."""

from ragkv.service.parts import Parts
from ragkv.service.questions.journal import KVUse

LONG = b"# Engines\n\n" + b"".join(
    b"Engine number %d stood in hall %d of the works.\n\n" % (i, i % 7) for i in range(60)
)


def use(parts: Parts, *chunk_ids: str) -> None:
    """Count these chunks as used, as answers do."""
    noted = KVUse(parts.database)
    noted.note(chunk_ids)
    noted.write()


def kv_files(parts: Parts) -> set[str]:
    """The chunks' KV; the prefix's own is not counted."""
    return set(parts.kv_store.keys()) - {parts.keys_of(parts.default_collection.tenant_id).prefix()}
