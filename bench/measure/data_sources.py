"""A data source of some hundred files through its life, and a sync of 10,000 that did not change.

`python -m bench.measure.data_sources --files 300 --many 10000`, with `--store s3` over a real S3 protocol (moto). The
process of one sync is killed in its middle. Exits with 1 unless every count and every document is as it must be.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import msgspec
import obstore
from moto.server import ThreadedMotoServer
from sqlalchemy import select, update

from ragkv.ids import new_id, utc_now
from ragkv.object_store import StoreLocation, opened
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.tables import DataSourceFileRow, DataSourceRow, DocumentRow
from ragkv.service.base.tenants import DEFAULT_TENANT
from ragkv.service.data_sources.data_sources import add_data_source, data_source_view
from ragkv.service.data_sources.folder import SETTLED_S
from ragkv.service.data_sources.location import ListedFile, location_of
from ragkv.service.data_sources.opening import files_of
from ragkv.service.data_sources.syncing import sync_now
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.conftest import CACHE, model_folder

CHANGES = 5
BROKEN = 3


@dataclass
class Life:
    """A data source, what its files contain, and what its syncs must count."""

    parts: Parts
    location: str
    put: Callable[[str, bytes], Any]
    drop: Callable[[str], Any]
    there: dict[str, bytes] = field(default_factory=dict)
    right: bool = True
    source_id: str = ""

    def connect(self) -> None:
        ref = self.parts.default_collection
        made = add_data_source(
            ref.tenant_id, ref.collection_id, self.location, 15, self.parts.database, self.parts.settings
        )
        self.source_id = made.id

    def write(self, key: str, content: bytes) -> None:
        self.put(key, content)
        self.there[key] = content

    def delete(self, key: str) -> None:
        self.drop(key)
        del self.there[key]

    def sync(self, what: str, **expected: int) -> None:
        """Sync, and hold counts and documents against what must be."""
        began, busy = time.perf_counter(), time.process_time()
        tally = sync_now(
            self.source_id, self.parts.intake, self.parts.removal, self.parts.worker_counters, lambda tally: True
        )
        took_s, busy_s = time.perf_counter() - began, time.process_time() - busy
        names = ("listed", "added", "changed", "deleted", "unchanged", "unreadable", "skipped")
        counted = {name: getattr(tally, name) for name in names}
        with self.parts.database.reading() as session:
            rows = session.execute(select(DocumentRow.origin, DocumentRow.tenant_id, DocumentRow.sha256)).all()
        kept = {
            str(origin).removeprefix(f"{self.location}/"): self.parts.files.find(*where).read_bytes()
            for origin, *where in rows
        }
        is_right = kept == {key: content for key, content in self.there.items() if content}
        is_right &= len(rows) == len(kept) and all(counted[name] == number for name, number in expected.items())
        self.right &= is_right
        shown = ", ".join(f"{number:,} {name}" for name, number in counted.items() if number)
        print(
            f"{what}: {took_s:.1f} s ({busy_s:.1f} s of one core), {shown}: {'right' if is_right else f'WRONG, expected {expected}'}",
            flush=True,
        )

    def killed_sync(self, after: int) -> None:
        """A sync in a process of its own, killed once it has noted so many files. Its lease is made to lapse."""
        settings = msgspec.json.encode(self.parts.settings, enc_hook=str).decode()
        command = [sys.executable, "-m", "bench.measure.data_sources", "--sync", self.source_id, "--settings", settings]
        process = subprocess.Popen(command)
        while self.noted() < after and process.poll() is None:
            time.sleep(0.25)
        process.send_signal(signal.SIGKILL)
        process.wait()
        print(f"killed with {self.noted()} of {len(self.there)} files noted", flush=True)
        with self.parts.database.writing() as session:
            session.execute(update(DataSourceRow).values(lease_until=utc_now() - timedelta(seconds=1)))

    def noted(self) -> int:
        tenant_id = self.parts.default_collection.tenant_id
        return data_source_view(tenant_id, self.source_id, self.parts.database).files.waiting


def live(life: Life, files: int) -> None:
    """From the first sync, killed in its middle, to the last."""
    for number in range(files):
        life.write(f"{number % 7}/{number}.md", f"# Note {number}\n\nText of note {number}.\n".encode())
    for number in range(BROKEN):
        life.write(f"broken {number}.md", b"")
    life.put("film.mp4", b"\0\0\0\x18ftyp")
    time.sleep(SETTLED_S + 0.1)
    life.connect()
    life.killed_sync(files // 2)
    life.sync("first sync, gone on with", listed=files + BROKEN + 1, skipped=1)
    life.sync("no change", unchanged=files + BROKEN, unreadable=0)
    for number in range(CHANGES):
        life.write(f"{number % 7}/{number}.md", f"# Changed {number}\n".encode())
        life.delete(f"{(number + CHANGES) % 7}/{number + CHANGES}.md")
        life.write(f"new {number}.md", f"# New {number}\n".encode())
    time.sleep(SETTLED_S + 0.1)
    expected = {"added": CHANGES, "changed": CHANGES, "deleted": CHANGES, "unchanged": files - 2 * CHANGES + BROKEN}
    life.sync("5 changed, 5 deleted, 5 new", **expected)
    for number in range(BROKEN):
        life.write(f"broken {number}.md", f"# Mended {number}\n".encode())
    time.sleep(SETTLED_S + 0.1)
    life.sync("3 mended", added=BROKEN, unchanged=files, unreadable=0)


def grow(life: Life, many: int) -> None:
    """Many files, noted as if a sync had read them, and syncs in which none changed."""
    for number in range(many):
        life.write(f"many/{number % 100}/{number}.md", f"# Many {number}\n".encode())
    time.sleep(SETTLED_S + 0.1)
    note_all(life)
    life.sync("no change", added=0, changed=0, deleted=0, unchanged=len(life.there))
    life.sync("no change", added=0, changed=0, deleted=0, unchanged=len(life.there))


def note_all(life: Life) -> None:
    parts, ref = life.parts, life.parts.default_collection
    files = files_of(location_of(life.location), DEFAULT_TENANT, parts.settings)
    with parts.database.writing() as session:
        known = set(session.scalars(select(DataSourceFileRow.key)))
        source = {"tenant_id": ref.tenant_id, "data_source_id": life.source_id}
        noted: list[tuple[ListedFile, str]] = []
        for file in list(files.listed()):
            if file.key not in known and file.key in life.there:
                content = life.there[file.key]
                digest = sha256(content).hexdigest()
                document = DocumentRow(
                    id=new_id(), name=file.key, sha256=digest, num_bytes=len(content), collection_id=ref.collection_id,
                    origin=f"{life.location}/{file.key}", **source,
                )  # fmt: skip
                path = parts.files.path(ref.tenant_id, digest)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                session.add(document)
                noted.append((file, document.id))
        session.flush()
        session.add_all(
            DataSourceFileRow(
                key=file.key,
                document_id=document_id,
                version=file.version,
                num_bytes=file.num_bytes,
                seen_in=0,
                **source,
            )
            for file, document_id in noted
        )


def begun(kind: str, folder: Path, stack: ExitStack) -> Life:
    settings = Settings(data_dir=folder / "data", model=str(model_folder(Settings(data_dir=CACHE))))
    if kind == "folder":
        location = folder / "inbox"
        settings = msgspec.structs.replace(settings, data_sources_allowed=str(folder))

        def put(key: str, content: bytes) -> None:
            (location / key).parent.mkdir(parents=True, exist_ok=True)
            (location / key).write_bytes(content)

        drop: Callable[[str], Any] = lambda key: (location / key).unlink()  # noqa: E731 - beside the other
        place = str(location)
    else:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        stack.callback(server.stop)
        host, port = server.get_host_and_port()
        bucket = f"bucket-{uuid.uuid4().hex}"
        httpx.put(f"http://{host}:{port}/{bucket}").raise_for_status()
        place = f"s3://{bucket}/some/prefix"
        given = StoreLocation(place, f"http://{host}:{port}", "us-east-1", "key", "secret")
        names = ("endpoint", "region", "access_key", "secret_key")
        secrets = {f"data_sources_{name}": getattr(given, name) for name in names}
        settings = msgspec.structs.replace(settings, data_sources_allowed=place, **secrets)
        store = opened(given)
        put = lambda key, content: obstore.put(store, key, content)  # type: ignore[assignment]  # noqa: E731 - beside the other
        drop = lambda key: obstore.delete(store, key)  # noqa: E731 - beside the other
    settings.data_dir.mkdir(parents=True)
    redis = EmbeddedRedis(settings)
    redis.start()
    stack.callback(redis.stop)
    parts = Parts(settings)
    stack.callback(parts.close)
    parts.prepare()
    return Life(parts, place, put, drop)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--store", choices=["folder", "s3"], default="folder")
    options.add_argument("--files", type=int, default=300)
    options.add_argument("--many", type=int, default=0)
    options.add_argument("--sync", help=argparse.SUPPRESS)
    options.add_argument("--settings", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    logging.disable(logging.WARNING)
    if chosen.sync:
        given = msgspec.json.decode(chosen.settings)
        parts = Parts(msgspec.convert(given, Settings, dec_hook=lambda kind, value: kind(value)))
        sync_now(chosen.sync, parts.intake, parts.removal, parts.worker_counters, lambda tally: True)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragkv-sources-")))
        os.umask(0o077)
        life = begun(chosen.store, folder, stack)
        live(life, chosen.files)
        if chosen.many:
            grow(life, chosen.many)
        print(f"{chosen.store}: {'all right' if life.right else 'WRONG'}")
        sys.exit(not life.right)


if __name__ == "__main__":
    main()
