"""Gauges for the whole service at one moment, over all tenants: read, and rendered with all counters for `/metrics`."""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TypeVar

import msgspec
from prometheus_client import REGISTRY as LIBRARIES
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from ragkv.errors import Unavailable
from ragkv.observe.metrics import OURS
from ragkv.service.base.database import Database
from ragkv.service.documents.job_statements import count_jobs
from ragkv.service.documents.statements import count_by_status
from ragkv.service.health.condition import free_bytes
from ragkv.service.kv_admin.entry_statements import kv_by_tier
from ragkv.service.observe.worker_counters import STAGE_BUCKETS_S
from ragkv.service.parts import Parts

log = logging.getLogger(__name__)

T = TypeVar("T")


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Values of all gauges. `up`: whether each part answers. Rows are counted by status or tier. None: not known, since
    the part that counts it is unavailable.

    `silent_s` and `stalled_s`: the least of all workers' seconds since a report, and without progress.
    """

    up: dict[str, bool]
    documents: dict[str, int] | None = None
    jobs: dict[str, int] | None = None
    kv_files: dict[str, int] | None = None
    kv_bytes: dict[str, int] | None = None
    queue_depth: int | None = None
    ingested: dict[str, float] | None = None
    workers: int | None = None
    silent_s: float | None = None
    stalled_s: float | None = None
    waiting_s: float | None = None
    free_bytes: int | None = None


def read_gauges(up: dict[str, bool], parts: Parts) -> Gauges:
    beats = _unless_away(parts.heartbeats.read)
    waiting = _unless_away(parts.backlog.read)
    return Gauges(
        up=up,
        queue_depth=_unless_away(parts.queue.depth),
        ingested=_unless_away(parts.worker_counters.read),
        workers=None if beats is None else sum(beat.is_alive for beat in beats),
        silent_s=min((beat.silent_s for beat in beats or ()), default=None),
        stalled_s=min((beat.stalled_s for beat in beats or () if beat.is_alive), default=None),
        waiting_s=None if waiting is None else waiting.oldest_s,
        free_bytes=free_bytes(parts.settings),
        **(_unless_away(lambda: _stored(parts.database)) or {}),
    )


def render(gauges: Gauges) -> bytes:
    """Everything in Prometheus' text format: this process's counts, what there is, and what libraries count here.

    Among those is vLLM, if it runs in this process.
    """
    counted = CollectorRegistry()
    counted.register(_GaugeCollector(gauges))
    return b"".join(generate_latest(registry) for registry in (OURS, counted, LIBRARIES))


def _stored(database: Database) -> dict[str, dict[str, int]]:
    """The gauges of rows, by name."""
    with database.reading() as session:
        tiers = session.execute(kv_by_tier()).all()
        return {
            "documents": {status.value: count for status, count, *_ in session.execute(count_by_status())},
            "jobs": {status.value: count for status, count in session.execute(count_jobs())},
            "kv_files": {tier: files for tier, files, _ in tiers},
            "kv_bytes": {tier: num_bytes for tier, _, num_bytes in tiers},
        }


def _unless_away(count: Callable[[], T]) -> T | None:
    try:
        return count()
    except Unavailable as error:
        log.warning("cannot be counted: %s", error)
        return None


class _GaugeCollector(Collector):
    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        seen = self._gauges
        yield _gauge("ragkv_part_up", "Whether a part of the service answers.", "part", seen.up.items())
        rows = (
            ("ragkv_documents", "Documents, by status.", "status", seen.documents),
            ("ragkv_jobs", "Jobs, by status.", "status", seen.jobs),
            ("ragkv_kv_files", "KV files, by tier.", "tier", seen.kv_files),
            ("ragkv_kv_bytes", "Bytes of KV files, by tier.", "tier", seen.kv_bytes),
        )
        yield from (
            _gauge(name, what, label, counts.items()) for name, what, label, counts in rows if counts is not None
        )
        values = (
            ("ragkv_queue_depth", "Messages that no worker has taken.", seen.queue_depth),
            ("ragkv_workers", "Workers that report.", seen.workers),
            ("ragkv_worker_silent_seconds", "Time since the latest report of any worker.", seen.silent_s),
            ("ragkv_worker_stalled_seconds", "Time without progress, the shortest of all workers.", seen.stalled_s),
            ("ragkv_queue_age_seconds", "Time since the oldest waiting job was queued.", seen.waiting_s),
            ("ragkv_disk_free_bytes", "Free bytes on the disk of the data folder.", seen.free_bytes),
        )
        yield from (GaugeMetricFamily(name, what, amount) for name, what, amount in values if amount is not None)
        if seen.ingested is not None:
            yield from _ingestion(seen.ingested)


def _ingestion(ingested: dict[str, float]) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
    """The work of all workers, from the fields of `ragkv.service.observe.worker_counters`."""
    documents = CounterMetricFamily("ragkv_ingest_documents", "Ingestions that ended, by outcome.", labels=["outcome"])
    tokens = CounterMetricFamily(
        "ragkv_ingest_tokens", "Tokens of chunks, by the origin of their KV.", labels=["origin"]
    )
    evicted = CounterMetricFamily("ragkv_kv_evictions", "KV files that were evicted, by reason.", labels=["reason"])
    evicted_bytes = CounterMetricFamily("ragkv_kv_evicted_bytes", "Bytes of evicted KV, by reason.", labels=["reason"])
    stages = HistogramMetricFamily("ragkv_ingest_stage_seconds", "Stages of ingestion.", labels=["stage"])
    uploads = CounterMetricFamily("ragkv_kv_uploads", "KV files for the object store, by outcome.", labels=["outcome"])
    upload_bytes = CounterMetricFamily("ragkv_kv_uploaded_bytes", "Bytes of KV uploaded to the object store.")
    syncs = CounterMetricFamily("ragkv_data_source_syncs", "Syncs of data sources that ended.", labels=["outcome"])
    synced = CounterMetricFamily("ragkv_data_source_files", "Files of data sources, by change.", labels=["change"])
    by_value = {"documents": documents, "tokens": tokens, "uploads": uploads, "syncs": syncs, "synced": synced}
    for field, amount in sorted(ingested.items()):
        match field.split(":"):
            case [kind, value] if kind in by_value:
                by_value[kind].add_metric([value], amount)
            case ["upload_bytes"]:
                upload_bytes.add_metric([], amount)
            case ["evicted", reason, "files"]:
                evicted.add_metric([reason], amount)
            case ["evicted", reason, "bytes"]:
                evicted_bytes.add_metric([reason], amount)
            case ["stage", stage, "sum"]:
                bounds = (*map(str, STAGE_BUCKETS_S), "+Inf")
                sums = accumulate(ingested.get(f"stage:{stage}:{bound}", 0.0) for bound in bounds)
                stages.add_metric([stage], list(zip(bounds, sums, strict=True)), amount)
    yield from (documents, tokens, evicted, evicted_bytes, stages, uploads, upload_bytes, syncs, synced)


def _gauge(name: str, what: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=[label])
    for value, amount in values:
        family.add_metric([value], amount)
    return family
