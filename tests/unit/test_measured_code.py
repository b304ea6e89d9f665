"""Which code figures depend on."""

from pathlib import Path

import pytest

from bench import records
from bench.records import code_digest, modules_of, package_versions


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that imports a module, which imports another inside a function, and parts, which have all."""
    files = {
        "bench/command.py": "from ragkv import figures\nfrom ragkv.service.parts import Parts\n",
        "ragkv/__init__.py": "",
        "ragkv/figures.py": "def mean():\n    from ragkv.numbers import add\n",
        "ragkv/numbers.py": "import ragkv.figures\n",
        "ragkv/service/parts.py": "import ragkv.database\n",
        "ragkv/database.py": "",
        "ragkv/connector/__init__.py": "",
        "ragkv/connector/worker.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(records, "_ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["bench/command", "ragkv/figures", "ragkv/numbers", "ragkv/service/parts", "ragkv/connector/worker"]
)
def test_a_change_of_what_is_imported_or_runs_in_the_engine_changes_the_digest(tree: Path, name: str):
    before = code_digest("bench.command")
    (tree / f"{name}.py").write_text("# another\n")

    assert code_digest("bench.command") != before


def test_what_parts_bring_with_them_does_not(tree: Path):
    before = code_digest("bench.command")
    (tree / "ragkv/database.py").write_text("# another\n")

    assert code_digest("bench.command") == before


def test_figures_of_fidelity_depend_on_all_that_computes_them():
    needed = {
        "bench.fidelity.methods", "bench.fidelity.report", "bench.retrieval", "ragkv.connector.prefill", "ragkv.prefill.precompute",
        "ragkv.stitch.compression", "ragkv.connector.adapter", "ragkv.answer.planner", "ragkv.kv.layout", "ragkv.chunk",
        "ragkv.connector.worker", "ragkv.engine.local", "ragkv.service.evaluations.fidelity", "ragkv.service.evaluations.metrics",
        "ragkv.kv.store", "ragkv.retrieve.retriever", "ragkv.span", "ragkv.stitch.select", "ragkv.tokenizer",
    }  # fmt: skip
    found = modules_of("bench.fidelity.evaluate")

    assert needed - found == set()
    assert {
        name for name in found if name.startswith(("ragkv.service.base", "ingest.parse", "api", "workers"))
    } == set()


def test_versions_are_of_packages_that_are_installed():
    assert {"torch", "transformers"} <= package_versions().keys()
