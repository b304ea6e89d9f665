"""The fidelity instrument over a real engine, on short questions of the sample, in float32: there nothing is
rounded."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from bench.fidelity.evaluate import run_of
from bench.fidelity.kit import Case
from bench.fidelity.measure import Record
from bench.fidelity.methods import methods_of
from bench.fidelity.plot import plot
from bench.fidelity.report import FidelityReport, FidelityRow, Table
from bench.fidelity.run import TokenizedQuestion
from bench.known_questions import read_questions
from bench.records import Records
from ingest.parts import IngestParts
from ragkv.chunk import Passage
from ragkv.engine.loop import run_in_background
from ragkv.errors import TooLarge
from ragkv.kv.rule import Compression, CompressionMethod
from ragkv.models import encoder_folder
from ragkv.retrieve.encoder import Encoder
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.engine.world import World, whole_context

SAMPLE = Path(__file__).parents[2] / "docs" / "sample" / "multihop.jsonl"
NUM_QUESTIONS = 2
METHODS = ("naive", "prefix", "infoflow", "random", "deviation", "question", "sparse", "default")
KEYS = [
    "method",
    "ratio",
    "n",
    "f1",
    "em",
    "nll",
    "gain_kept",
    "gain_in_order",
    "kl",
    "agree",
    "ttft_s",
    "recomputed_tokens",
]


@pytest.fixture(scope="module")
def ingest(exact: World) -> IngestParts:
    """Parts over the engine and its KV store."""
    parts = Parts(exact.model.settings, exact.engine)
    parts.prepare()
    parts.encoder = Encoder.load(encoder_folder(Settings()))
    made = IngestParts(parts)
    made.prefiller = exact.prefiller
    yield made
    parts.close()


@pytest.fixture(scope="module")
def asked(ingest: IngestParts) -> list[TokenizedQuestion]:
    questions = read_questions(SAMPLE)[:NUM_QUESTIONS]
    return [TokenizedQuestion.of(question, ingest.parts.tokenizer, ingest.parts.prompts) for question in questions]


@pytest.fixture(scope="module")
def report(exact: World, ingest: IngestParts, asked: list[TokenizedQuestion]) -> FidelityReport:
    methods = methods_of(METHODS, (0.1, 1.0), ingest.parts.settings)
    records, told = Records(None, "test", Record), []
    before = set(ingest.parts.kv_store.keys())
    run_in_background(run_of(ingest, methods).carry_out(asked, records, told.append))
    assert len(told) == len(methods) * len(asked)
    assert len(set(ingest.parts.kv_store.keys()) - before) <= 2, "only the prefix is kept"
    rows = Table([records[one.question.line] for one in asked], methods, "question", seed=0).rows()
    return FidelityReport("model", str(SAMPLE), len(asked), rows, "here", 0, None)


def row_of(report: FidelityReport, method: str, ratio: float | None = None) -> FidelityRow:
    return next(row for row in report.rows if (row.method, row.ratio) == (method, ratio))


def test_full_prefill_is_itself(report: FidelityReport) -> None:
    for name in ("full", "full, default order", "full, retrieval order"):
        row = row_of(report, name)
        assert (row.kl, row.agree, row.recomputed_tokens) == (0.0, 100.0, row.context_tokens)
    assert row_of(report, "full").gain_kept == 1.0


@pytest.mark.parametrize("policy", ["random", "deviation", "question"])
def test_recomputing_everything_is_full_prefill(report: FidelityReport, policy: str) -> None:
    row = row_of(report, policy, 1.0)
    assert row.kl < 0.02
    assert row.agree == 100.0
    assert row.recomputed_tokens >= row.context_tokens


def test_recomputing_little_is_not_full_prefill(report: FidelityReport) -> None:
    """The instrument can tell."""
    for name in ("naive", "prefix"):
        assert row_of(report, name).kl > 0.02
        assert row_of(report, name).recomputed_tokens == 0
    assert 0.05 < row_of(report, "question", 0.1).recomputed_tokens / row_of(report, "full").context_tokens < 0.15


def test_sparse_reads_whole_passages_of_half_of_the_tokens_at_most(report: FidelityReport) -> None:
    assert 0.2 < row_of(report, "sparse", 0.1).context_tokens / row_of(report, "full").context_tokens <= 0.5


def test_over_compressed_chunks_prompts_are_shorter_unless_everything_is_recomputed(
    exact: World, ingest: IngestParts, asked: list[TokenizedQuestion]
) -> None:
    """As the service has it: tests/engine/test_compressed.py holds that to the oracle."""
    laq = Compression(CompressionMethod.LAQ, 0.5)
    methods = methods_of(["question"], (0.0, 1.0), ingest.parts.settings, shorter=[laq.name])
    run = run_of(ingest, methods, compressions=[laq])
    run_in_background(asyncio.to_thread(run.prefill, asked[0].chunks))
    ranked = tuple(Passage(chunk, 0.0, 1) for chunk in asked[0].chunks)
    case = Case(asked[0].question, ranked, ranked, asked[0].answer_ids, None, 0.0)
    prepared = {method.key: method.prepare(run.kit, case) for method in methods if method.key != "none"}
    full, shorter = prepared["full"].prompt, prepared["laq 0.5, question @0"]
    assert len(shorter.prompt.chunks) == len(case.in_file_order)
    assert whole_context(shorter.prompt).num_tokens == pytest.approx(0.5 * whole_context(full).num_tokens, rel=0.05)
    assert shorter.plan is not None and shorter.plan.num_missing == 0
    assert prepared["laq 0.5, question @1"].prompt == full
    answered = exact.ask(shorter.prompt, shorter.plan, logprobs=-1, salt="shortened")
    assert answered.report.failed_keys == ()


def test_no_context_knows_least(report: FidelityReport) -> None:
    assert row_of(report, "none").context_tokens == 0
    assert row_of(report, "none").kl > row_of(report, "prefix").kl


def test_the_report_has_its_fields_in_order(report: FidelityReport) -> None:
    read = json.loads(msgspec.json.encode(report))
    assert list(read)[:4] == ["model", "data", "n", "rows"]
    assert all(list(row)[: len(KEYS)] == KEYS for row in read["rows"])
    assert [row["ratio"] for row in read["rows"] if row["method"] == "default"] == [None]
    assert [row["ratio"] for row in read["rows"] if row["method"] == "random"] == [0.1, 1.0]
    assert all(row["ttft_s"] > 0 and row["n"] == NUM_QUESTIONS for row in read["rows"])


def test_the_picture_is_a_png(report: FidelityReport, tmp_path: Path) -> None:
    plot([report], tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_context_beyond_the_window_is_refused_with_what_to_do(
    ingest: IngestParts, asked: list[TokenizedQuestion]
) -> None:
    chunks = asked[0].chunks * 40
    with pytest.raises(TooLarge, match=r"line 1 with \d+ passages: .*fewer --passages"):
        run_of(ingest, []).check([TokenizedQuestion(asked[0].question, chunks, asked[0].answer_ids)])
