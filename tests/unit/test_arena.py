"""KVShareArena's measure: its figures by hand, and files in its formats from a run that was measured."""

import json

import msgspec
import pytest
import torch
from click.testing import CliRunner

from bench.arena.command import _write_all
from bench.arena.results import ArenaRun
from bench.arena.score import paired_difference, performance_gap_recovered
from bench.fidelity.evaluate import Measured
from bench.fidelity.measure import MethodOutcome, Record
from bench.fidelity.methods import methods_of
from ragkv.cli import main
from ragkv.known_questions import KnownQuestion, Source, read_questions
from ragkv.kv.layout import Layout
from ragkv.settings import Settings

RESULT = {"schema", "summary", "results", "method_card"}
SUMMARY = {"method", "track", "subset", "model", "n", "backend", "versions", "git_rev"}
ITEM = {
    "_id", "golds", "pred", "f1_raw", "recomputed_layer_tokens", "dense_payload_layer_tokens", "kv_bytes", "ttft_ms"
}  # fmt: skip
CARD = {"name", "provenance", "backend", "versions", "cost_notes", "training_data"}
"""What `kva validate` of kvsharearena 0.1 asks for."""


class TestScore:
    def test_the_gap_is_between_no_context_and_full_prefill(self):
        assert performance_gap_recovered(0.5, floor=0.25, ceiling=0.75) == 0.5
        assert performance_gap_recovered(0.125, floor=0.25, ceiling=0.75) == -0.25

    def test_where_the_context_gains_nothing_there_is_no_gap(self):
        assert performance_gap_recovered(0.5, floor=0.25, ceiling=0.2505) is None

    def test_a_difference_that_no_resample_turns_has_a_direction(self):
        ids = [str(number) for number in range(100)]
        better, worse = dict.fromkeys(ids, 0.75), dict.fromkeys(ids, 0.25)
        assert paired_difference(better, worse).direction == "up"
        assert paired_difference(worse, better).interval == (-0.5, -0.5)
        assert paired_difference(better, better).direction is None

    def test_resamples_are_the_arenas(self):
        """Its published protocol: seed 20260730, 10,000 draws of differences ordered by id, the 250th and the 9,750th
        mean."""
        one = {f"q{number}": number % 3 / 2 for number in range(10)}
        other = {f"q{number}": number % 2 / 4 for number in range(10)}
        found = paired_difference(one, other)
        assert found.mean == pytest.approx(0.325)
        assert found.interval == pytest.approx((0.05, 0.6))


def outcome(f1, ttft_s=1.0, recomputed=0, context=100, answer="He"):
    return MethodOutcome(
        answer, em=0.0, f1=f1, nll=1.0, kl=0.0, agree=False, ttft_s=ttft_s, recomputed_tokens=recomputed, context_tokens=context
    )  # fmt: skip


@pytest.fixture
def arena_run():
    """Two questions with one id: no context 0.25, full prefill 0.75, naive 0.25, cacheblend 0.5 with a tenth
    recomputed."""
    methods = methods_of(["naive", "deviation"], [0.1], Settings())
    outcomes = {
        "full": outcome(0.75, ttft_s=4.0, recomputed=100),
        "none": outcome(0.25, context=0),
        "naive": outcome(0.25),
        "deviation @0.1": outcome(0.5, ttft_s=1.0, recomputed=10),
    }
    questions = [KnownQuestion(line, "same", "Who?", ("He", "Him"), (Source("a"), Source("b"))) for line in (1, 2)]
    layout = Layout(layers=10, q_heads=2, kv_heads=1, head_dim=4, dtype=torch.bfloat16)
    records = [Record(question.line, question.id, outcomes) for question in questions]
    return ArenaRun(Measured("model", layout, methods, questions, records), "hotpotqa", {"file": "f", "sha256": "s"})


class TestResults:
    def test_a_result_file_has_what_the_arena_validates(self, arena_run):
        for method in arena_run.run.methods:
            result = json.loads(msgspec.json.encode(arena_run.result(method)))
            assert result.keys() == RESULT and result["schema"] == "kva.result.v1"
            assert result["summary"].keys() >= SUMMARY
            assert result["method_card"].keys() >= CARD
            assert all(item.keys() >= ITEM for item in result["results"])
            assert result["summary"]["n"] == len({item["_id"] for item in result["results"]}) == 2
            assert result["method_card"]["provenance"] in ("official", "port", "reference")

    def test_a_policy_that_looks_at_all_pays_for_one_layer_of_the_context(self, arena_run):
        """CacheBlend: 10 of 100 tokens in 10 layers, and layer 0 of all."""
        shares = {method.key: arena_run.recompute_share(method) for method in arena_run.run.methods}
        assert shares == {"full": 1.0, "none": 0.0, "naive": 0.0, "deviation @0.1": 0.2}

    def test_a_row_of_the_board_is_relative_to_naive_stitching(self, arena_run):
        board = json.loads(msgspec.json.encode(arena_run.board()))
        rows = {row["key"]: row for row in board["retrieved_evidence"]["rows"]}
        expected = {"value": 0.5, "sig": True, "direction": "up", "delta": 0.25, "ci": [0.25, 0.25]}
        assert rows["deviation @0.1"] == {
            "key": "deviation @0.1",
            "pgr": {"hotpotqa": expected},
            "recompute_share": {"hotpotqa": 0.2},
        }
        assert rows["naive"]["pgr"]["hotpotqa"] == {"value": 0.0} | dict.fromkeys(["sig", "direction", "delta", "ci"])

    def test_files_are_a_result_a_method_the_anchors_and_the_board(self, arena_run, tmp_path):
        _write_all(arena_run, tmp_path)
        names = {file.name for file in tmp_path.iterdir()}
        assert names == {
            "full.json", "none.json", "naive.json", "deviation-0.1.json", "anchors.json", "leaderboard.json"
        }  # fmt: skip
        anchors = json.loads((tmp_path / "anchors.json").read_text())["tracks"]["re"]["hotpotqa"]
        assert anchors["oracle"] == {"same:1": 0.75, "same:2": 0.75}

    def test_time_saved_is_of_full_prefills(self, arena_run):
        assert arena_run.ttft_saved("deviation @0.1") == 0.75


def test_a_frozen_set_is_read_as_questions(tmp_path):
    path = tmp_path / "hotpotqa_n100.jsonl"
    line = {"_id": "75ab", "context": "a b", "input": "Who?", "answers": ["He"], "chunks": ["a", "b"], "n_tok_ctx": 2}
    path.write_text(json.dumps(line) + "\n")

    [question] = read_questions(path)

    assert question == KnownQuestion(1, "75ab", "Who?", ("He",), (Source("a"), Source("b")))


def test_a_folder_that_could_not_be_made_is_refused_first(tmp_path):
    done = CliRunner().invoke(
        main, ["eval", "arena", "--data", "no.jsonl", "--results", str(tmp_path / "nowhere" / "x")]
    )
    assert done.exit_code == 1
    assert "there is no folder" in done.output
