"""Where each passage's KV came from."""

from ragkv.answer.origins import kv_of_passages, slowest_tier, tokens_by_tier
from ragkv.answer.prompt import Prompt
from ragkv.answer.question import PassageKV
from ragkv.engine.protocol import Report
from ragkv.span import Span
from ragkv.stitch.plan import EngineSelection, PlacedChunk, StitchPlan

PROMPT = Prompt(tuple(range(50)), Span(0, 10), (Span(10, 20), Span(20, 30), Span(30, 40)), Span(40, 50))
PLACED = tuple(PlacedChunk(key, span) for key, span in zip("pabc", (PROMPT.prefix, *PROMPT.chunks), strict=True))


def sources(plan: StitchPlan | None, report: Report) -> list[tuple[str, int | None]]:
    return [(kv.source, kv.recomputed_tokens) for kv in kv_of_passages(PROMPT, plan, report)]


def test_stored_kv_may_be_recomputed_in_part_or_whole():
    plan = StitchPlan(PLACED, (Span(18, 22), Span(30, 40)))

    assert sources(plan, Report()) == [("disk", 2), ("disk", 2), ("recomputed", 10)]


def test_files_that_lay_in_memory_were_not_read_from_the_disk():
    plan = StitchPlan(PLACED, (Span(18, 22),))
    kv = kv_of_passages(PROMPT, plan, Report(host_keys=frozenset("pb")))

    assert [(one.source, one.recomputed_tokens) for one in kv] == [("disk", 2), ("host", 2), ("disk", 0)]
    assert tokens_by_tier(kv, 26) == {"disk": 18, "host": 8}


def test_files_that_came_for_this_question_were_in_the_object_store():
    kv = kv_of_passages(PROMPT, StitchPlan(PLACED, ()), Report(host_keys=frozenset("ab")), frozenset("b"))

    assert [one.source for one in kv] == ["host", "remote", "disk"]
    assert slowest_tier(kv) == "remote"


def test_what_the_engine_had_in_its_cache_was_on_the_device():
    assert sources(StitchPlan(PLACED), Report(cached=25)) == [("device", 0), ("disk", 0), ("disk", 0)]


def test_the_beginning_of_a_passage_that_the_engine_had_in_its_cache_was_not_loaded():
    """The cache ends where a block does. Tiers and device together are never more than there is."""
    plan, report = StitchPlan(PLACED), Report(cached=27, stitched=13, host_keys=frozenset("c"))
    kv = kv_of_passages(PROMPT, plan, report)

    assert [one.source for one in kv] == ["device", "disk", "host"]
    assert tokens_by_tier(kv, report.stitched) == {"disk": 3, "host": 10}


def test_kv_that_could_not_be_used_was_recomputed():
    assert sources(StitchPlan(PLACED), Report(failed_keys=("b",)))[1] == ("recomputed", 10)


def test_without_a_plan_everything_was_computed():
    assert kv_of_passages(PROMPT, None, Report()) == (PassageKV("recomputed", 10, 10),) * 3


def test_what_the_engine_chose_late_only_it_knows():
    plan = StitchPlan(PLACED, selection=EngineSelection("deviation", 0.1, 16))

    assert sources(plan, Report()) == [("disk", None)] * 3


def test_what_the_engine_chose_late_is_known_once_it_said_so():
    plan = StitchPlan(PLACED, selection=EngineSelection("question", 0.1, 16))

    assert sources(plan, Report(recomputed_spans=(Span(18, 22), Span(30, 40)))) == [
        ("disk", 2),
        ("disk", 2),
        ("recomputed", 10),
    ]
