"""Ingest files and folders in this process, without a queue, and show the progress."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ingest.parts import IngestParts
from ingest.pipeline import MAX_ATTEMPTS, IngestOutcome, ingest_document
from ingest.turn import READING_PAGES
from ragkv.cli.opened import STARTING, note_change, silence_libraries
from ragkv.engine.door import is_open
from ragkv.engine.loop import EngineLoop
from ragkv.errors import NotFound, RagKVError, Rejected
from ragkv.service.base.tenants import CollectionRef, collection_ref
from ragkv.service.collections.collections import make_collection
from ragkv.service.documents.changes import store_path
from ragkv.service.documents.documents import DocumentView, document_view
from ragkv.service.documents.mail_attachments import waiting_attachments
from ragkv.service.kv_admin.upload import Uploader
from ragkv.service.parts import Parts

log = logging.getLogger(__name__)

IN_HAND = "another process is reading it now"


@dataclass
class IngestTally:
    """Files by outcome. replaced: those that changed, and took the place of what was made of them before."""

    read: int = 0
    replaced: int = 0
    known: int = 0
    failures: list[tuple[Path, str]] = field(default_factory=list)


def read_paths(paths: Sequence[Path], parts: Parts, console: Console, collection: str) -> IngestTally:
    """Run `ragkv ingest`. KV is computed by the engine at RAGKV_INGEST_ENGINE_URL, that of a service that runs over
    this data folder, or one that is started if any is missing. A collection that is missing is made."""
    files = list(find_files(paths))
    silence_libraries()
    parts.prepare(lambda line: console.print(line, markup=False))
    tenant_id, database = parts.default_collection.tenant_id, parts.database
    try:
        ref = collection_ref(tenant_id, collection, database)
    except NotFound:
        collection_id = make_collection(tenant_id, collection, database).id
        note_change(tenant_id, "Create a collection", "ingest", [collection_id], database)
        ref = collection_ref(tenant_id, collection_id, database)
    with ExitStack() as stack:
        if parts.settings.ingest_engine_url is not None or is_open(parts.settings.engine_socket):
            ingest = IngestParts(parts, engine=parts.prefill_engine)
        else:
            engine = stack.enter_context(EngineLoop(parts.engine, lambda: console.print(STARTING, highlight=False)))
            ingest = IngestParts(parts, run=engine.run)
        return read_all(files, ingest, console, ref)


def read_all(
    files: Sequence[Path], ingest: IngestParts, console: Console, ref: CollectionRef | None = None
) -> IngestTally:
    """Ingest files with prepared parts, and upload their KV."""
    parts = ingest.parts
    parts.refresh_outdated()
    with closing(ingest.parser):
        tally = ingest_files(files, ingest, console, ref)
    if (failed := Uploader(parts).upload_due().failed) > 0:
        console.print(f"{failed} KV files are not in the object store yet: a worker will try again", markup=False)
    return tally


def find_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Files as given, and for folders all files inside except hidden ones, sorted by name.

    Raises Rejected if there is none.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_file():
            files.append(path)
        else:
            inside = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
            files += [path / file for file in inside if not any(part.startswith(".") for part in file.parts)]
    if not files:
        raise Rejected(f"there is no file in {', '.join(map(str, paths))}")
    return iter(dict.fromkeys(files))


def ingest_files(
    files: Sequence[Path], ingest: IngestParts, console: Console, ref: CollectionRef | None = None
) -> IngestTally:
    """Ingest each file into a collection, the default one without `ref`. A failure is recorded and does not affect the
    others."""
    tally, ref = IngestTally(), ref or ingest.parts.default_collection
    with ExitStack() as stack:
        watch = stack.enter_context(_Bars(console, len(files))) if console.is_terminal else _Lines(console, len(files))
        for number, file in enumerate(files):
            watch.begin(number, file)
            try:
                _ingest_file(file, ref, ingest, watch, tally)
            except (RagKVError, OSError) as error:
                tally.failures.append((file, str(error)))
            except Exception as error:
                log.exception("%s was not read", file)
                tally.failures.append((file, f"{type(error).__name__}: {error}"))
    return tally


def _ingest_file(
    file: Path, ref: CollectionRef, ingest: IngestParts, watch: "_Bars | _Lines", tally: IngestTally
) -> None:
    parts = ingest.parts
    stored = store_path(ref, file, parts.intake, parts.removal)
    document_id = stored.document_id
    if stored.earlier == "kept":
        watch.note(f"{file}: it changed; what was made of it before stays, because other files or uploads have it too")
    earlier = document_view(ref.tenant_id, document_id, parts.database)
    outcome = _until_done(document_id, ingest, watch)
    after = document_view(ref.tenant_id, document_id, parts.database)
    if outcome is IngestOutcome.FAILED:
        raise Rejected(after.outdated or after.error or "it failed")
    if outcome is IngestOutcome.READY:
        tally.read += 1
        tally.replaced += stored.earlier == "replaced"
        _note_left_out(file, after, watch)
    elif earlier.status == "ready" or earlier.kv_evicted:
        tally.known += 1
    else:
        raise Rejected(IN_HAND)
    if stored.earlier == "replaced":
        watch.note(f"{file}: it changed, and replaces what was made of it before")
    _ingest_attachments(file, document_id, ingest, watch, tally)


def _ingest_attachments(
    mail: Path, mail_id: str, ingest: IngestParts, watch: "_Bars | _Lines", tally: IngestTally
) -> None:
    """Ingest the files attached to a mail, and those attached to mails among them."""
    tenant_id, database = ingest.parts.default_collection.tenant_id, ingest.parts.database
    for document_id in waiting_attachments(mail_id, database):
        outcome = _until_done(document_id, ingest, watch)
        view = document_view(tenant_id, document_id, database)
        if outcome is IngestOutcome.FAILED:
            tally.failures.append((mail / view.name, view.error or "it failed"))
        elif outcome is IngestOutcome.READY:
            tally.read += 1
            _note_left_out(mail / view.name, view, watch)
            _ingest_attachments(mail / view.name, document_id, ingest, watch, tally)


def _note_left_out(file: Path, view: DocumentView, watch: "_Bars | _Lines") -> None:
    if view.left_out:
        watch.note(f"{file}: {view.left_out}")


def _until_done(document_id: str, ingest: IngestParts, watch: "_Bars | _Lines") -> IngestOutcome:
    """Retry here as often as a worker would: there is no queue to do it."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return ingest_document(document_id, ingest, watch.progress)
        except RagKVError as error:
            watch.note(f"trying again: {error}")
        except Exception as error:
            log.warning("an unexpected error with document %s", document_id, exc_info=error)
            watch.note(f"trying again: {type(error).__name__}: {error}")
    return ingest_document(document_id, ingest, watch.progress)


class _Bars:
    """Progress on a terminal: one bar for the files, one for the current file's stage."""

    def __init__(self, console: Console, num_files: int) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self._files = self._bars.add_task("files", total=num_files)
        self._stage: TaskID = self._bars.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def begin(self, number: int, file: Path) -> None:
        self._bars.update(self._files, completed=number, description=file.name[:40])

    def note(self, line: str) -> None:
        self._bars.console.print(line, markup=False)

    def progress(self, stage: str, done: int, total: int) -> None:
        self._bars.update(
            self._stage,
            description=f"{stage} ({'pages' if stage == READING_PAGES else 'tokens'})",
            completed=done,
            total=total or None,
        )


class _Lines:
    """Progress elsewhere: one line a file."""

    def __init__(self, console: Console, num_files: int) -> None:
        self._console = console
        self._num_files = num_files

    def begin(self, number: int, file: Path) -> None:
        self.note(f"[{number + 1}/{self._num_files}] {file}")

    def note(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Ignored: a line for every batch would be noise."""
