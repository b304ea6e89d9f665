"""Of layers with a sliding window only what is seen gets KV, where nothing in the engine selects."""

from collections.abc import Sequence

import psutil
import pytest
from msgspec.structs import replace

from ragkv.chunk import Chunk
from ragkv.engine.launch import CPU_BLOCK_TOKENS
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Output
from ragkv.span import Span
from ragkv.stitch.plan import StitchPlan
from tests.engine.tiny import MODELS
from tests.engine.world import Answered, World, kl, request

FAMILIES = ("Gemma 3", "OLMo 3", "gpt-oss")
FROM_FILES = [f"{family} as read from files" for family in FAMILIES]
WINDOW: int = MODELS[FAMILIES[0]][1]["sliding_window"]

pytestmark = pytest.mark.parametrize(
    "tiny", [FROM_FILES[0], *(pytest.param(name, marks=pytest.mark.long) for name in FROM_FILES[1:])], indirect=True
)


def plans(world: World, chunks: Sequence[Chunk], recompute: Sequence[Span] = ()) -> tuple[StitchPlan, StitchPlan]:
    """The whole, and what is seen."""
    whole = world.model.plan(chunks, recompute)
    return whole, replace(whole, narrow=True)


@pytest.mark.parametrize("recomputed", ["nothing", "the middle", "ends"])
def test_it_says_what_all_kv_says(tiny: World, recomputed: str) -> None:
    chunks = tiny.model.chunks[:5]
    prompt = tiny.model.prompt(chunks)
    middle = prompt.chunks[2]
    spans = {
        "nothing": [],
        "the middle": [Span(middle.start + 10, middle.start + 20)],
        "ends": [Span(span.end - 3, span.end) for span in prompt.chunks[1:]],
    }[recomputed]
    whole, narrow = (tiny.ask(prompt, plan, logprobs=-1, max_tokens=8) for plan in plans(tiny, chunks, spans))
    assert narrow.token_ids == whole.token_ids
    assert max(map(kl, whole.logprobs, narrow.logprobs)) < 1e-9


def test_beside_a_chunk_that_is_lost_it_says_the_same(tiny: World) -> None:
    """The chunk is recomputed whole, and sees what lies before it."""
    chunks = tiny.model.chunks[:4]
    prompt = tiny.model.prompt(chunks)
    plan, _ = plans(tiny, chunks)
    gone = replace(
        plan, placed=tuple(replace(c, key=c.key and "0" * 64) if n == 2 else c for n, c in enumerate(plan.placed))
    )
    whole, narrow = (tiny.ask(prompt, plan, logprobs=-1, max_tokens=8) for plan in (gone, replace(gone, narrow=True)))
    assert narrow.report.failed_keys == ("0" * 64,)
    assert narrow.token_ids == whole.token_ids
    assert max(map(kl, whole.logprobs, narrow.logprobs)) < 1e-9


def test_less_is_read(tiny: World) -> None:
    """With half of the layers local, and a context of six windows."""
    chunks = tiny.model.chunks[5:10]
    prompt = tiny.model.prompt(chunks)
    assert prompt.question.start > 6 * WINDOW
    core, num_bytes = psutil.Process(tiny.engine._family.children[0].pid), []
    for plan in (*plans(tiny, chunks), *plans(tiny, chunks)):  # the first time all files are checked
        before = core.io_counters().read_chars
        tiny.ask(prompt, plan, max_tokens=1)
        num_bytes.append(core.io_counters().read_chars - before)
    print(num_bytes)
    assert num_bytes[3] < 0.7 * num_bytes[2]


def test_prompts_that_end_elsewhere_share_nothing_narrow(tiny: World) -> None:
    """What the shorter sees at its end, the longer did not see there."""
    model = tiny.model
    chunks = model.chunks[:4]
    shorter, longer = (replace(model.plan(some), narrow=True) for some in (chunks[:3], chunks))
    assert shorter.cache_variant != longer.cache_variant
    salts = [model.keys.salt(plan.cache_variant) for plan in (longer, shorter)]
    asked = [
        request(model.prompt(some), plan, salt=salt, max_tokens=4)
        for some, plan, salt in zip((chunks, chunks[:3]), (longer, shorter), salts, strict=True)
    ]
    after_longer = [tiny.ask_all([one])[0] for one in asked][1]
    alone = tiny.ask(model.prompt(chunks[:3]), model.plan(chunks[:3]), max_tokens=4)
    assert after_longer.token_ids == alone.token_ids


def test_blocks_that_other_prompts_read_are_not_written_again(tiny: World) -> None:
    """Another question about the same passages comes while an answer runs."""
    model = tiny.model
    chunks = ending_within_a_block(tiny, 5)
    [asked, *others] = [model.prompt(chunks, f"Which {number} of them?") for number in range(4)]
    _, plan = plans(tiny, chunks, [Span(span.start, span.end - 8) for span in asked.chunks[1:]])
    alone = tiny.ask(asked, plan, max_tokens=120, logprobs=-1)
    salt = model.keys.salt(plan.cache_variant)
    running, *beside = tiny.ask_all(
        [request(prompt, plan, salt=salt, max_tokens=120, logprobs=-1) for prompt in (asked, *others)]
    )
    assert max(map(kl, alone.logprobs, running.logprobs)) < 1e-9
    assert all(0 < answered.report.cached < plan.end for answered in beside)


@pytest.mark.parametrize("is_lost", [True, False], ids=["a file is lost", "it raises"])
def test_a_load_behind_cached_blocks_that_fails_becomes_full_prefill(tiny: World, *, is_lost: bool) -> None:
    """What it would look at before it, the prompt that filled those blocks did not need. That prompt's answer, which
    runs, is not changed."""
    model, rpc = tiny.model, tiny.engine._llm.collective_rpc
    chunks = ending_within_a_block(tiny, 5)
    shorter, longer = model.prompt(chunks), model.prompt(chunks, "Which of them?")
    _, plan = plans(tiny, chunks)
    salt = model.keys.salt(plan.cache_variant) + str(is_lost)
    alone = tiny.ask(shorter, plan, max_tokens=120, logprobs=-1)
    lost = plan.placed[-1].key

    async def asked_beside() -> tuple[list[Output], Answered]:
        outputs = tiny.engine.generate(request(shorter, plan, salt=salt, max_tokens=120, logprobs=-1))
        begun = await anext(outputs)
        if is_lost:
            model.store.drop([lost])
        else:
            await rpc("fail_recomputes", args=(1,))
        answered = await tiny.answer(request(longer, plan, salt=salt, logprobs=-1))
        return [begun, *[output async for output in outputs]], answered

    running, answered = run_in_background(asked_beside())
    tiny.ingest(chunks)

    full = tiny.ask(longer, logprobs=-1)
    steps = [step for output in running for step in output.logprobs]
    assert max(map(kl, alone.logprobs, steps)) < 1e-9
    assert lost in answered.report.failed_keys
    assert len(answered.report.failed_keys) == 1 or not is_lost
    assert (answered.report.computed, answered.report.cached) == (len(longer.token_ids), 0)
    assert max(map(kl, full.logprobs, answered.logprobs)) < 1e-6


def ending_within_a_block(world: World, count: int) -> Sequence[Chunk]:
    """So many chunks that end amid a cache block, whose other tokens differ from question to question."""
    chunks = world.model.chunks
    sets = [chunks[start : start + count] for start in range(len(chunks) - count)]
    return next(some for some in sets if world.model.plan(some).end % CPU_BLOCK_TOKENS in range(4, 24))


def test_preempted_requests_answer_the_same(tiny: World) -> None:
    model = tiny.model
    sets = [model.chunks[start : start + 5] for start in range(7)]
    asked = [
        request(model.prompt(some), plan, salt=model.keys.salt(plan.cache_variant), max_tokens=200)
        for some in sets
        for plan in [plans(tiny, some)[1]]
    ]
    alone = [tiny.ask(model.prompt(some), plans(tiny, some)[0], max_tokens=200) for some in sets]
    together = tiny.ask_all(asked)
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]
    assert max(answer.report.fills for answer in together) > 1, "nobody was preempted: the cache is too large for this"
