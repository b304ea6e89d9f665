"""`ragkv status`: show documents, stored KV, models and paths."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ragkv.cli.opened import opened_parts
from ragkv.service.documents.statements import count_by_status
from ragkv.service.kv_admin.entry_statements import kv_totals
from ragkv.service.parts import Parts
from ragkv.urls import without_secrets


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(as_json: bool) -> None:
    """Show documents by status, stored KV, models and paths."""
    with opened_parts() as parts:
        facts = collect(parts)
    if as_json:
        click.echo(json.dumps(facts))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        if isinstance(value, dict):
            shown = ", ".join(f"{count} {state}" for state, count in value.items()) or "none yet"
        elif name == "kv_bytes":
            shown = f"{value / 2**20:,.1f} MiB"
        table.add_row(name.replace("_", " "), shown)
    Console(soft_wrap=True).print(table, highlight=False, markup=False)


def collect(parts: Parts) -> dict[str, Any]:
    """Collect counts and paths. Works before the first ingestion."""
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
        "engine": without_secrets(settings.engine_url) if settings.engine_url else "in this process",
        "database": parts.database.engine.url.render_as_string(hide_password=True),
        "queue": "Redis by URL" if settings.redis_url else "embedded Redis",
        "index": "Qdrant server" if settings.qdrant_url else "in memory, from the database",
        "sign_in": "by API key" if parts.sign_in is None else parts.sign_in.summary,
        "data_dir": str(settings.data_dir.absolute()),
    }
