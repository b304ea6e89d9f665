"""Plans on the wire: whole, or refused with the reason. Needs no vLLM."""

from dataclasses import replace

import msgspec
import pytest
import torch

from ragkv.engine.protocol import Generate, Prefill, PrefillChunk, Report
from ragkv.engine.wire import (
    PARAM,
    PrefillLimits,
    check_prefilled,
    pack_queries,
    plan_to_wire,
    planned_of,
    prefill_of,
    prefill_to_wire,
    report_asked_for,
    report_of,
    tag_of,
    unpack_queries,
)
from ragkv.errors import OutOfSpace, Rejected, Unavailable
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import Compression, CompressionMethod
from ragkv.span import Span
from ragkv.stitch.plan import MAX_NAME_CHARS, EngineSelection, PlacedChunk, StitchPlan
from ragkv.stitch.policies import Choice

PLAN = StitchPlan(
    (PlacedChunk("a", Span(0, 8)), PlacedChunk(None, Span(8, 12))),
    (Span(2, 4),),
    EngineSelection("question", 0.1, 16, "about", Choice((3, 4, 9))),
)


def test_a_plan_comes_back_as_it_went():
    request = Generate((1,) * 14, "salt", PLAN, capture=Span(8, 12))
    planned = planned_of(plan_to_wire(request, tag="t"), 14)
    assert (planned.plan, planned.capture) == (PLAN, Span(8, 12))
    narrow = StitchPlan(PLAN.placed, narrow=True)
    assert planned_of(plan_to_wire(Generate((1,) * 14, "salt", narrow)), 14).plan == narrow


def test_a_report_has_a_name_also_where_the_plan_is_refused():
    for name in ("t", "t" * MAX_NAME_CHARS):
        assert tag_of({PARAM: {"placed": "nonsense", "tag": name}}) == name
    for sent in (None, {}, {PARAM: "t"}, {PARAM: {"tag": 1}}, {PARAM: {"tag": "t" * (MAX_NAME_CHARS + 1)}}):
        assert tag_of(sent) is None


def test_kv_of_another_model_is_no_plan_where_both_are_known():
    """Of the same shape it would be stitched without a sign."""
    sent = plan_to_wire(Generate((1,) * 14, "salt", msgspec.structs.replace(PLAN, model="mine")))
    assert planned_of(sent, 14, "mine").plan.model == "mine"
    assert planned_of(sent, 14) is not None
    with pytest.raises(Rejected, match="other weights"):
        planned_of(sent, 14, "another")


def test_no_plan_is_no_plan():
    assert plan_to_wire(Generate((1,), "salt")) is None
    assert planned_of(None, 9) is None
    assert planned_of({"other": 1}, 9) is None
    assert planned_of({PARAM: {"report_of": "x"}}, 9) is None
    assert report_asked_for({PARAM: {"report_of": "x"}}) == "x"


def test_what_makes_no_sense_or_reaches_beyond_the_prompt_is_rejected(subtests):
    chunk, no_layers = ["k", [0, 8]], ([-1], [2**70], [9, 4], [4, 4], list(range(1025)))
    for sent in [
        "nonsense",
        7,
        [],
        {},
        {"plan": {}},
        {"plan": {"placed": []}},
        {"plan": {"placed": [["k", [4, 8]]]}},
        {"plan": {"placed": [["k", [8, 4]]]}},
        {"plan": {"placed": [["k", [0, 8]], ["k", [9, 12]]]}},
        {"plan": {"placed": [["k", [-1, 8]]]}},
        {"plan": {"placed": [chunk], "recompute": [[4, 9]]}},
        {"plan": {"placed": [chunk], "recompute": [[4, 2]]}},
        {"plan": {"placed": [chunk], "selection": ["initial", 0.1, 16]}},
        {"plan": {"placed": [chunk], "selection": ["deviation", 1.5, 16]}},
        {"plan": {"placed": [chunk], "selection": ["deviation", 0.5, 0]}},
        {"plan": {"placed": [chunk], "selection": ["deviation", 0.5, 16], "narrow": True}},
        {"plan": {"placed": [chunk]}, "capture": [3, 1]},
        {"plan": {"placed": [chunk]}, "surprise": 1},
        {"plan": {"placed": [chunk], "surprise": 1}},
        {"plan": {"placed": [["k", [0, 13]]]}},
        {"plan": {"placed": [["k", [0, 2**70]]]}},
        {"plan": {"placed": [["k" * 65, [0, 8]]]}},
        {"plan": {"placed": [["k", [0, 8], "t" * 65]]}},
        {"plan": {"placed": [["k", [0, 8], "", 1]]}},
        {"plan": {"placed": [["k", [0, 0]]] * 13 + [chunk]}},
        {"plan": {"placed": [chunk], "recompute": [[2**70, 2**70 + 1]]}},
        {"plan": {"placed": [chunk], "recompute": [[0, 1]] * 13}},
        {"plan": {"placed": [chunk], "missing": [[0, number] for number in range(13)]}},
        {"plan": {"placed": [chunk], "writer": "t" * 65}},
        {"plan": {"placed": [chunk]}, "capture": [2**70, 2**70 + 1]},
        {"plan": {"placed": [chunk]}, "capture": [8, 13]},
        {"plan": {"placed": [["k", [0, True]]]}},
        {"plan": {"placed": [["k", [0, 8.0]]]}},
        {"plan": {"placed": [chunk], "selection": ["deviation", float("nan"), 16]}},
        {"plan": {"placed": [chunk], "selection": ["deviation", 0.5, 65]}},
        {"plan": {"placed": [chunk], "selection": ["deviation", 0.5, 16, "t" * 65]}},
        {"plan": {"placed": [chunk]}, "tag": "t" * 65},
        *({"plan": {"placed": [chunk], "selection": ["question", 0.5, 16, "", [layers]]}} for layers in no_layers),
    ]:
        with subtests.test(sent=sent), pytest.raises(Rejected):
            planned_of({PARAM: sent}, prompt_tokens=12)


def test_a_plan_may_reach_to_the_prompts_end():
    selection = ["question", 1.0, 64, "t", [[0, 1023]]]
    plan = {"placed": [["k", [0, 12]]], "recompute": [[0, 12]], "selection": selection}
    sent = {"plan": plan, "capture": [0, 12]}
    assert planned_of({PARAM: sent}, prompt_tokens=12).plan.end == 12


def test_queries_survive_the_wire():
    queries = torch.randn(2, 3, 4)
    params = msgspec.json.decode(msgspec.json.encode({PARAM: Report(stitched=5, queries=pack_queries(queries))}))
    back = report_of(params, prompt_tokens=9, cached_tokens=7)
    assert torch.equal(unpack_queries(back.queries), queries)
    assert (back.cached, back.stitched, back.computed) == (2, 5, 2)


def test_what_another_version_sends_is_refused_with_what_to_do():
    """A version without prefills answers one with nothing."""
    advice = "different versions .*restart API, workers and engines together"
    of_0_2_0 = {PARAM: {"placed": [["k", 0, 8]], "tag": "t"}}
    for refusal, call in (
        (Rejected, lambda: planned_of(of_0_2_0, 12)),
        (Rejected, lambda: prefill_of({PARAM: {"prefill": {"surprise": 1}}}, LIMITS)),
        (Unavailable, lambda: check_prefilled(None)),
        (Unavailable, lambda: report_of({PARAM: {"stitched": "many"}}, 9, 7)),
    ):
        with pytest.raises(refusal, match=advice):
            call()


def test_recomputed_spans_come_back_or_stay_unknown():
    def spans(sent):
        return report_of({PARAM: {"stitched": 5, "recomputed": 4, "recomputed_spans": sent}}, 14, 9).recomputed_spans

    assert spans([[1, 3], [5, 7]]) == (Span(1, 3), Span(5, 7))
    assert spans([]) == ()
    assert spans(None) is None
    for nonsense in ([[3, 1]], [[-1, 2]], [[1]], "all"):
        with pytest.raises(Unavailable, match="different versions"):
            spans(nonsense)


PREFILL = Prefill(
    "p" * 64, (1, 2), (PrefillChunk("a" * 64, (3, 4), (5, 6), 1), PrefillChunk("b" * 64, (7,))), KVFormat.INT4, "mine", "float32", "w",
    Compression(CompressionMethod.LAQ, 0.5),
)  # fmt: skip
LIMITS = PrefillLimits(window=6, vocabulary=8, model="mine", dtype="float32")


def test_a_prefill_comes_back_as_it_went():
    assert prefill_of(prefill_to_wire(PREFILL), LIMITS) == PREFILL


def test_a_prefill_is_no_plan_and_a_plan_no_prefill():
    plan = plan_to_wire(Generate((1,) * 14, "salt", PLAN))
    assert planned_of(prefill_to_wire(PREFILL), 2) is None
    assert [prefill_of(sent, LIMITS) for sent in (None, {}, {PARAM: "x"}, plan)] == [None] * 4


@pytest.mark.parametrize(
    ("limits", "fields", "reason"),
    [
        (LIMITS, {"model": "another"}, "other weights"),
        (LIMITS, {"dtype": "bfloat16"}, "the same RAGKV_DTYPE"),
        (replace(LIMITS, window=5), {}, "window"),
        (replace(LIMITS, vocabulary=7), {}, "vocabulary"),
        (LIMITS, {"chunks": (PrefillChunk("a", ()),)}, "length >= 1"),
        (LIMITS, {"chunks": (PrefillChunk("a", (1,), (2,), 2),)}, "fewer tokens behind"),
        (LIMITS, {"chunks": (PrefillChunk("a" * 65, (1,)),)}, "length <= 64"),
        (LIMITS, {"chunks": (PrefillChunk("a", (-1,)),)}, ">= 0"),
    ],
)
def test_a_prefill_that_makes_no_sense_here_is_rejected(limits: PrefillLimits, fields: dict[str, object], reason: str):
    with pytest.raises(Rejected, match=reason):
        prefill_of(prefill_to_wire(msgspec.structs.replace(PREFILL, **fields)), limits)


def test_what_became_of_a_prefill_is_told():
    check_prefilled({PARAM: {}})
    for sent, error in (
        ({PARAM: {"error": "full", "no_room": True}}, OutOfSpace),
        ({PARAM: {"error": "no"}}, Unavailable),
        ({PARAM: {"error": 1}}, Unavailable),
        (None, Unavailable),
    ):
        with pytest.raises(error):
            check_prefilled(sent)
