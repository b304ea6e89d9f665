"""What is exposed, what is documented and what the dashboard shows are the same."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ragkv.observe import metrics
from ragkv.service.health.gauges import Gauges, render

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `((?:ragkv_|vllm:)[a-z_]+)` \| (\w+) \|(?: ([a-z, ]*) ?\|)? ", re.MULTILINE)
NAME = re.compile(r"\b(?:ragkv_|vllm:|process_)[a-z_]+")
PARTS = ("_bucket", "_sum", "_count")
"""Of a histogram."""

FULL = Gauges(
    up={"engine": True, "database": True, "redis": False},
    documents={"ready": 2},
    jobs={"done": 1, "failed": 1},
    kv_files={"disk": 3},
    kv_bytes={"disk": 3000},
    queue_depth=4,
    ingested={
        "documents:ready": 2,
        "tokens:computed": 70,
        "evicted:budget:files": 2,
        "evicted:budget:bytes": 2000,
        "uploads:done": 2,
        "upload_bytes": 2000,
        "syncs:done": 1,
        "synced:added": 3,
        "stage:parse:sum": 3.5,
        "stage:parse:0.5": 1,
        "stage:parse:+Inf": 1,
    },
    workers=1,
    silent_s=2.0,
    stalled_s=0.0,
    waiting_s=40.0,
    free_bytes=10**9,
)


@pytest.fixture(scope="module")
def exposed():
    """Families by name, each with a sample."""
    metrics.requested("GET", "/v1/documents", 200, 0.02)
    metrics.in_flight.inc(0)
    metrics.requested("POST", "/v1/ask", 429, 0.01)
    metrics.unchecked.inc()
    metrics.questions_waiting.inc(0)
    metrics.question_refused("late")
    metrics.asks.labels("stitched", "answered").inc()
    for by_mode in (metrics.ttft, metrics.engine_ttft, metrics.answer_seconds):
        by_mode.labels("stitched").observe(0.25)
    for seconds in (metrics.retrieve, metrics.plan, metrics.recompute, metrics.kv_loads):
        seconds.observe(0.03)
    metrics.kv_load.labels("host").observe(0.008)
    metrics.kv_hits.labels("host").inc()
    metrics.prompt_tokens.labels("cached").inc(1)
    for counter in (metrics.completion_tokens, metrics.failed_chunks, metrics.kv_loaded_bytes):
        counter.inc(7)
    metrics.kv_load_failures.labels("missing").inc()
    metrics.kv_promoted("in_time")
    metrics.kv_computed.labels("stored").inc()
    metrics.kv_wait.observe(0.2)
    metrics.kv_wasted.inc(1)
    metrics.answer_cache.labels("hit").inc()
    families = text_string_to_metric_families(render(FULL).decode())
    return {full_name(family): family for family in families}


def full_name(family) -> str:
    return family.name + "_total" * (family.type == "counter")


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels by name."""
    rows = ROW.findall((DOCS / "operations" / "monitor.md").read_text())
    return {name: (kind, frozenset(re.findall("[a-z_]+", labels))) for name, kind, labels in rows}


def test_every_metric_of_ours_is_documented_with_its_type_and_labels(exposed):
    ours = {
        name: (family.type, frozenset(label for sample in family.samples for label in sample.labels) - {"le"})
        for name, family in exposed.items()
        if name.startswith("ragkv_") and not name.endswith("_created")
    }

    assert ours == {name: row for name, row in documented().items() if name.startswith("ragkv_")}


def test_the_dashboard_uses_only_what_is_documented(exposed):
    board = json.loads((DOCS / "grafana" / "ragkv.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    used = {name for expression in expressions for name in NAME.findall(expression)}
    known = documented().keys() | exposed.keys()
    histograms = {name + part for name, (kind, _) in documented().items() if kind == "histogram" for part in PARTS}

    assert len(expressions) > 20
    assert used - known - histograms == set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_alerts_use_what_is_exposed_with_labels_that_it_has(exposed):
    (group,) = yaml.safe_load((DOCS / "prometheus-alerts.yml").read_text())["groups"]
    rules = group["rules"]

    assert len({rule["alert"] for rule in rules}) == len(rules) == 10
    for rule in rules:
        names = NAME.findall(rule["expr"])
        assert names and set(names) <= exposed.keys() & documented().keys(), rule["alert"]
        labels = {label for name in names for label in documented()[name][1]} | {"instance", "job"}
        by = [label for labels in re.findall(r"by \(([a-z, ]+)\)", rule["expr"]) for label in labels.split(", ")]
        matched = re.findall(r"([a-z]+)(?:=~?|!=)\"", rule["expr"])
        shown = re.findall(r"\$labels\.([a-z]+)", str(rule["annotations"]))
        assert {*by, *matched, *shown} <= labels, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning") and rule["annotations"]["description"]


def test_buckets_are_cumulative(exposed):
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in exposed["ragkv_ingest_stage_seconds"].samples
    }  # fmt: skip

    assert samples["ragkv_ingest_stage_seconds_bucket", "0.1"] == 0
    assert samples["ragkv_ingest_stage_seconds_bucket", "0.5"] == 1
    assert (
        samples["ragkv_ingest_stage_seconds_bucket", "+Inf"] == samples["ragkv_ingest_stage_seconds_count", None] == 2
    )
    assert samples["ragkv_ingest_stage_seconds_sum", None] == 3.5


def test_what_could_not_be_read_is_left_out():
    text = render(Gauges(up={"engine": True, "database": False, "redis": False})).decode()

    assert 'ragkv_part_up{part="database"} 0.0' in text
    for name in ("ragkv_documents", "ragkv_queue_depth", "ragkv_ingest", "ragkv_workers", "ragkv_disk"):
        assert name not in text


def test_methods_that_nobody_knows_share_a_label():
    metrics.requested("BREW", "(none)", 405, 0.001)

    assert 'method="OTHER"' in render(FULL).decode()
    assert "BREW" not in render(FULL).decode()


def test_every_request_answered_with_429_counts_as_throttled():
    def throttled() -> float:
        return metrics.OURS.get_sample_value("ragkv_http_requests_throttled_total")

    before = throttled()
    for status in (200, 429, 503, 429):
        metrics.requested("GET", "/v1/documents", status, 0.02)

    assert throttled() == before + 2
