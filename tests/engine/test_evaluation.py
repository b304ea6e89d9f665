"""One question of an evaluation over a real engine, in float32: there nothing is rounded."""

from collections.abc import Iterator

import pytest
from rich.console import Console

from ingest.local import ingest_files
from ingest.parts import IngestParts
from ragkv.answer.question import Question
from ragkv.engine.loop import run_in_background
from ragkv.service.evaluations.fidelity import FidelityMeter
from ragkv.service.evaluations.outcome import FidelityOutcome
from ragkv.service.parts import Parts
from tests.conftest import lend_models
from tests.engine.world import SAMPLE, World

QUESTION, ANSWER = "Who directed the film Madame la Presidente?", "Frank Lloyd"
ANSWER_TOKENS = 16


@pytest.fixture(scope="module")
def parts(exact: World, loaded: IngestParts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Parts over the engine, and some documents whose KV lies in its store."""
    parts = Parts(exact.model.settings, exact.engine)
    lend_models(parts, loaded)
    parts.prepare()
    ingest = IngestParts(parts)
    ingest.prefiller, ingest.parser = exact.prefiller, loaded.parser
    file = tmp_path_factory.mktemp("documents") / "films.md"
    file.write_text((SAMPLE / "films.md").read_text()[:2500])
    assert ingest_files([file], ingest, Console(quiet=True)).read == 1
    yield parts
    parts.close()


def measured(world: World, parts: Parts, known: tuple[str, ...], **options: object) -> FidelityOutcome:
    ref = parts.default_collection
    question = Question(ref.tenant_id, ref.collection_id, QUESTION, top_k=4, max_tokens=ANSWER_TOKENS, **options)  # type: ignore[arg-type]
    meter = FidelityMeter(parts.answerer.uncached, parts.engine, parts.prompts, ANSWER_TOKENS)
    outcome, answers = run_in_background(meter.measure(question, known))
    assert outcome.agree == (answers.stitched == answers.full)
    assert outcome.passages_without_kv == 0
    return outcome


def test_recomputing_everything_is_full_prefill(exact: World, parts: Parts):
    outcome = measured(exact, parts, (ANSWER,), policy="question", recompute_ratio=1.0)

    assert outcome.kl < 1e-3
    assert outcome.nll == pytest.approx(outcome.nll_full, abs=1e-3)
    assert (outcome.agree, outcome.f1) == (True, outcome.f1_full)
    assert outcome.recomputed_tokens >= outcome.context_tokens


def test_recomputing_less_is_further_away_and_passages_help(exact: World, parts: Parts):
    some = measured(exact, parts, (ANSWER,), policy="question", recompute_ratio=0.1)
    none = measured(exact, parts, (ANSWER,), policy="none")

    assert 0 < some.kl < none.kl
    assert some.recomputed_tokens < 0.2 * some.context_tokens
    assert none.recomputed_tokens == 0
    assert some.nll_full == pytest.approx(none.nll_full, abs=1e-3)
    assert some.nll_full < some.nll_without


def test_without_a_known_answer_full_prefills_own_counts(exact: World, parts: Parts):
    outcome = measured(exact, parts, (), policy="none")

    assert (outcome.f1, outcome.f1_full) == (None, None)
    assert outcome.nll_full < outcome.nll
