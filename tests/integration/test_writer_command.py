"""`ragkv writer` from the command line, with a tiny model."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from transformers import LlamaConfig

from bench.writer.corpus import chunks_of_files, digest_of, read_record
from bench.writer.run import STATE, Plan, Run
from bench.writer.samples import Sample
from bench.writer.train import Course
from ragkv.cli import main
from ragkv.models import ADAPTER
from ragkv.prefill.writer import read_card, write_card
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.engine.tiny import TINY, save_tiny

ROOT = Path(__file__).parents[2]
QUESTIONS = ROOT / "docs/sample/multihop.jsonl"


@pytest.fixture(scope="module")
def model(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(LlamaConfig(**TINY), language_model, tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """The beginning of the articles that the writer of the embedded model was trained on."""
    articles = (ROOT / "docs/writer/articles.md").read_text()
    (tmp_path / "articles.md").write_text(articles[:60_000])
    return tmp_path / "articles.md"


@pytest.fixture
def writer(model: Path, documents: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs `ragkv writer ...` on the documents."""

    def run(*arguments: object) -> Result:
        env = {
            "RAGKV_MODEL": str(model),
            "RAGKV_DATA_DIR": str(tmp_path / "data"),
            "RAGKV_MAX_MODEL_LEN": str(TINY["max_position_embeddings"]),
        }
        given = ["writer", *map(str, arguments), "--held-out", "8", "--documents", str(documents)]
        return CliRunner().invoke(main, given, env=env, catch_exceptions=False)

    return run


def test_a_training_goes_on_where_it_ended_on_more_than_it_had_and_is_evaluated(
    writer: Callable[..., Result], tmp_path: Path
):
    folder = tmp_path / "writer"

    begun = writer("train", folder, "--samples", 2)
    first = read_card(folder)
    weights = (folder / ADAPTER).read_bytes()
    gone_on = writer("train", folder, "--samples", 4, "--questions", QUESTIONS, "--model-answered", 0.5)
    second = read_card(folder)
    trained_on = read_record(folder)

    assert (begun.exit_code, gone_on.exit_code) == (0, 0)
    assert "after 2 contexts: KL" in begun.output
    assert "after 2 contexts: KL" not in gone_on.output
    assert [[done for done, _ in card.curve] for card in (first, second)] == [[0, 2], [0, 2, 4]]
    assert (first.samples, first.data) == (2, "articles.md")
    assert (second.samples, second.data) == (4, "articles.md, multihop.jsonl")
    assert second.seconds > first.seconds > 0
    assert (folder / ADAPTER).read_bytes() != weights
    assert (folder / STATE).is_file()
    assert None not in (first.gate, second.gate)
    assert trained_on

    assert (
        "trained on the passages of all these questions: give others"
        in writer("eval", folder, "--data", QUESTIONS).output
    )
    others = tmp_path / "others.jsonl"
    others.write_text(QUESTIONS.read_text().replace(" the ", " this "))
    known = writer("eval", folder, "--data", others)

    assert known.exit_code == 0, known.output
    assert "6 contexts, nothing recomputed" in known.output
    assert read_card(folder) == second

    write_card(folder, msgspec.structs.replace(second, model_fingerprint="another"))
    assert "it is for another model" in writer("eval", folder, "--data", others).output
    write_card(folder, second)

    # What has nothing left to do claims no data that it has not seen.
    ended = writer("train", folder, "--samples", 4, "--questions", shutil.copy(QUESTIONS, tmp_path / "more.jsonl"))
    at_another_rate = writer("train", folder, "--samples", 6, "--learning-rate", 0.5)
    (folder / STATE).unlink()
    without_state = writer("train", folder, "--samples", 6)
    (folder / ADAPTER).unlink()
    without_weights = writer("eval", folder)

    assert ended.exit_code == 0, ended.output
    assert read_card(folder).data == second.data
    assert "continue with that, or choose another folder" in at_another_rate.output
    assert "without the state of its training" in without_state.output
    assert "holds an incomplete writer" in without_weights.output


@pytest.fixture
def parts(model: Path, tmp_path: Path) -> Iterator[Parts]:
    settings = Settings(model=str(model), data_dir=tmp_path / "data", max_model_len=TINY["max_position_embeddings"])
    with closing(Parts(settings)) as parts:
        parts.prepare()
        yield parts


def test_passages_of_known_questions_are_trained_on_and_never_held_out(parts: Parts, documents: Path, tmp_path: Path):
    """Also when the run goes on, which divides the chunks as it did."""
    chunks, plan = chunks_of_files([documents], parts), Plan(tmp_path / "writer", Course(2, 600), 8, 0)
    known = [Sample(tuple(chunks[-3:]), (("Who?", "Ada"),))]
    run = Run(parts, chunks, plan, known)
    run.train(lambda samples, kl: None, lambda samples, kl: None, lambda setting: None)
    division = run._division

    held_out = {digest_of(chunk) for near in (*division.validation, *division.evaluation) for chunk in near}
    assert held_out and not held_out & read_record(plan.folder)
    assert Run(parts, chunks, plan, known)._division == division


def test_a_training_that_is_broken_off_between_two_validations_is_kept_to_its_last_update(
    parts: Parts, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("bench.writer.run.SAVE_AFTER_S", 0.0)
    folder = tmp_path / "writer"

    def break_off(samples: int, kl: float) -> None:
        if samples == 4:  # told before anything of it is saved
            raise KeyboardInterrupt

    run = Run(parts, chunks_of_files([documents], parts), Plan(folder, Course(8, 600), 8, 0))
    with pytest.raises(KeyboardInterrupt):
        run.train(break_off, lambda samples, kl: None, lambda strength: None)

    card = read_card(folder)
    assert (card.samples, [done for done, _ in card.curve]) == (2, [0])
    assert (folder / STATE).is_file()
