"""`ragkv documents`: list, replace and delete documents."""

from pathlib import Path

import click
from rich.console import Console

from ragkv.cli import Group
from ragkv.cli.opened import note_change, opened_tenant
from ragkv.service.base.page import MAX_PAGE
from ragkv.service.base.status import Status
from ragkv.service.base.tenants import DEFAULT_TENANT, collection_ref
from ragkv.service.documents.changes import replace_document
from ragkv.service.documents.documents import delete_document, document_view
from ragkv.service.documents.listing import DocumentFilter, list_documents
from ragkv.text import plural

TENANT = click.option("--tenant", default=DEFAULT_TENANT, help="Tenant of the document.")
ID = click.argument("document_id", metavar="ID")


@click.group(cls=Group)
def documents() -> None:
    """List, replace and delete documents. `ragkv ingest` adds them."""


@documents.command("list")
@TENANT
@click.option("--collection", help="Id or name of a collection.  [default: all]")
@click.option("--name", help="Part of the document's name, in any case.")
@click.option(
    "--status", type=click.Choice([status.value for status in Status]), help="Only documents with this status."
)
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, help="Maximum number of documents.")
@click.option("--cursor", help="Cursor of the next page, printed below a page.")
def show(
    tenant: str, collection: str | None, name: str | None, status: str | None, limit: int, cursor: str | None
) -> None:
    """List documents, newest first."""
    console = Console(soft_wrap=True)
    with opened_tenant(tenant) as (parts, tenant_id):
        ref = None if collection is None else collection_ref(tenant_id, collection, parts.database)
        document_filter = DocumentFilter(
            tenant_id, None if ref is None else ref.collection_id, None if status is None else Status(status), name
        )
        page = list_documents(document_filter, limit, cursor, parts.database)
    for document in page.items:
        problem = document.outdated or document.error
        line = f"{document.id}  {document.status:10}  {document.name}{f': {problem}' if problem else ''}"
        console.print(line, highlight=False, markup=False)
    if page.next is not None:
        click.echo(f"more: --cursor {page.next}", err=True)


@documents.command()
@ID
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@TENANT
def replace(document_id: str, file: Path, tenant: str) -> None:
    """Replace a document's file with FILE. Its id and metadata are kept.

    A worker reads it; questions are answered from the earlier file until then.
    """
    with opened_tenant(tenant) as (parts, tenant_id), file.open("rb") as body:
        old = document_view(tenant_id, document_id, parts.database)

        def note() -> None:
            note_change(tenant_id, "Replace a document's file", "documents replace", [document_id], parts.database)

        removal = parts.removal.noting(note)
        after = replace_document(tenant_id, document_id, file.name, body, parts.intake, removal)
    if after.status is Status.ACCEPTED:
        click.echo(f"{document_id}: {old.name} is replaced by {after.name}, which a worker will read")
    else:
        click.echo(f"{document_id}: {after.name} has the same bytes; it is {after.status}")


@documents.command()
@ID
@TENANT
@click.option("--yes", is_flag=True, help="Delete without asking.")
def delete(document_id: str, tenant: str, *, yes: bool) -> None:
    """Delete a document and everything made from it, the attachments of a mail too."""
    with opened_tenant(tenant) as (parts, tenant_id):
        document = document_view(tenant_id, document_id, parts.database)
        if not yes:
            click.confirm(f"Delete {document.name} and everything made from it?", abort=True)
        deleted = delete_document(tenant_id, document_id, parts.removal)
        note_change(tenant_id, "Delete a document", "documents delete", deleted, parts.database)
    also = f", and {plural(len(deleted) - 1, 'attachment')}" if len(deleted) > 1 else ""
    click.echo(f"{document.name} is deleted{also}")
