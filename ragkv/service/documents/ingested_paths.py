"""Files that are ingested by path, on the command line: one that changed replaces what was made of its path before."""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragkv.errors import Conflict, NotFound
from ragkv.service.base.file_tables import IngestedPathRow
from ragkv.service.base.tenancy import CollectionRef
from ragkv.service.documents.changes import store_exchange
from ragkv.service.documents.documents import delete_documents, find_document, revive, store_document
from ragkv.service.documents.intake import Intake
from ragkv.service.documents.path_statements import document_of_path, is_of_path_alone
from ragkv.service.documents.removal import Removal

EarlierOutcome = Literal["none", "replaced", "kept"]
"""The text made of the same path earlier: there is none, or the same; it is replaced; it stays, because other paths, an
attached file, a data source or a mail have its document too."""


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The document of a path, and the outcome for the earlier one."""

    document_id: str
    earlier: EarlierOutcome


def store_path(ref: CollectionRef, path: Path, intake: Intake, removal: Removal) -> StoredPath:
    """`store_document`, of the file at a path, in place of the document that was made of this path before. To be
    ingested by the caller. Raises like `store_document`, and OSError."""
    path_sha256 = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()  # noqa: PTH100 - `..` counts, links do not
    with intake.database.reading() as session:
        earlier_id = session.scalars(document_of_path(ref.collection_id, path_sha256)).one_or_none()
    if earlier_id is not None:
        with path.open("rb") as body, suppress(Conflict, NotFound):
            alone = is_of_path_alone(path_sha256)
            if store_exchange(ref.tenant_id, earlier_id, None, body, intake, removal, alone).is_new:
                return StoredPath(earlier_id, "replaced")
            with intake.database.writing() as session:
                revive(session, find_document(session, ref.tenant_id, earlier_id, lock=True), intake.index_fingerprint)
            return StoredPath(earlier_id, "none")
    with path.open("rb") as body:
        document_id = store_document(ref, path.name, body, intake, by_path=True).document_id
    outcome: EarlierOutcome = "none"
    if earlier_id is not None and earlier_id != document_id:
        still = is_of_path_alone(path_sha256)
        deleted = delete_documents(ref.tenant_id, ref.collection_id, [earlier_id], removal, still)
        outcome = "replaced" if deleted else "kept"
    with intake.database.writing() as session:
        session.merge(
            IngestedPathRow(collection_id=ref.collection_id, path_sha256=path_sha256, document_id=document_id)
        )
    return StoredPath(document_id, outcome)
