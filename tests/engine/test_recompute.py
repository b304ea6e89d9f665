"""KV that is missing, late or corrupt is recomputed, counted, and never an error."""

from collections.abc import Sequence

import pytest

from bench.gpu.loading import let_go
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Generate
from ragkv.engine.wire import unpack_queries
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.plan import PlacedChunk, StitchPlan
from ragkv.stitch.policies import POLICIES
from ragkv.stitch.select import block_size_of
from tests.engine.world import Answered, World, request
from tests.support.page_cache import kept

NO_FILE = "0" * 64


@pytest.fixture
def chunks(served: World) -> list[Chunk]:
    return served.model.chunks[5:11]


def expected(world: World, chunks: Sequence[Chunk], missing: Sequence[int]) -> Answered:
    """The answer of recomputing those chunks, decided beforehand."""
    prompt = world.model.prompt(chunks)
    plan = world.model.plan(chunks, merge(prompt.chunks[index] for index in missing))
    return world.ask(prompt, plan, max_tokens=12, logprobs=5)


@pytest.mark.parametrize("missing", [(), (2,), (0, 3), (0, 1, 2, 3, 4, 5)])
def test_missing_kv_gives_the_answer_that_recomputing_those_chunks_gives(
    served: World, chunks: list[Chunk], missing: tuple[int, ...]
) -> None:
    """Whatever the subset: the engine finds out by itself, answers alike, and says what it missed."""
    prompt = served.model.prompt(chunks)
    placed = [
        PlacedChunk(NO_FILE if index - 1 in missing else output.key, output.span)
        for index, output in enumerate(served.model.placed(chunks, prompt))
    ]
    answered = served.ask(prompt, StitchPlan(tuple(placed)), max_tokens=12, logprobs=5)
    reference = expected(served, chunks, missing)
    assert answered.token_ids == reference.token_ids
    assert answered.logprobs == reference.logprobs
    assert answered.report.recomputed == sum(chunks[index].num_tokens for index in missing)
    assert answered.report.recomputed_spans == merge(prompt.chunks[index] for index in missing)
    assert len(answered.report.failed_keys) == len(missing)


def test_a_missing_prefix_is_recomputed(served: World, chunks: list[Chunk]) -> None:
    """The prefix is a chunk like any other."""
    prompt = served.model.prompt(chunks)
    _, *rest = served.model.placed(chunks, prompt)
    answered = served.ask(prompt, StitchPlan((PlacedChunk(NO_FILE, prompt.prefix), *rest)))
    assert answered.report.recomputed == prompt.prefix.num_tokens


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "not safetensors"])
def test_a_corrupt_file_is_recomputed_counted_and_removed(served: World, chunks: list[Chunk], damage: str) -> None:
    """A checksum that does not match is a miss."""
    model, prompt, chunk = served.model, served.model.prompt(chunks), chunks[1]
    path = model.store.path(model.keys.chunk(chunk.token_ids))
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(damaged(whole, damage))
    answered = served.ask(prompt, model.plan(chunks), max_tokens=12, logprobs=5)
    assert answered.report.failed_keys == (path.stem,)
    assert not path.exists()
    served.ingest([chunk])
    assert answered.token_ids == expected(served, chunks, [1]).token_ids


def damaged(whole: bytes, damage: str) -> bytes:
    middle = len(whole) // 2
    return {
        "truncated": whole[:middle],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "empty": b"",
        "not safetensors": b"\xff" * 4096,
    }[damage]


def test_it_is_said_which_files_lay_in_memory(served: World, chunks: list[Chunk]) -> None:
    """A file that the kernel let go is read from the disk, the others are not."""
    model, prompt, plan = served.model, served.model.prompt(chunks), served.model.plan(chunks)
    keys = {model.keys.prefix(), *(model.keys.chunk(chunk.token_ids) for chunk in chunks)}
    gone = model.keys.chunk(chunks[1].token_ids)
    with kept(map(model.store.path, keys - {gone})):
        let_go(model.store.path(gone))
        assert served.ask(prompt, plan).report.host_keys == keys - {gone}
    with kept(map(model.store.path, keys)):
        assert served.ask(prompt, plan).report.host_keys == keys


def test_kv_of_another_length_is_not_used(served: World, chunks: list[Chunk]) -> None:
    """A key that names other tokens' KV is a miss."""
    prompt = served.model.prompt(chunks)
    placed = list(served.model.placed(chunks, prompt))
    placed[2] = PlacedChunk(served.model.keys.prefix(), placed[2].span)
    assert served.ask(prompt, StitchPlan(tuple(placed))).report.failed_keys == (served.model.keys.prefix(),)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_recomputes_its_share(served: World, chunks: list[Chunk], policy: str) -> None:
    """The ratio asked for is the share of the context that runs through the model again."""
    prompt, ratio = served.model.prompt(chunks), 0.25
    question = query_vectors(served) if POLICIES[policy].needs_question_vectors else None
    recompute = Recompute(policy, ratio, block_size_of(policy))
    plan = served.model.planner.plan(prompt, served.model.located(chunks), recompute, question)
    report = served.ask(prompt, plan).report
    context = sum(chunk.num_tokens for chunk in chunks)
    share = 0 if policy == "none" else ratio * context
    assert report.recomputed == pytest.approx(share, abs=16)
    assert report.stitched + report.recomputed == prompt.question.start
    assert report.recomputed_spans is not None
    assert total_tokens(report.recomputed_spans) == report.recomputed


def query_vectors(world: World) -> "object":
    """The question's initial vectors, as the service gets them."""
    prompts, keys, layout = world.model.prompts, world.model.keys, world.model.layout
    ids = (*prompts.prefix_ids, *prompts.question_ids("Who directed the film?"))
    prefix, rest = Span(0, len(prompts.prefix_ids)), Span(len(prompts.prefix_ids), len(ids))
    plan = StitchPlan((PlacedChunk(keys.prefix(), prefix), PlacedChunk(None, rest)))
    asked = Generate(ids, "a salt", plan, max_tokens=2, ignore_eos=True, capture=rest)
    queries = unpack_queries(run_in_background(world.answer(asked)).report.queries)
    assert queries.shape == (len(layout.q_layers), layout.q_heads, layout.head_dim)
    assert queries.abs().sum() > 0
    return queries


def test_prompts_of_one_step_do_not_touch_each_other(served: World) -> None:
    """Several stitched and full requests at once answer as each does alone."""
    model = served.model
    sets = [model.chunks[start : start + 3] for start in (0, 3, 6, 9)]
    plans = [None if index == 1 else model.plan(chunks) for index, chunks in enumerate(sets)]
    plans[2] = model.plan(sets[2], model.prompt(sets[2]).chunks[1:2])
    alone = [served.ask(model.prompt(c), p, max_tokens=8) for c, p in zip(sets, plans, strict=True)]
    together = served.ask_all([request(model.prompt(c), p, max_tokens=8) for c, p in zip(sets, plans, strict=True)])
    assert [a.token_ids for a in together] == [a.token_ids for a in alone]
    assert [a.report.recomputed for a in together] == [a.report.recomputed for a in alone]


def test_the_same_cache_variant_is_found_in_the_engines_own_cache(served: World) -> None:
    """Same salt, same ids: a device-tier hit, and only what lies beyond it is stitched."""
    model, salt = served.model, "one tenant, one variant"
    short, longer = model.chunks[0:4], model.chunks[0:8]
    served.ask(model.prompt(short), model.plan(short), salt=salt)
    hit = served.ask(model.prompt(longer), model.plan(longer), salt=salt, max_tokens=8)
    fresh = served.ask(model.prompt(longer), model.plan(longer), max_tokens=8)
    assert hit.report.cached > 0
    assert hit.report.cached + hit.report.stitched == fresh.report.stitched
    assert hit.token_ids == fresh.token_ids


def test_another_salt_finds_nothing(served: World) -> None:
    """Approximate KV never meets exact KV, nor another tenant's."""
    model, chunks = served.model, served.model.chunks[0:4]
    served.ask(model.prompt(chunks), model.plan(chunks), salt="approximate")
    assert served.ask(model.prompt(chunks), salt="exact").report.cached == 0


def test_a_prompt_beyond_the_window_is_refused_with_what_to_do(served: World) -> None:
    """Before it reaches the engine."""
    prompt = served.model.prompt(served.model.chunks[:1])
    with pytest.raises(Exception, match="the model's window is"):
        served.ask(prompt, max_tokens=served.model.settings.max_model_len)
