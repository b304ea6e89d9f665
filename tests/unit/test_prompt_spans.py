"""Where every token of a prompt came from."""

from dataclasses import replace

from ragkv.answer.origins import prompt_spans
from ragkv.answer.prompt import Prompt
from ragkv.answer.question import NOTHING_RAN, Answer, PassageKV, PromptSpan, Timings
from ragkv.chunk import Chunk, Passage
from ragkv.engine.protocol import Report
from ragkv.span import Span
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan

PROMPT = Prompt(tuple(range(50)), Span(0, 10), (Span(10, 25), Span(25, 40)), Span(40, 50))
SCORES = (("a", 0.1), ("b", 1.0), ("c", 3.0), ("d", 1.0))
"""By the order of a prompt: of two equal ones the later is the better one."""
PLACED = tuple(PlacedChunk(key, span) for key, span in zip("pab", (PROMPT.prefix, *PROMPT.chunks), strict=True))
SELECTED_IN_ENGINE = StitchPlan(PLACED, selection=EngineSelection("question", 0.1, 4))


def drawn(plan: StitchPlan | None, report: Report) -> list[tuple[int, int, str | None]]:
    """The spans without what stands there. They cover the prompt without gaps, whatever they say."""
    spans = prompt_spans(PROMPT, plan, report)
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == 50
    return [(span.start, span.end, span.origin) for span in spans]


def test_parts_and_origins_cut_the_prompt():
    report = Report(cached=12, stitched=24, recomputed=4, computed=10, recomputed_spans=(Span(23, 27),))

    assert prompt_spans(PROMPT, SELECTED_IN_ENGINE, report) == (
        PromptSpan(0, 10, "prefix", "cached", None),
        PromptSpan(10, 12, "passage", "cached", 0),
        PromptSpan(12, 23, "passage", "stitched", 0),
        PromptSpan(23, 25, "passage", "recomputed", 0),
        PromptSpan(25, 27, "passage", "recomputed", 1),
        PromptSpan(27, 40, "passage", "stitched", 1),
        PromptSpan(40, 50, "question", "computed", None),
    )


def test_without_a_plan_all_but_the_cached_is_computed():
    cut = [(0, 8, "cached"), (8, 10, "computed"), (10, 25, "computed"), (25, 40, "computed"), (40, 50, "computed")]

    assert drawn(None, Report(cached=8, computed=42)) == cut


def test_a_plan_says_what_was_recomputed_if_the_engine_does_not():
    plan = StitchPlan(PLACED, (Span(30, 34),))
    report = Report(stitched=36, recomputed=4, computed=10)

    assert (30, 34, "recomputed") in drawn(plan, report)


def test_kv_that_could_not_be_read_was_recomputed_whole():
    report = Report(stitched=25, recomputed=15, computed=10, failed_keys=("a",))

    assert (10, 25, "recomputed") in drawn(StitchPlan(PLACED), report)


def test_a_choice_the_engine_did_not_tell_stays_unknown():
    """Nor does the number help when it is 0: a report that came too early says what was promised."""
    unknown = [(0, 10, None), (10, 25, None), (25, 40, None), (40, 50, "computed")]

    assert drawn(SELECTED_IN_ENGINE, Report(stitched=36, recomputed=4, computed=10)) == unknown
    assert drawn(SELECTED_IN_ENGINE, Report(stitched=40, computed=10)) == unknown


def test_a_late_policy_that_chose_nothing_is_known():
    assert drawn(SELECTED_IN_ENGINE, Report(stitched=40, computed=10, recomputed_spans=()))[1] == (10, 25, "stitched")


def test_without_a_report_nothing_is_known():
    assert {origin for _, _, origin in drawn(SELECTED_IN_ENGINE, Report())} == {None}


def test_spans_that_do_not_fit_the_numbers_are_not_believed():
    report = Report(stitched=36, recomputed=4, computed=10, recomputed_spans=(Span(0, 9),))

    assert drawn(SELECTED_IN_ENGINE, report)[0] == (0, 10, None)


def test_an_answer_is_shown_with_its_best_passages_first_and_their_places_in_the_prompt():
    passages = [Passage(Chunk(name, name, 0, name, "x", 0, 1, None, ()), score, 1) for name, score in SCORES]
    kv = tuple(PassageKV("disk", i, 0) for i in range(len(SCORES)))
    spans = tuple(PromptSpan(i, i + 1, "passage", None, i) for i in range(len(SCORES)))
    around = (PromptSpan(0, 0, "prefix", None, None), *spans)
    answer = Answer("id", "", "stop", (), tuple(passages), Timings(*[0.0] * 7), NOTHING_RAN, kv, around)

    shown = answer.best_first()

    assert [passage.chunk.id for passage in shown.passages] == ["c", "d", "b", "a"]
    assert shown.prompt_positions == (2, 3, 1, 0)
    assert [one.tokens for one in shown.kv] == [2, 3, 1, 0], "each with its own KV"
    assert [(span.start, span.passage) for span in shown.prompt_spans] == [(0, None), (0, 3), (1, 2), (2, 0), (3, 1)]
    assert replace(answer, kv=(), prompt_spans=()).best_first().kv == ()
