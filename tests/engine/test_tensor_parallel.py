"""Two ranks on the CPU, each with its own heads: together they answer as one does, and neither waits for the other in
vain."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from transformers import LlamaConfig

from bench.fidelity.methods import INFOFLOW_CONNECTOR, infoflow_layers
from ragkv.answer.planner import behind_prefix
from ragkv.chunk import Chunk
from ragkv.connector.internals import refuse_parallel
from ragkv.engine.local import LocalEngine
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import EngineLost
from ragkv.engine.wire import unpack_queries
from ragkv.errors import Unsupported
from ragkv.settings import Settings
from ragkv.stitch.plan import EngineSelection, StitchPlan, plan_stitch
from ragkv.stitch.policies import Choice
from tests.engine.conftest import started
from tests.engine.test_oracle import prompts_of
from tests.engine.tiny import TINY, save_tiny
from tests.engine.world import Answered, World, kl, request, whole_context

FOUR_KV_HEADS = TINY | {"num_attention_heads": 8, "num_key_value_heads": 4}
ONE_KV_HEAD = TINY | {"num_attention_heads": 8, "num_key_value_heads": 1}


@pytest.fixture(scope="module")
def two(language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = on_two_ranks(FOUR_KV_HEADS, language_model, tmp_path_factory.mktemp("ranks"))
    yield world
    world.stop()


@pytest.fixture
def sharing(language_model: Path, tmp_path: Path) -> Iterator[World]:
    """Two ranks with copies of the one KV head."""
    world = on_two_ranks(ONE_KV_HEAD, language_model, tmp_path)
    yield world
    world.stop()


def on_two_ranks(tiny: dict[str, Any], language_model: Path, home: Path) -> World:
    settings = Settings(
        data_dir=home / "data", model=str(save_tiny(LlamaConfig(**tiny), language_model, home / "model")),
        dtype="float32", chunk_tokens=96, max_model_len=2048, max_batched_tokens=512, kv_cache_gib=0.03, tensor_parallel_size=2,
    )  # fmt: skip
    return started(settings, 24, worker_extension_cls="tests.engine.peek.Peek")


@contextmanager
def on_one_rank(two: World) -> Iterator[World]:
    """The same model and KV."""
    settings = msgspec.structs.replace(two.model.settings, tensor_parallel_size=1)
    engine = LocalEngine(settings, Path(settings.model), two.model.layout, {"max_logprobs": -1}, INFOFLOW_CONNECTOR)
    world = World(two.model, engine).start()
    yield world
    world.stop()


@pytest.fixture
def chunks(two: World) -> list[Chunk]:
    return some_chunks(two)


def some_chunks(world: World) -> list[Chunk]:
    return [world.model.chunks[index] for index in (9, 2, 14, 5)]


def on_ranks(world: World, method: str, *args: object, **options: object) -> None:
    run_in_background(world.engine._llm.collective_rpc(method, args=args, kwargs=options))


def selecting(plan: StitchPlan, policy: str, ratio: float) -> StitchPlan:
    return plan_stitch(plan.placed, frozenset(), (), EngineSelection(policy, ratio, 4))


def seen_of_the_question(world: World) -> Answered:
    prompts = world.model.prompts
    question_ids = prompts.question_ids("Who directed the film, and where were they born?")
    return run_in_background(world.answer(behind_prefix(prompts.prefix_ids, question_ids, world.model.keys)))


def test_recomputing_everything_is_full_prefill(two: World):
    assert_recomputing_everything_is_full_prefill(two)


@pytest.mark.long
def test_two_ranks_answer_as_one_does(two: World):
    assert_answers_as_one_rank(two)


@pytest.mark.long
def test_two_ranks_that_share_a_kv_head_answer_as_one_does(sharing: World):
    """More ranks than KV heads."""
    assert_recomputing_everything_is_full_prefill(sharing)
    assert_answers_as_one_rank(sharing)


def assert_recomputing_everything_is_full_prefill(two: World) -> None:
    """The oracle, with its own bound."""
    divergences = []
    for prompt, plan, _ in prompts_of(two):
        full, recomputed = (two.ask(prompt, each, logprobs=-1) for each in (None, plan))
        assert recomputed.report.recomputed == whole_context(prompt).num_tokens
        assert recomputed.token_ids == full.token_ids
        divergences.append(kl(full.logprobs[0], recomputed.logprobs[0]))
    print(f"\ntwo ranks: KL max {max(divergences):.2e}")
    assert max(divergences) <= 0.005


def assert_answers_as_one_rank(two: World) -> None:
    """In full, stitched at every ratio, with every policy that looks at heads: the same tokens are recomputed. In
    float32."""
    chunks = some_chunks(two)
    prompt, plan = two.model.prompt(chunks), two.model.plan(chunks)
    plans = [None, plan, two.model.plan(chunks, [whole_context(prompt)])]
    plans += [selecting(plan, policy, 0.1) for policy in ("question", "deviation")]
    layers = Choice(tuple(infoflow_layers(two.model.layout.layers)))
    plans.append(plan_stitch(plan.placed, frozenset(), (), EngineSelection("infoflow", 0.1, 4, choice=layers)))
    with on_one_rank(two) as one:
        for each in plans:
            alone, together = (world.ask(prompt, each, logprobs=-1, max_tokens=4) for world in (one, two))
            assert kl(alone.logprobs[0], together.logprobs[0]) <= 1e-4
            assert together.token_ids == alone.token_ids
            assert together.report.recomputed_spans == alone.report.recomputed_spans
            assert together.report.stitched == alone.report.stitched
        alone, together = (unpack_queries(seen_of_the_question(world).report.queries) for world in (one, two))
        torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_requests_at_once_answer_as_they_do_alone(two: World):
    """Steps in which one is stitched while others answer."""
    sets = [two.model.chunks[start : start + 4] for start in range(0, 20, 4)]
    plans = [selecting(two.model.plan(some), "question", 0.3) for some in sets]
    alone = [two.ask(two.model.prompt(some), plan, max_tokens=16) for some, plan in zip(sets, plans, strict=True)]
    together = two.ask_all(
        [request(two.model.prompt(some), plan, max_tokens=16) for some, plan in zip(sets, plans, strict=True)]
    )
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    for each, plan in zip(together, plans, strict=True):
        assert each.report.stitched + each.report.recomputed == plan.end
        assert min(each.report.stitched, each.report.recomputed) > 0


def test_what_one_rank_cannot_read_is_recomputed_by_both(two: World, chunks: list[Chunk]):
    """The second has no file descriptor left."""
    prompt, plan = two.model.prompt(chunks), two.model.plan(chunks)
    for placed in plan.placed:
        two.model.store.path(placed.key).touch()  # copies in memory are of another file now
    full = two.ask(prompt, max_tokens=8)
    on_ranks(two, "open_files", 1, may=False)
    answered = two.ask(prompt, plan, max_tokens=8)
    on_ranks(two, "open_files", 1, may=True)
    assert answered.token_ids == full.token_ids
    assert (answered.report.stitched, answered.report.recomputed) == (0, plan.end)
    assert set(answered.report.failed_keys) == {placed.key for placed in plan.placed}
    assert two.ask(prompt, plan).report.stitched == plan.end, "the next one is stitched"


def test_a_rank_that_reads_later_is_waited_for_and_others_are_served_meanwhile(two: World, chunks: list[Chunk]):
    prompt, plan = two.model.prompt(chunks), two.model.plan(chunks)
    expected = two.ask(prompt, plan, max_tokens=8)
    on_ranks(two, "delay_reads", 1, 2.0)
    asked = [request(prompt, plan, max_tokens=8), request(prompt, max_tokens=8)]
    stitched, full = two.ask_all(asked)
    assert stitched.token_ids == expected.token_ids
    assert stitched.report.stitched == plan.end
    assert full.token_ids == two.ask(prompt, max_tokens=8).token_ids


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pipeline_parallel_size", "some of the layers"),
        ("prefill_context_parallel_size", "placed as a whole"),
        ("decode_context_parallel_size", "placed as a whole"),
        ("data_parallel_size", "run several"),
    ],
)
def test_other_ways_to_use_several_devices_are_refused_with_the_reason(name: str, reason: str):
    with pytest.raises(Unsupported, match=f"{name} must be 1: .*{reason}"):
        refuse_parallel(SimpleNamespace(**{name: 2}))


def test_heads_that_vllm_cannot_share_out_are_refused_before_it_starts(two: World):
    settings = msgspec.structs.replace(two.model.settings, tensor_parallel_size=3)
    engine = LocalEngine(settings, Path(settings.model), two.model.layout)
    with pytest.raises(Unsupported, match="8 query heads and 4 KV heads cannot be divided among 3 ranks"):
        run_in_background(engine.start())


def test_a_rank_that_fails_alone_ends_the_engine_at_once(two: World, chunks: list[Chunk]):
    """The other one would wait in the model's next all-reduce. Last, as there is no engine after it."""
    prompt = two.model.prompt(chunks)
    on_ranks(two, "fail_recomputes", 1, 1)
    began = time.monotonic()
    with pytest.raises(EngineLost):
        two.ask(prompt, two.model.plan(chunks, [whole_context(prompt)]))
    assert time.monotonic() - began < 60
