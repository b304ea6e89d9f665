"""`ragkv eval stitching` from the command line, with a tiny model, and its figures."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM, LlamaConfig

from bench.stitching import run
from bench.stitching.measure import PLAIN, WRITER, KVFigures, StitchedQuestion, rows_of
from ingest.writer.trainable import TrainableAdapter
from ragkv.cli import main
from ragkv.parts import Parts
from ragkv.settings import Settings
from ragkv.writer import write_card
from tests.engine.tiny import TINY, save_tiny
from tests.made_writers import card

QUESTIONS = Path(__file__).parents[2] / "docs/sample/multihop.jsonl"


@pytest.fixture(scope="module")
def model(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(LlamaConfig(**TINY), language_model, tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def writer(model: Path, tmp_path: Path) -> Path:
    """A writer of the model, which changes its KV and has passed no evaluation."""
    folder = tmp_path / "writer"
    folder.mkdir()
    adapter = TrainableAdapter.new(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32))
    torch.manual_seed(0)
    for parameter in adapter.parameters:
        parameter.data.normal_(0, 0.05)
    adapter.save(folder)
    with closing(Parts(Settings(model=str(model), data_dir=tmp_path / "data"))) as parts:
        write_card(folder, card(gate=None, model_fingerprint=parts.model_fingerprint))
    return folder


@pytest.fixture
def stitching(model: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs `ragkv eval stitching ...` on the sample's questions."""

    def invoke(*arguments: object) -> Result:
        env = {"RAGKV_MODEL": str(model), "RAGKV_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "120"}
        given = ["eval", "stitching", "--data", str(QUESTIONS), "--float32", *map(str, arguments)]
        return CliRunner().invoke(main, given, env=env, catch_exceptions=False)

    return invoke


def test_the_plain_models_kv_and_the_writers_are_compared_with_full_prefill(
    stitching: Callable[..., Result], writer: Path, tmp_path: Path
):
    file = tmp_path / "report.json"

    result = stitching("--limit", 3, "--writer", writer, "--json", file)

    assert result.exit_code == 0, result.output
    report = json.loads(file.read_bytes())
    assert (report["n"], report["writer"], report["computed_in"]) == (3, "writer", "float32")
    plain, written = report["rows"]
    assert (plain["kv"], plain["kl_to_plain"]["mean"], written["kv"]) == ("plain", 1, "writer")
    assert written["kl"]["mean"] != plain["kl"]["mean"] > 0
    assert [question["line"] for question in report["questions"]] == [1, 2, 3]
    assert all(question["context_tokens"] > 100 for question in report["questions"])
    assert [line.split()[0] for line in result.stdout.splitlines() if " [" in line] == ["plain", "writer"]
    assert list(tmp_path.glob("*.partial.jsonl")) == []


def test_a_run_that_was_broken_off_goes_on_where_it_was(
    stitching: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file, read = tmp_path / "report.json", []
    once = run.QuestionReader.read

    def reading(self, question):
        if len(read) == 2:
            raise KeyboardInterrupt
        read.append(question.line)
        return once(self, question)

    monkeypatch.setattr(run.QuestionReader, "read", reading)
    broken = stitching("--limit", 3, "--json", file)
    read.clear()
    stitching("--limit", 3, "--json", file)

    assert broken.exit_code != 0
    assert read == [3]
    assert json.loads(file.read_bytes())["n"] == 3


def test_a_run_with_other_words_or_another_tokenizer_is_another(tmp_path: Path):
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}")
    options = run.StitchingOptions(QUESTIONS, None, None, float32=True, seed=0, json_file=None)

    def digest(**words: str) -> str:
        return run._digest(options, Parts(Settings(data_dir=tmp_path, model=str(tmp_path), **words)), torch.float32)

    ours = {digest(), digest(instructions="Answer."), digest(question_format="{question}"), digest(answer_start="A:")}
    (tmp_path / "tokenizer.json").write_bytes(b"{ }")

    assert len(ours | {digest()}) == 5


def test_a_writer_of_another_model_is_refused(stitching: Callable[..., Result], writer: Path):
    write_card(writer, card(model_fingerprint="another"))

    result = stitching("--writer", writer)

    assert result.exit_code == 1
    assert "it is for another model" in result.output


def question(line: int, plain: KVFigures, writer: KVFigures) -> StitchedQuestion:
    return StitchedQuestion(line, "", 500, 5.0, 3.0, {PLAIN: plain, WRITER: writer})


def test_rows_have_means_with_intervals_and_the_share_of_the_plain_models_kl():
    questions = [
        question(1, KVFigures(0.2, 4.0), KVFigures(0.1, 3.0)),
        question(2, KVFigures(0.6, 4.0), KVFigures(0.1, 3.5)),
    ]

    plain, written = rows_of(questions, seed=0)

    assert plain.kl.mean == 0.4
    assert plain.failures.mean == 50
    assert plain.gain_kept.mean == 0.5
    assert written.kl.mean == 0.1
    assert written.kl_to_plain.mean == 0.25
    assert written.kl_to_plain.interval == (pytest.approx(1 / 6, abs=1e-4), 0.5)
    assert written.failures.mean == 0
    assert written.gain_kept.mean == 0.875


def test_where_full_prefill_gains_nothing_no_gain_is_kept():
    one = StitchedQuestion(1, "", 500, 3.0, 3.0, {PLAIN: KVFigures(0.1, 3.0)})

    assert rows_of([one], seed=0)[0].gain_kept is None
