"""The fidelity instrument without an engine: figures, data, what is refused, what survives a broken run."""

import asyncio
import io
import json
import math
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from bench.fidelity.command import choices_of, compressions_of, formats_of
from bench.fidelity.evaluate import FidelityOptions, _digest
from bench.fidelity.kit import Case, Prepared
from bench.fidelity.measure import Measure, MethodOutcome, Record
from bench.fidelity.methods import (
    DEFAULT_ORDER,
    FULL,
    NAMES,
    POLICIES_MEASURED,
    RIVALS,
    WRITER,
    Method,
    methods_of,
)
from bench.fidelity.report import FidelityReport, Table, table_of
from bench.fidelity.run import padded
from bench.known_questions import KnownQuestion, read_questions
from bench.records import Records, digest_of
from ragkv.answer.prompt import Prompt
from ragkv.answer.service import in_prompt_order
from ragkv.chunk import Chunk, Passage
from ragkv.cli import main
from ragkv.engine.protocol import Generate, Output
from ragkv.errors import Rejected
from ragkv.ids import utc_now
from ragkv.kv.key import KeyMaker
from ragkv.models import ADAPTER
from ragkv.prefill.writer import Card, Gate, write_card
from ragkv.service.evaluations.metrics import (
    best_f1,
    exact_match,
    gain_kept,
    geometric_ratio,
    interval,
    likeliest_kl,
    mean_kl,
    mean_nll,
    normalised,
    resamples,
)
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from ragkv.span import Span
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan
from ragkv.stitch.policies import POLICIES, Choice
from tests.support.echo_engine import EchoEngine

ROOT = Path(__file__).parents[2]
KEYS = KeyMaker(b"k" * 32, "m", "bfloat16", (1, 2))


class TestAnswers:
    def test_answers_are_compared_as_squad_does(self):
        assert normalised("  The U.S.A., an  ally of a King!") == "usa ally of king"

    def test_articles_go_only_as_whole_words(self):
        assert normalised("Athens, a theatre") == "athens theatre"

    def test_an_answer_is_exact_if_any_accepted_one_is_it(self):
        assert exact_match("the Eiffel Tower.", ["Louvre", "Eiffel tower"]) == 1.0
        assert exact_match("Eiffel", ["Louvre", "Eiffel tower"]) == 0.0

    def test_f1_is_over_words_and_their_number(self):
        """2 of 3 words of the answer are among the 4 accepted: 2 * 2 / (3 + 4)."""
        assert best_f1("king king Arthur", ["King Arthur of Britain"]) == pytest.approx(4 / 7)

    def test_f1_is_against_the_nearest_accepted_answer(self):
        assert best_f1("June 1982", ["mid-June", "June of 1982"]) == pytest.approx(4 / 5)

    def test_an_answer_of_articles_alone_has_no_words(self):
        assert best_f1("the", ["Rome"]) == 0.0
        assert best_f1("the", ["a"]) == 1.0


class TestDistributions:
    def test_kl_is_what_a_hand_computes(self):
        """0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75), then nothing at the second position: the mean of both."""
        p = np.log(np.array([[0.5, 0.5], [0.9, 0.1]], np.float32))
        q = np.log(np.array([[0.25, 0.75], [0.9, 0.1]], np.float32))
        by_hand = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
        assert mean_kl(p, q) == pytest.approx(by_hand / 2, abs=1e-6)

    def test_kl_of_a_distribution_to_itself_is_nought(self):
        p = np.log(np.array([[0.2, 0.3, 0.5]], np.float32))
        assert mean_kl(p, p) == 0.0

    def test_what_cannot_happen_adds_nothing_to_kl(self):
        impossible = np.array([[0.0, -np.inf]], np.float32)
        assert mean_kl(impossible, np.log(np.array([[0.5, 0.5]], np.float32))) == pytest.approx(math.log(2))

    def test_nll_is_a_mean_over_the_answers_tokens(self):
        log_probs = np.log(np.array([[0.5, 0.5], [0.25, 0.75]], np.float32))
        assert mean_nll(log_probs, [0, 0]) == pytest.approx((math.log(2) + math.log(4)) / 2)


class TestGain:
    def test_full_prefill_keeps_all_of_its_gain_and_no_context_none(self):
        nlls = np.array(3.0), np.array(1.0)
        assert gain_kept(nlls[0], nlls[1], nlls[1]) == 1.0
        assert gain_kept(nlls[0], nlls[0], nlls[1]) == 0.0

    def test_half_way_is_half(self):
        assert gain_kept(np.array(3.0), np.array(2.0), np.array(1.0)) == 0.5

    def test_where_full_prefill_gains_nothing_there_is_nothing_to_keep(self):
        assert np.isnan(gain_kept(np.array(1.0), np.array(2.0), np.array(3.0)))


class TestGeometricRatio:
    def test_one_question_does_not_make_it(self):
        """Twice as near on two of three questions, ten times as far on one: (1/2 * 1/2 * 10) ** (1/3)."""
        ratio = geometric_ratio(np.array([0.1, 0.2, 5.0]), np.array([0.2, 0.4, 0.5]))
        assert ratio == pytest.approx(2.5 ** (1 / 3))

    def test_what_rounding_leaves_is_no_difference(self):
        assert geometric_ratio(np.array([0.0, 1e-9]), np.array([1e-5, 0.0])) == pytest.approx(1.0)


class TestIntervals:
    def test_draws_depend_on_the_seed_alone(self):
        assert (resamples(7, seed=1) == resamples(7, seed=1)).all()
        assert (resamples(7, seed=1) != resamples(7, seed=2)).any()

    def test_an_interval_holds_the_middle_95_percent(self):
        assert interval(np.arange(1001.0)) == (25.0, 975.0)

    def test_the_interval_of_a_mean_is_as_wide_as_its_standard_error_says(self):
        values = np.random.default_rng(0).normal(size=400)
        low, high = interval(values[resamples(400, seed=0)].mean(1))
        assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.08)

    def test_without_a_value_in_more_resamples_than_an_end_leaves_out_there_is_none(self):
        assert interval(np.array([np.nan] * 5 + [2.0] * 195)) == (2.0, 2.0)
        assert interval(np.array([np.nan] * 6 + [2.0] * 194)) is None
        assert interval(np.array([np.nan])) is None


def line(question="Who?", texts=("one", "two"), **more):
    passages = [{"title": f"T {text}", "text": text, "is_gold": True} for text in texts]
    return {"id": question, "question": question, "answers": ["He"], "passages": passages} | more


@pytest.fixture
def write(tmp_path):
    def lines(*rows):
        path = tmp_path / "data.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return lines


class TestData:
    def test_questions_keep_their_order_and_their_lines(self, write):
        questions = read_questions(write(line("A?"), "", line("B?")))
        assert [(q.line, q.text) for q in questions] == [(1, "A?"), (3, "B?")]
        assert [p.title for p in questions[0].passages] == ["T one", "T two"]

    def test_a_passage_that_a_question_has_twice_is_read_once(self, write):
        (question,) = read_questions(write(line(texts=("one", "two", "one"))))
        assert [p.text for p in question.passages] == ["one", "two"]

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            ("{", "truncated"),
            (line(answers=[]), r"length >= 1 - at `\$.answers`"),
            (line(answers=[""]), r"\$.answers\["),
            (line(passages=[]), r"\$.passages"),
            (line(passages=[{"title": "no text"}]), "missing required field `text`"),
            ({"question": "Who?"}, "missing required field `answers`"),
        ],
    )
    def test_what_is_no_question_is_refused_by_file_and_line(self, write, bad, reason):
        with pytest.raises(Rejected, match=rf"data\.jsonl, line 2: .*{reason}"):
            read_questions(write(line(), bad))

    def test_an_empty_file_is_refused(self, write):
        with pytest.raises(Rejected, match="no questions in it"):
            read_questions(write(""))


class TestPadding:
    @pytest.fixture
    def questions(self, write):
        own = [line(f"{n}?", [f"{n}{letter}" for letter in "abcd"]) for n in range(5)]
        return read_questions(write(*own, line("shares?", ["0a", "0b", "new"])))

    def test_contexts_grow_to_the_number_asked_for(self, questions):
        assert len(padded(questions[0], questions, 12, seed=0).passages) == 12

    def test_own_passages_stay_all_there_and_in_order(self, questions):
        texts = [p.text for p in padded(questions[1], questions, 12, seed=0).passages]
        assert [t for t in texts if t.startswith("1")] == ["1a", "1b", "1c", "1d"]

    def test_nothing_stands_twice_in_a_context(self, questions):
        texts = [p.text for p in padded(questions[0], questions, 21, seed=0).passages]
        assert len(set(texts)) == len(texts) == 21

    def test_the_draw_depends_on_the_seed_and_the_question(self, questions):
        first = padded(questions[0], questions, 12, seed=0)
        assert first == padded(questions[0], questions, 12, seed=0)
        assert first != padded(questions[0], questions, 12, seed=1)

    def test_a_context_that_is_long_enough_stays(self, questions):
        assert padded(questions[0], questions, 3, seed=0) == questions[0]

    def test_a_file_with_too_few_passages_says_how_many_there_are(self, questions):
        with pytest.raises(Rejected, match="--passages 21 at most"):
            padded(questions[0], questions, 22, seed=0)


class TestMethods:
    def test_every_policy_is_a_method(self):
        assert set(POLICIES_MEASURED) == set(POLICIES) - {"none"} | set(RIVALS)
        assert set(POLICIES_MEASURED) < set(NAMES)

    def test_what_others_are_measured_against_is_always_there(self):
        names = [method.name for method in methods_of(["default", "prefix"], [0.1], Settings())]
        assert names == ["full", "none", "prefix", "default", "full, default order", "full, retrieval order"]

    def test_full_prefill_in_the_files_order_is_left_out_where_nothing_else_is_in_it(self):
        found = methods_of(["none", "default"], [0.1], Settings())
        assert [method.name for method in found] == ["none", "default", "full, default order", "full, retrieval order"]
        assert (found[0].reference, found[0].gain_reference) == ("full, retrieval order",) * 2
        for names in ([], ["none"], ["full"], ["default", "full"]):
            assert [method.name for method in methods_of(names, [0.1], Settings())][:2] == ["full", "none"]

    def test_each_order_is_held_against_full_prefill_of_the_same_order(self):
        found = methods_of(["default order", "retrieval order"], [0.1], Settings())
        references = {method.name: (method.reference, method.gain_reference) for method in found}
        assert references["default order"] == ("full, default order", "full, retrieval order")
        assert references["retrieval order"] == ("full, retrieval order", "full, retrieval order")

    def test_full_prefill_is_measured_in_no_order_that_nothing_is_held_against(self):
        found = methods_of(["retrieval order"], [0.1], Settings())
        assert [method.name for method in found] == ["none", "retrieval order", "full, retrieval order"]

    @pytest.mark.parametrize("names", [NAMES, ["sparse"], ["prefix"], ["retrieval order"]])
    def test_every_reference_is_itself_measured(self, names):
        methods = methods_of(names, [0.1, 0.2], Settings())
        keys = {method.key for method in methods}
        assert len(keys) == len(methods)
        assert {m.reference for m in methods} | {m.gain_reference for m in methods} <= keys

    def test_an_unknown_method_is_refused_with_those_there_are(self):
        with pytest.raises(Rejected, match=r"no method contextal: choose from full, none, .*contextual"):
            methods_of(["full", "contextal"], [0.1], Settings())

    def test_what_leaves_tokens_out_itself_does_not_come_over_shorter_chunks(self):
        keys = {method.key for method in methods_of(["sparse", "prefix"], [0.1], Settings(), [WRITER], ["laq 0.5"])}
        assert {"sparse @0.1", "writer, sparse @0.1", "laq 0.5, prefix"} < keys
        assert "laq 0.5, sparse @0.1" not in keys

    def test_other_layers_are_measured_with_what_selects_by_the_question_alone(self):
        later = Choice.of("8-23")
        names = ["question", "random", "default order"]
        found = methods_of(names, [0.1], Settings(), [WRITER], choices=[later])
        assert [method.key for method in found if "layers" in method.name] == [
            f"{name}, layers 8-23 @0.1"
            for name in ("question", "default order", "writer, question", "writer, default order")
        ]


def passage(number):
    return Passage(Chunk(f"c{number}", "d", number, "T", "t", 0, 1, None, (1, 2)), score=0.0, hop=1)


def outcome(**figures):
    plain = {"answer": "He", "em": 1.0, "f1": 1.0, "nll": 1.0, "kl": 0.0, "agree": True, "ttft_s": 1.0}
    return MethodOutcome(**plain | {"recomputed_tokens": 10, "context_tokens": 100} | figures)


class TestRecords:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "report.json.partial.jsonl"

    def add(self, path, number, digest="d"):
        Records(path, digest, Record).add(Record(number, f"q{number}", {"full": outcome()}))

    def test_a_second_run_finds_what_the_first_one_measured(self, path):
        self.add(path, 1)
        self.add(path, 2)
        records = Records(path, "d", Record)
        assert 1 in records and 2 in records and 3 not in records
        assert records[2].outcomes["full"] == outcome()

    def test_a_line_that_was_cut_off_is_measured_again(self, path):
        self.add(path, 1)
        self.add(path, 2)
        path.write_bytes(path.read_bytes()[:-9])
        assert 2 not in Records(path, "d", Record)
        self.add(path, 2)
        records = Records(path, "d", Record)
        assert 1 in records and 2 in records

    def test_records_of_another_run_are_refused_with_what_to_do(self, path):
        self.add(path, 1)
        with pytest.raises(Rejected, match=r"another model, data, settings or methods, .*delete the file"):
            Records(path, "other", Record)
        assert 1 in Records(path, "d", Record)

    def test_a_run_that_measured_nothing_is_in_nobodys_way(self, path):
        Records(path, "other", Record)
        self.add(path, 1)
        assert 1 in Records(path, "d", Record)

    def test_even_the_first_line_may_be_cut_off(self, path):
        path.write_bytes(b'{"dig')
        self.add(path, 1)
        assert 1 in Records(path, "d", Record)

    def test_a_damaged_file_is_refused_with_what_to_do(self, path):
        self.add(path, 1)
        path.write_bytes(path.read_bytes() + b"{}\n")
        with pytest.raises(Rejected, match=r"is damaged .*: delete it and run again"):
            Records(path, "d", Record)

    def test_a_complete_run_leaves_no_records(self, path):
        records = Records(path, "d", Record)
        records.remove()
        assert not path.exists()

    def test_without_a_file_records_are_in_memory(self):
        records = Records(None, "d", Record)
        records.add(Record(4, "q", {}))
        assert 4 in records
        records.remove()

    def test_a_digest_names_what_is_measured(self):
        assert digest_of({"seed": 1, "model": "m"}) == digest_of({"model": "m", "seed": 1})
        assert digest_of({"seed": 1}) != digest_of({"seed": 2})


def test_a_run_does_not_go_on_with_a_writer_that_was_evaluated_meanwhile(write, tmp_path):
    """Its card says whether the service recomputes anything of its KV."""
    model, writer = tmp_path / "model", tmp_path / "writer"
    for folder, name in ((model, "model.safetensors"), (model, "config.json"), (writer, ADAPTER)):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"{}")
    settings = Settings(data_dir=tmp_path, model=str(model))
    options = FidelityOptions(write(line()), None, None, (0.1,), None, 0, None, writer=writer)
    gate = Gate(contexts=8, kl=0.01, plain_kl=0.1, kl_ratio_upper=0.2, nll=1.0, plain_nll=1.1, one_chunk_kl=0.01)
    card = Card(
        model="m", model_fingerprint="f", made_at=utc_now(), seed=0, rank=16, samples=1, seconds=1.0, curve=()
    )  # fmt: skip

    write_card(writer, card)
    before = _digest(options, settings, [], Parts(settings))
    write_card(writer, msgspec.structs.replace(card, gate=gate))

    assert _digest(options, settings, [], Parts(settings)) != before


def test_a_run_with_another_tokenizer_is_another(tmp_path: Path, write):
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}")
    settings = Settings(data_dir=tmp_path, model=str(tmp_path))
    options = FidelityOptions(write(line()), None, None, (0.1,), None, 0, None, writer=None)

    before = _digest(options, settings, [], Parts(settings))
    (tmp_path / "tokenizer.json").write_bytes(b"{ }")

    assert _digest(options, settings, [], Parts(settings)) != before


class TestReport:
    @pytest.fixture
    def rows(self):
        """Two questions: no context 4 nats, full 2, random 3, head 2.5; random is twice as fast as full, head
        thrice."""
        settings = Settings()
        methods = methods_of(["random", "head"], [0.1], settings)
        figures = {
            "full": {"nll": 2.0, "ttft_s": 6.0},
            "none": {"nll": 4.0, "kl": 1.0, "f1": 0.0, "em": 0.0, "agree": False},
            "random @0.1": {"nll": 3.0, "kl": 0.5, "f1": 0.5, "ttft_s": 3.0},
            "head @0.1": {"nll": 2.5, "kl": 0.25, "f1": 0.75, "ttft_s": 2.0},
        }
        records = [Record(n, "q", {key: outcome(**figures[key]) for key in figures}) for n in (1, 2)]
        return {row.method: row for row in Table(records, methods, "head", seed=0).rows()}

    def test_shares_are_percent_and_gain_is_between_none_and_full(self, rows):
        assert (rows["head"].f1, rows["head"].em, rows["none"].agree) == (75.0, 100.0, 0.0)
        assert [rows[name].gain_kept for name in ("none", "random", "head", "full")] == [0.0, 0.5, 0.75, 1.0]

    def test_differences_pair_with_full_and_with_random_at_the_same_ratio(self, rows):
        assert rows["head"].to_full.nll.mean == 0.5
        assert rows["head"].to_random.other == "random @0.1"
        assert rows["head"].to_random.kl.mean == -0.25
        assert rows["head"].to_random.f1.interval == (25.0, 25.0)
        assert rows["full"].to_random is None

    def test_with_a_writer_what_stitches_comes_twice_and_is_held_against_its_plain_twin(self):
        methods = methods_of(["prefix", "naive"], [0.1], Settings(), [WRITER])
        figures = {
            "none": {"nll": 4.0},
            "prefix": {"kl": 0.4, "nll": 3.0},
            "writer, prefix": {"kl": 0.1, "nll": 2.5, "kl_of_plain": 0.3},
        }
        records = [Record(1, "q", {method.key: outcome(**figures.get(method.key, {"nll": 2.0})) for method in methods})]
        rows = {row.method: row for row in Table(records, methods, "head", seed=0).rows()}

        assert list(rows) == ["full", "none", "naive", "prefix", "writer, prefix"]
        written = rows["writer, prefix"]
        assert (written.kl_to_plain.mean, written.kl_of_plain.mean, written.gain_less_plain.mean) == (0.25, 0.3, 0.25)
        assert (rows["prefix"].kl_to_plain, rows["prefix"].kl_of_plain, rows["prefix"].gain_less_plain) == (None,) * 3

    @pytest.mark.parametrize("full", [2.0, 2.5])
    def test_where_full_prefill_gains_nothing_a_variant_has_no_gain_to_compare(self, full):
        """Nor where it makes the answer less likely: the difference would have the wrong sign."""
        figures = {"full": {"nll": full}, "none": {"nll": 2.0}, "prefix": {"nll": 3.0}, "writer, prefix": {"nll": 2.6}}
        written = self.variants(figures)["writer, prefix"]

        assert (written.gain_kept, written.gain_less_plain) == (None, None)

    def test_kl_is_held_against_plain_kv_only_where_that_has_any(self):
        written = self.variants({"none": {"nll": 4.0}, "writer, prefix": {"kl": 0.1}})["writer, prefix"]

        assert written.kl_to_plain is None
        assert written.gain_less_plain.mean == 0.0

    def variants(self, figures):
        methods = methods_of(["prefix"], [0.1], Settings(), [WRITER])
        usual = {method.key: {"kl_of_plain": 0.0} if method.plain else {} for method in methods}
        outcomes = {key: outcome(**usual[key] | figures.get(key, {})) for key in usual}
        records = [Record(n, "q", outcomes) for n in (1, 2, 3)]
        return {row.method: row for row in Table(records, methods, "head", seed=0).rows()}

    def test_only_rows_of_one_order_are_held_against_each_other(self):
        """Random blocks have the file's order, the service's order is another prompt."""
        methods = methods_of(["random", "question", "default order", "sparse"], [0.1], Settings())
        records = [Record(1, "q", {method.key: outcome() for method in methods})]
        rows = {row.method: row for row in Table(records, methods, "question", seed=0).rows()}

        assert {name for name, row in rows.items() if row.to_random} == {"random", "question"}
        assert {name for name, row in rows.items() if row.kl_to_random} == {"random", "question"}
        assert {name for name, row in rows.items() if row.to_policy} == {"random", "question"}

    def test_the_gain_is_held_against_both_orders_of_full_prefill(self):
        """In its own order full prefill gains more than in retrieval's: 3 nats, not 2."""
        methods = methods_of(["default"], [0.1], Settings())
        nlls = {"none": 4.0, "default": 2.5, "full, default order": 1.0, "full, retrieval order": 2.0}
        records = [Record(line, "q", {key: outcome(nll=nll) for key, nll in nlls.items()}) for line in (1, 2)]
        rows = {row.method: row for row in Table(records, methods, "head", seed=0).rows()}

        assert [rows[name].gain_kept for name in nlls] == [0.0, 0.75, 1.5, 1.0]
        assert [rows[name].gain_in_order for name in nlls] == [0.0, 0.5, 1.0, 1.0]
        assert rows["default"].intervals.gain_in_order == (0.5, 0.5)

    def test_formats_come_beside_a_writer(self):
        methods = methods_of(["prefix"], [0.1], Settings(), ["int8", WRITER])

        assert [method.key for method in methods] == ["full", "none", "prefix", "int8, prefix", "writer, prefix"]
        assert {method.plain for method in methods} == {None, "prefix"}

    def test_failures_are_questions_far_from_full_prefill(self, rows):
        """Above half a nat, not at it."""
        assert [rows[name].failures for name in ("full", "head", "random", "none")] == [0.0, 0.0, 0.0, 100.0]

    def test_kl_is_held_against_random_at_the_same_ratio(self, rows):
        assert (rows["head"].kl_to_random.mean, rows["head"].kl_to_random.interval) == (0.5, (0.5, 0.5))
        assert rows["random"].kl_to_random.mean == 1.0
        assert rows["full"].kl_to_random is None

    def test_the_table_has_both(self, rows):
        """In 80 columns, with the longest name there is: it wraps."""
        name = f"streaming 0.5, {DEFAULT_ORDER}, layers 8-23"
        longest = msgspec.structs.replace(rows["head"], method=name, recomputed_tokens=1234.0)
        report = FidelityReport("m", "d.jsonl", 2, [*rows.values(), longest], "here", 0, None)
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(table_of(report))
        text = console.export_text()
        assert re.search(r"head 0.1 .* 0.250 +0 +0.50 ", text)
        assert re.search(r"none .* 1.000 +100 +- ", text)
        assert re.search(r"streaming 0.5, .* 0.250 +0 +0.50 .* 1234", text)

    def test_differences_pair_with_the_services_own_policy_too(self, rows):
        assert rows["random"].to_policy.other == "head @0.1"
        assert rows["random"].to_policy.kl.mean == 0.25
        assert rows["full"].to_policy is None

    def test_times_are_medians_and_their_ratio_is_to_full(self, rows):
        assert (rows["head"].ttft_s, rows["head"].ttft_speedup) == (2.0, 3.0)


class TestCommand:
    def run(self, *arguments):
        return CliRunner().invoke(main, ["eval", "fidelity", *map(str, arguments)])

    def test_a_report_that_could_not_be_written_is_refused_first(self, write, tmp_path):
        done = self.run("--data", write(line()), "--json", tmp_path / "nowhere" / "x.json")
        assert done.exit_code == 1
        assert "there is no folder" in done.output

    @pytest.mark.parametrize("ratios", ["-0.1", "1.5", "0.1,x", "nan", ""])
    def test_a_ratio_that_is_none_is_refused(self, write, ratios):
        done = self.run("--data", write(line()), "--ratios", ratios)
        assert done.exit_code == 1
        assert f"--ratios {ratios}" in done.output

    @pytest.mark.parametrize(
        ("options", "refusal"),
        [
            (["--compress", "laq,zip"], "--compress: there is no zip, choose from streaming, "),
            (["--compress", "laq", "--keep", "1.0"], "--keep 1.0: give"),
            (["--compress", "laq", "--keep", "half"], "--keep half: give"),
        ],
    )
    def test_a_compression_that_is_none_is_refused(self, write, options, refusal):
        done = self.run("--data", write(line()), *options)
        assert done.exit_code == 1
        assert refusal in done.output

    def test_what_is_named_twice_is_measured_once(self):
        assert formats_of("int8, int4,int8") == ("int8", "int4")
        assert [one.name for one in compressions_of("laq,laq", "0.5,0.3,0.50")] == ["laq 0.5", "laq 0.3"]
        assert choices_of(["8-9", "8,9", "8-10"]) == (Choice.of("8-9"), Choice.of("8-10"))

    def test_a_writer_without_its_adapter_is_refused(self, write, tmp_path):
        """Not measured as the plain model under the writer's name."""
        (tmp_path / "writer").mkdir()
        done = self.run("--data", write(line()), "--writer", tmp_path / "writer")
        assert done.exit_code == 1
        assert "there is no adapter_model.safetensors in it" in done.output

    def test_a_missing_file_is_refused_by_name(self, tmp_path):
        done = self.run("--data", tmp_path / "no.jsonl")
        assert done.exit_code == 1
        assert "no.jsonl: No such file" in done.output

    def test_an_unknown_method_is_refused(self, write):
        done = self.run("--data", write(line()), "--methods", "fool")
        assert done.exit_code == 1
        assert "no method fool" in done.output


def test_the_best_passage_stands_where_the_settings_say():
    ranked = tuple(passage(number) for number in range(3))

    assert in_prompt_order(ranked, "best_last") == ranked[::-1]
    assert in_prompt_order(ranked, "best_first") == ranked


def test_the_kl_of_the_likeliest_tokens_is_below_that_of_all_and_near_it():
    drawn = np.random.default_rng(0)
    logits = drawn.normal(scale=3, size=(1, 5000))
    reference, other = log_softmax(logits), log_softmax(logits + drawn.normal(scale=0.5, size=(1, 5000)))

    def likeliest(row: np.ndarray, count: int) -> dict[int, float]:
        return {int(token): float(row[0, token]) for token in np.argsort(row[0])[-count:]}

    exact = mean_kl(reference, other)
    all_of_them = likeliest_kl(likeliest(reference, 5000), likeliest(other, 5000))
    some = likeliest_kl(likeliest(reference, 1000), likeliest(other, 1000))
    assert all_of_them == pytest.approx(exact, rel=1e-3)
    assert 0.9 * exact < some < exact


def log_softmax(rows: np.ndarray) -> np.ndarray:
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


class _Recording(EchoEngine):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(Settings(max_model_len=1000))
        self.stitches = True
        self.asked: list[Generate] = []

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        self.asked.append(request)
        async with aclosing(super().generate(request)) as outputs:
            async for output in outputs:
                even = ({0: math.log(0.5), 1: math.log(0.5)},) if request.logprobs is not None else ()
                yield replace(output, logprobs=even)


def test_what_the_engine_selected_is_what_answers_and_distributions_are_of():
    """Of the part of the prompt that is not in the cache the engine would select others."""
    prompt = Prompt(tuple(range(50)), Span(0, 10), (Span(10, 25), Span(25, 40)), Span(40, 50))
    placed = tuple(PlacedChunk(key, span) for key, span in zip("pab", (prompt.prefix, *prompt.chunks), strict=True))
    plan = StitchPlan(placed, selection=EngineSelection("question", 0.2, 4))
    methods = [
        Method(FULL, lambda _kit, _case: Prepared(prompt, None)),
        Method("question", lambda _kit, _case: Prepared(prompt, plan), 0.2),
    ]
    case = Case(KnownQuestion(1, "", "Who?", ("Ada",), ()), (), (), (0, 1), None, 0.0)
    engine = _Recording()
    engine.started = True

    asyncio.run(Measure(engine, None, 10_000).measure(case, methods, lambda _method: None))  # type: ignore[arg-type]

    first, *others = [request.plan for request in engine.asked if request.plan]
    assert first == plan
    assert others == [msgspec.structs.replace(plan, recompute=(Span(37, 40),), selection=None)] * 3
