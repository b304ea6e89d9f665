"""`ragkv kv`: stored KV by collection, the rules for it, and pin, evict, rebuild, convert, warm and verify."""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import get_args

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ragkv.cli import Group
from ragkv.cli.opened import COLLECTION, opened_parts, opened_tenant, tenant_id_of
from ragkv.cli.progress import shown
from ragkv.kv.rule import MOST, CompressionMethod, KVWhen
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_TENANT, collection_ref
from ragkv.service.documents.documents import document_view
from ragkv.service.kv_admin import usage as admin
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.eviction import evict as evict_kv
from ragkv.service.kv_admin.rules import MAX_USES, Compress, Format, KVRulePatch, When, Write, change_rule
from ragkv.service.kv_admin.verify import verify as verify_kv
from ragkv.service.kv_admin.warm import warm as warm_kv
from ragkv.service.parts import Parts
from ragkv.service.statistics.views import HitRate, TierLoads

TENANT = click.option("--tenant", default=DEFAULT_TENANT, help="Tenant that owns the KV.")


OwnerIn = Callable[[Database], KVOwner]


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name whose KV: a document's, a collection's or all of the tenant's. The command takes `owner_in`,
    which finds that owner in the database."""

    @TENANT
    @click.option("--collection", help="Id or name of a collection: only its KV.")
    @click.option("--document", help="Id of a document: only its KV.")
    @wraps(command)
    def with_owner(tenant: str, collection: str | None, document: str | None) -> None:
        command(partial(_owner, tenant, collection, document))

    return with_owner


@click.group(cls=Group)
def kv() -> None:
    """Show stored KV, and pin, evict, rebuild, convert, warm or verify it.

    Evicted KV is computed again when a question needs it: that answer takes longer.
    """


@kv.command()
@TENANT
def stats(tenant: str) -> None:
    """Show the KV of a tenant by tier, and how it was used in the last 24 hours."""
    with opened_tenant(tenant) as (parts, tenant_id):
        seen = admin.overview(tenant_id, parts.database, parts.settings, parts.kv_store, parts.default_collection)
    disk, device, remote = seen.tiers.disk, seen.tiers.device, seen.tiers.remote
    limit = f" of {decimal(seen.limit_bytes)}" if seen.limit_bytes else ""
    table = Table(box=None, show_header=False)
    table.add_row("disk", f"{decimal(disk.bytes)}{limit}, {disk.files:,} files, {disk.tokens:,} tokens")
    if remote is not None:
        table.add_row("object store", f"{decimal(remote.bytes)}, {remote.files:,} files, {remote.tokens:,} tokens")
    table.add_row(
        "memory", "unknown" if seen.tiers.host.bytes is None else f"{decimal(seen.tiers.host.bytes)} of these files"
    )
    unknown = "at RAGKV_ENGINE_URL" if parts.settings.engine_url else "what its GPU has free, while it runs"
    capacity = unknown if device.capacity_bytes is None else f"{decimal(device.capacity_bytes)} while it runs"
    table.add_row("engine", capacity)
    table.add_row("last used", f"{seen.last_used_at:%Y-%m-%d %H:%M}" if seen.last_used_at else "never")
    console = Console(soft_wrap=True)
    console.print(table, highlight=False)
    if seen.hit_rate is not None:
        console.print("", _use_of(seen.hit_rate, seen.loads), sep="\n", highlight=False)


@kv.command("ls")
@TENANT
def show(tenant: str) -> None:
    """List the KV of a tenant by collection. KV that two collections share counts in both."""
    with opened_tenant(tenant) as (parts, tenant_id):
        collections = list(admin.kv_of_collections(tenant_id, parts.database))
    table = Table("id", "collection", "files", "tokens", "size", "pinned", box=None)
    for collection in collections:
        table.add_row(
            collection.id,
            collection.name,
            f"{collection.files:,}",
            f"{collection.tokens:,}",
            decimal(collection.bytes),
            "yes" if collection.pinned else "",
        )
    Console(soft_wrap=True).print(table, highlight=False, markup=False)


@kv.command()
@owner_options
def pin(owner_in: OwnerIn) -> None:
    """Keep the KV of a collection or a document from being evicted to make room."""
    _pin(owner_in, pinned=True)


@kv.command()
@owner_options
def unpin(owner_in: OwnerIn) -> None:
    """Let the KV of a collection or a document be evicted again."""
    _pin(owner_in, pinned=False)


def _pin(owner_in: OwnerIn, *, pinned: bool) -> None:
    with opened_parts(Parts.prepare_database) as parts:
        owner = owner_in(parts.database)
        if owner.collection_id is None and owner.document_id is None:
            raise click.UsageError("name a --collection or a --document")
        held = admin.pin(owner, parts.database, parts.settings, pinned=pinned)
    click.echo(f"{'pinned' if pinned else 'unpinned'}: {held.files:,} files, {decimal(held.bytes)}")


@kv.command()
@owner_options
@click.confirmation_option(prompt="Evict it? It is computed again when a question needs it")
def evict(owner_in: OwnerIn) -> None:
    """Remove KV, pinned or not. KV that others share is kept."""
    with opened_parts(Parts.prepare_database) as parts:
        freed = evict_kv(owner_in(parts.database), parts.database, parts.kv_store, parts.worker_counters)
    click.echo(f"evicted: {freed.files:,} files, {decimal(freed.bytes)}")


@kv.command()
@owner_options
def rebuild(owner_in: OwnerIn) -> None:
    """Have the workers compute evicted and lost KV before a question needs it."""
    with opened_parts(Parts.prepare_database) as parts:
        owner = owner_in(parts.database)
        if owner.document_id is not None:
            admin.rebuild_document(owner.tenant_id, owner.document_id, parts.database, parts.queue)
            click.echo("queued: 1 document")
            return
        queued = admin.rebuild_missing(owner, parts.database, parts.kv_store, parts.queue)
    click.echo(f"queued: {queued.documents:,} documents")


@kv.command()
@TENANT
@COLLECTION
@click.option("--to", "kv_format", type=click.Choice(get_args(Format)), required=True, help="The format.")
def convert(tenant: str, collection: str, kv_format: Format) -> None:
    """Keep the KV of a collection in another format. Workers convert the existing KV, which is used until then.

    From bf16 no model is needed; from a quantised format, KV is computed again.
    """
    with opened_parts(Parts.prepare) as parts:
        owner = _owner(tenant, collection, None, parts.database)
        stored_format = change_rule(owner, KVRulePatch(format=kv_format), parts).format
    click.echo(f"{collection}: the workers keep KV in {stored_format}, and convert the existing KV")


@kv.command()
@TENANT
@COLLECTION
@click.option("--when", type=click.Choice(get_args(When)), help="When KV is computed and kept.")
@click.option(
    "--uses", type=click.IntRange(0, MAX_USES), help="Uses of a chunk before its KV is computed, for nth_use."
)
@click.option("--write", type=click.Choice(get_args(Write)), help="When KV is uploaded to the object store.")
@click.option(
    "--compress", type=click.Choice(get_args(Compress)), help="Method that chooses the tokens whose KV is kept."
)
@click.option(
    "--keep", type=click.FloatRange(0, MOST), help="Share of each chunk's tokens that it keeps; 0: the service's."
)
def rule(
    tenant: str,
    collection: str,
    when: When | None,
    uses: int | None,
    write: Write | None,
    compress: Compress | None,
    keep: float | None,
) -> None:
    """Show or change a collection's KV rule: when KV is computed (upload, nth_use, never), and when it is uploaded to
    the object store (through: at once, back: after ten minutes, nth_use).

    With --compress, only a share of each chunk's tokens keeps KV and enters stitched prompts. Workers recompute the KV;
    the old KV is used until then.
    """
    with opened_parts(Parts.prepare) as parts:
        patch = KVRulePatch(when=when, uses=uses, write=write, compress=compress, keep=keep)
        rule = change_rule(_owner(tenant, collection, None, parts.database), patch, parts)
        has_store = parts.settings.kv_remote is not None
    often = f" ({rule.uses})" if KVWhen.NTH_USE in (rule.when, rule.write if has_store else None) else ""
    uploaded = f", uploaded: {rule.write}" if has_store else ""
    tokens = "" if rule.compress is CompressionMethod.NONE else f" of {rule.keep:.0%} of the tokens ({rule.compress})"
    click.echo(f"{collection}: KV is kept in {rule.format}{tokens}, computed: {rule.when}{uploaded}{often}")


@kv.command()
@owner_options
def warm(owner_in: OwnerIn) -> None:
    """Load KV into this host's memory, most recently used first; KV that is only in the object store is fetched.

    Stops at this disk's limit for KV. Questions do not wait for it.
    """
    with opened_parts(Parts.prepare_database) as parts:
        steps = warm_kv(owner_in(parts.database), parts)
        done = shown(steps, "warming", lambda step: (step.looked_at, step.total))
    click.echo(
        f"{done.files:,} of {done.total:,} files are in memory, {decimal(done.bytes)}: {done.loaded:,} loaded from the object "
        f"store, {done.missing:,} missing"
    )
    if done.is_full:
        click.echo("the rest does not fit on this disk: raise RAGKV_MAX_KV_BYTES")


@kv.command()
@owner_options
def verify(owner_in: OwnerIn) -> None:
    """Read every KV file and check it. Damaged files are removed. Documents that lost KV are named: rebuild them. The
    exit code is 1 if any were lost."""
    with opened_parts(Parts.prepare_database) as parts:
        steps = verify_kv(owner_in(parts.database), parts.database, parts.kv_store, parts.kv_remote, parts.layout)
        verification = shown(steps, "verifying", lambda step: (step.checked, step.total))
    lost = verification.damaged + verification.missing
    click.echo(
        f"{verification.checked:,} files, {decimal(verification.bytes)}: {verification.damaged:,} damaged, {verification.missing:,} missing, "
        f"{verification.unusable:,} not usable now"
    )
    for document_id in verification.documents:
        click.echo(f"to be rebuilt: document {document_id}")
    if lost:
        raise SystemExit(1)


def _use_of(rate: HitRate, loads: Sequence[TierLoads]) -> Table:
    """The last 24 hours: the share of stitched prompts' tokens by origin, and how long placing KV from a tier took."""
    by_tier = {tier_loads.tier: tier_loads for tier_loads in loads}
    table = Table("last 24 hours", "tokens", "questions", "load p50", "load p99", box=None)
    for tier in ("device", "host", "disk", "remote", "recomputed", "computed"):
        tier_loads = by_tier.get(tier)
        took = (
            (f"{tier_loads.questions:,}", f"{tier_loads.p50_ms:.0f} ms", f"{tier_loads.p99_ms:.0f} ms")
            if tier_loads
            else ()
        )
        table.add_row(tier, f"{getattr(rate, tier):.1%}", *took)
    return table


def _owner(tenant: str, collection: str | None, document: str | None, database: Database) -> KVOwner:
    """The owner of KV that the options name. Raises NotFound for a tenant, collection or document that does not
    exist."""
    if collection and document:
        raise click.UsageError("name a --collection or a --document, not both")
    tenant_id = tenant_id_of(tenant, database)
    if collection:
        return KVOwner(tenant_id, collection_ref(tenant_id, collection, database).collection_id)
    if document:
        document_view(tenant_id, document, database)
    return KVOwner(tenant_id, document_id=document)
