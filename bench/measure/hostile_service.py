"""Hostile files uploaded to the service: each searchable or `failed` with a reason, the worker alive, the next document
searchable.

`python -m bench.measure.hostile_service --patience 300`, as a Markdown table. The service over HTTP, Redis, the
database, the Celery worker and its parsers are real and have the default limits; KV is not kept, and no engine is
started. A document that is still in work when the patience ends is deleted. Exits with 1 unless every hostile document
ended, none took the worker with it, and every honest one became searchable.
"""

import argparse
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from api.worker_process import WorkerProcess
from bench.measure.uploads import Beside, running
from ragkv.kv.rule import KVWhen
from ragkv.models import model_folder
from ragkv.settings import Settings
from tests.conftest import CACHE
from tests.support.echo_engine import EchoEngine
from tests.support.hostile_files import Made, twenty
from tests.support.over_http import upload

HONEST_S = 120.0
LOOKS_EVERY_S = 0.2


class Memory(Beside):
    """The most memory that a process and its children took together, shared pages counted once."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid
        self.most = 0

    def run(self) -> None:
        while not self.stopping.wait(LOOKS_EVERY_S):
            with suppress(psutil.Error):
                process = psutil.Process(self._pid)
                total = 0
                for member in (process, *process.children(recursive=True)):
                    with suppress(psutil.Error):
                        total += member.memory_full_info().pss
                self.most = max(self.most, total)


@dataclass(frozen=True)
class Seen:
    """One document at its end, or when the patience did."""

    document: dict[str, Any]
    seconds: float

    @property
    def is_searchable(self) -> bool:
        """Without KV this is the end."""
        return bool(self.document["status"] == "searchable")

    @property
    def is_ended(self) -> bool:
        return self.is_searchable or self.document["status"] == "failed"

    @property
    def outcome(self) -> str:
        one = self.document
        if one["status"] == "failed":
            return f"failed: {one['error'].removeprefix(one['name'] + ': ')}"
        if self.is_searchable:
            return f"searchable: {one['chunks']:,} chunks"
        return f"deleted while {one['status']}, stage {one['stage']}, {one['done']:,} of {one['total']:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patience", type=float, default=300.0, help="seconds a hostile document may take")
    parser.add_argument("--only", default="", help="files whose names contain this")
    given = parser.parse_args()
    files = {name: make for name, make in twenty().items() if given.only in name}
    with tempfile.TemporaryDirectory(prefix="ragkv-hostile-") as folder:
        model = str(model_folder(Settings(data_dir=CACHE)))
        settings = Settings(data_dir=Path(folder) / "data", model=model, kv_when=KVWhen.NEVER)
        with running(settings, EchoEngine(settings)) as (_, client, worker):
            first = honest(client, 0)  # models are loaded before anything is measured
            assert first.is_searchable, first.outcome
            faults = attack(files, client, worker, given.patience)
    print(*(f"FAULT: {fault}" for fault in faults), sep="\n")
    sys.exit(bool(faults))


def attack(files: dict[str, Made], client: httpx.Client, worker: WorkerProcess, patience_s: float) -> list[str]:
    """Upload each, print its row, delete it with what came of it, and have an honest one read. Returns what went
    wrong."""
    print(
        "| file | bytes | outcome | seconds | most memory, MiB | same worker | next file searchable |\n|---|---|---|---|---|---|---|"
    )
    faults = []
    for number, (name, make) in enumerate(files.items(), start=1):
        body, before = make(), worker.pid
        assert before is not None
        with Memory(before) as memory:
            one = finished(upload(client, body, name), client, patience_s)
        client.delete(f"/v1/documents/{one.document['id']}").raise_for_status()
        after = honest(client, number)
        lives = worker.pid == before and psutil.pid_exists(before)
        print(
            f"| {name} | {len(body):,} | {one.outcome} | {one.seconds:.1f} | {memory.most / 2**20:,.0f} "
            f"| {'yes' if lives else 'NO'} | {after.seconds:.1f} s |",
            flush=True,
        )
        faults += [f"{name}: its worker ended"] * (not lives)
        faults += [f"{name}: the next is {after.outcome}"] * (not after.is_searchable)
        faults += [f"{name}: {one.outcome}"] * (not one.is_ended)
    return faults


def honest(client: httpx.Client, number: int) -> Seen:
    body = f"# Report {number}\n\nThe inspector found {number} loose bolts.\n".encode()
    return finished(upload(client, body, f"{number}.md"), client, HONEST_S)


def finished(uploaded: httpx.Response, client: httpx.Client, patience_s: float) -> Seen:
    """The document at its end, or once it has taken too long."""
    document_id, began = uploaded.raise_for_status().json()["id"], time.monotonic()
    while True:
        found = client.get(f"/v1/documents/{document_id}").raise_for_status().json()
        one = Seen(found, time.monotonic() - began)
        if one.is_ended or one.seconds > patience_s:
            return one
        time.sleep(LOOKS_EVERY_S)


if __name__ == "__main__":
    main()
