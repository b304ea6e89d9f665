"""`ragkv status`: what there is, and where it lies."""

import json
import os
from contextlib import closing
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ragkv.db.documents import count_by_status
from ragkv.db.kv_entries import kv_totals
from ragkv.errors import Unavailable
from ragkv.observe.heartbeats import Heartbeats, this_machine
from ragkv.parts import Parts
from ragkv.redis_door import connect
from ragkv.settings import Settings


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--worker", is_flag=True, help="Exit with 0 if a worker on this machine reports and moves on, else with 1."
)
def status(as_json: bool, worker: bool) -> None:
    """Show documents by status, kept KV, models and paths."""
    settings = Settings.from_env(os.environ)
    if worker:
        _check_worker(settings)
        return
    with closing(Parts(settings)) as parts:
        facts = collect(parts)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        _show(facts)


def collect(parts: Parts) -> dict[str, Any]:
    """Counts and places. Works before anything was ingested."""
    parts.prepare_database()
    settings = parts.settings
    with parts.database.reading() as session:
        counted = session.execute(count_by_status()).all()
        files, num_bytes = session.execute(kv_totals()).one()
    return {
        "documents": {str(state): documents for state, documents, _, _ in counted},
        "chunks": sum(int(chunks) for _, _, chunks, _ in counted),
        "tokens": sum(int(tokens) for _, _, _, tokens in counted),
        "kv_files": files,
        "kv_bytes": int(num_bytes),
        "model": settings.model,
        "encoder": settings.encoder,
        "engine": settings.engine_url or "in this process",
        "database": parts.database.engine.url.render_as_string(hide_password=True),
        "queue": "Redis by URL" if settings.redis_url else "embedded Redis",
        "index": "Qdrant server" if settings.qdrant_url else "in memory, from the database",
        "data_dir": str(settings.data_dir.absolute()),
    }


def _check_worker(settings: Settings) -> None:
    with closing(connect(settings)) as client:
        here = [beat for beat in Heartbeats(client).read() if beat.worker.startswith(this_machine())]
    if not any(beat.is_working for beat in here):
        raise Unavailable(f"no worker on this machine reports and moves on ({len(here)} known)")


def _show(facts: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _shown(name, value))
    Console(soft_wrap=True).print(table, highlight=False, markup=False)


def _shown(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {state}" for state, count in value.items()) or "none yet"
    if name == "kv_bytes" and isinstance(value, int):
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,}" if isinstance(value, int) else str(value)
