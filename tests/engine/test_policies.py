"""Policies that the engine carries out, and rivals' methods, do what their papers say, held against straightforward
references."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from bench.fidelity.methods import infoflow_layers
from ragkv.answer.planner import behind_prefix
from ragkv.answer.prompt import Prompt
from ragkv.chunk import Chunk
from ragkv.connector.connector import _added
from ragkv.connector.prefill import QCACHE_VIEW
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Generate, QueryVectors, Report
from ragkv.engine.wire import plan_to_wire, unpack_queries
from ragkv.span import Span, merge, total_tokens
from ragkv.stitch.plan import EngineSelection, StitchPlan
from ragkv.stitch.policies import DEFAULT_CHOICE, Choice
from ragkv.stitch.select import ChunkEvidence, Evidence, select_head, take_blocks
from tests.engine.reference import reader_of, stitched_cache
from tests.engine.world import Model, World
from tests.support.made_kv import stored_kv

RATIO = 0.15
INFOFLOW = Choice(tuple(infoflow_layers(30)))
LONG_QUESTION = "The question is long. " * 90 + "Who directed the film, and where were they born?"


@pytest.fixture(scope="module")
def chunks(exact: World) -> list[Chunk]:
    return [exact.model.chunks[index] for index in (9, 2, 14, 5, 11)]


def test_captured_queries_are_those_of_prefill(exact: World) -> None:
    """Un-rotated, their mean in each layer of the Q-Cache. The last token runs in an ordinary step, unseen."""
    model = exact.model
    question_ids = model.prompts.question_ids(LONG_QUESTION)
    question = exact.prefilled(model.prompts.prefix_ids, question_ids[:-1])
    asked = behind_prefix(model.prompts.prefix_ids, question_ids, model.keys)
    end = len(asked.token_ids) - 1

    answered = run_in_background(exact.answer(replace(asked, capture=Span(end - QCACHE_VIEW, end))))

    torch.testing.assert_close(unpack_queries(answered.report.queries), question.local, atol=2e-3, rtol=2e-2)


def test_what_was_captured_before_a_preemption_stays() -> None:
    """The question's beginning is in vLLM's cache by then: only its end runs again."""
    vectors = [QueryVectors((1, 1, 1), content) for content in (b"1234", b"5678")]
    whole, end = (Report(fills=1, kv_load_ms=1.0, queries=queries) for queries in vectors)

    added = _added(whole, end)

    assert (added.fills, added.queries) == (2, whole.queries)


def test_deviation_is_cacheblends(exact: World, chunks: list[Chunk]) -> None:
    """CacheBlend, arXiv 2405.16444, section 4.3: the tokens whose layer-1 keys full prefill would change most.

    The reference prefills the whole prompt. Distances are the same before rotation: it is orthogonal.
    """
    prompt = exact.model.prompt(chunks)
    whole = exact.prefilled((), prompt.token_ids)
    changed = [
        (whole.keys[1, s.start : s.end] - keys[1]).square().sum((1, 2)) for s, keys in stored(exact.model, chunks)
    ]
    chosen = choose(exact, chunks, "deviation", block_size=1)
    assert overlap(chosen, reference(exact.model, chunks, changed, block_size=1)) >= 0.97


@pytest.mark.parametrize("choice", [DEFAULT_CHOICE, Choice((3, 20, 29))], ids=lambda choice: choice.text)
def test_question_is_what_the_question_attends_to(exact: World, chunks: list[Chunk], choice: Choice) -> None:
    """The reference reads the stitched KV with Transformers' own eager attention and takes its weights."""
    model, prompt = exact.model, exact.model.prompt(chunks)
    seen = Span(0, prompt.chunks[-1].end)
    layers = attention_over_stitched(model, chunks)
    chosen_layers = [layers[layer][:, -4:] for layer in choice.layers_of(model.layout.layers)]
    scores = sum(renormalised(weights, seen).mean((0, 1)) for weights in chosen_layers)
    chosen = choose(exact, chunks, "question", 4, choice)
    assert overlap(chosen, reference(model, chunks, by_chunk(scores, prompt), block_size=4)) >= 0.97


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_request_selects_by_its_whole_question(exact: World, chunks: list[Chunk], count: int) -> None:
    """vLLM gives a request no cache blocks for its question while the context before it is filled: one that does not
    fit into the context's last block."""
    prompt = exact.model.prompt(chunks[:count], LONG_QUESTION)
    plan = StitchPlan(exact.model.placed(chunks[:count], prompt), selection=EngineSelection("question", RATIO, 4))
    assert prompt.question.num_tokens > 3 * 128

    answered = exact.ask(prompt, plan)

    assert answered.report.recomputed_spans == merge(chosen_in(exact, prompt, plan))


def test_blocks_lent_to_a_question_are_given_back_as_they_were(exact: World) -> None:
    [(lent, unchanged)] = run_in_background(exact.engine._llm.collective_rpc("lend_blocks", args=([0, 2, 5], 3)))
    assert lent == [1, 3, 4]
    assert unchanged


def test_another_choice_chooses_otherwise(exact: World, chunks: list[Chunk]) -> None:
    """The test above can fail."""
    choices = (DEFAULT_CHOICE, Choice((3, 20, 29)))
    assert len({choose(exact, chunks, "question", 4, choice) for choice in choices}) == len(choices)


def test_layers_that_the_model_lacks_cost_time_and_no_answer(exact: World, chunks: list[Chunk]) -> None:
    """A plan of another model's: its context is recomputed whole, exactly."""
    prompt = exact.model.prompt(chunks)
    selection = EngineSelection("question", RATIO, 4, choice=Choice((30,)))
    plan = StitchPlan(exact.model.placed(chunks, prompt), selection=selection)

    answered = exact.ask(prompt, plan)

    assert answered.report.recomputed == plan.end
    assert answered.token_ids == exact.ask(prompt).token_ids


def test_infoflow_is_infoflow_kvs(exact: World, chunks: list[Chunk]) -> None:
    """InfoFlow KV, arXiv 2603.05353: all of the question's tokens, the model's own softmax, the mean over heads, its L2
    norm over queries. Layers 22 to 25 of 40 are 16 to 19 of this model's 30."""
    layers = attention_over_stitched(exact.model, chunks)[16:20]
    scores = sum(weights.mean(0).norm(dim=0) for weights in layers)
    chosen = choose(exact, chunks, "infoflow", 1, INFOFLOW)
    expected = reference(exact.model, chunks, by_chunk(scores, exact.model.prompt(chunks)), block_size=1)
    assert overlap(chosen, expected) >= 0.97


def test_head_is_epics() -> None:
    """EPIC, arXiv 2410.15332, section 4: the first k tokens of every chunk; a shorter chunk's share goes to the
    others."""
    spans = [Span(10, 40), Span(40, 45), Span(45, 99)]
    chosen = select_head(Evidence(tuple(ChunkEvidence(span) for span in spans)), 25)
    assert chosen == (Span(10, 20), Span(40, 55))


def test_the_first_chunk_is_never_paid_for(exact: World, chunks: list[Chunk]) -> None:
    """It stands where it was prefilled: what is stored is exact."""
    first = exact.model.prompt(chunks).chunks[0]
    for policy, choice in (("deviation", DEFAULT_CHOICE), ("question", DEFAULT_CHOICE), ("infoflow", INFOFLOW)):
        assert all(span.start >= first.end for span in choose(exact, chunks, policy, 4, choice))
    alone = choose(exact, chunks[:1], "question", block_size=4)
    assert alone == ()


def choose(
    world: World, chunks: Sequence[Chunk], policy: str, block_size: int, choice: Choice = DEFAULT_CHOICE
) -> tuple[Span, ...]:
    """What the engine chooses to recompute."""
    prompt = world.model.prompt(chunks)
    selection = EngineSelection(policy, RATIO, block_size, choice=choice)
    return chosen_in(world, prompt, StitchPlan(world.model.placed(chunks, prompt), selection=selection))


def chosen_in(world: World, prompt: Prompt, plan: StitchPlan) -> tuple[Span, ...]:
    """What the engine chooses where a request has all the cache blocks it needs."""
    params = plan_to_wire(Generate(prompt.token_ids, "", plan))
    [spans] = run_in_background(world.engine._llm.collective_rpc("chosen", args=(params, list(prompt.token_ids))))
    return tuple(Span(start, end) for start, end in spans)


def reference(
    model: Model, chunks: Sequence[Chunk], scores: Sequence[torch.Tensor], block_size: int
) -> tuple[Span, ...]:
    """The best blocks of all chunks but the first, up to RATIO of all chunks' tokens."""
    spans = model.prompt(chunks).chunks
    return take_blocks(spans[1:], torch.cat(list(scores)), block_size, round(RATIO * total_tokens(spans)))


def stored(model: Model, chunks: Sequence[Chunk]) -> list[tuple[Span, torch.Tensor]]:
    """Span and un-rotated keys [layers, tokens, kv_heads, head_dim] of every chunk but the first."""
    spans = model.prompt(chunks).chunks
    kvs = [stored_kv(model.store, model.keys.chunk(chunk.token_ids), model.layout) for chunk in chunks]
    return [(span, kv.keys) for span, kv in zip(spans[1:], kvs[1:], strict=True)]


def attention_over_stitched(model: Model, chunks: Sequence[Chunk]) -> list[torch.Tensor]:
    """Weights of the question's tokens over the whole prompt, for each layer [q_heads, question, tokens]."""
    reader, prompt = reader_of(model), model.prompt(chunks)
    question = torch.tensor([prompt.token_ids[prompt.question.start :]])
    with torch.inference_mode():
        seen = reader(question, past_key_values=stitched_cache(reader, model, chunks), output_attentions=True)
    return [weights[0] for weights in seen.attentions]


def renormalised(weights: torch.Tensor, over: Span) -> torch.Tensor:
    """Weights [..., tokens] as shares of what the span gets, query by query and head by head; 0 elsewhere."""
    kept = torch.zeros_like(weights)
    kept[..., over.start : over.end] = weights[..., over.start : over.end]
    return kept / kept.sum(-1, keepdim=True)


def by_chunk(scores: torch.Tensor, prompt: Prompt) -> list[torch.Tensor]:
    """The scores [tokens] of every chunk but the first."""
    return [scores[span.start : span.end] for span in prompt.chunks[1:]]


def overlap(one: Sequence[Span], other: Sequence[Span]) -> float:
    """Share of positions that both have, of those that either has."""
    left, right = ({p for span in spans for p in range(span.start, span.end)} for spans in (one, other))
    return len(left & right) / len(left | right)
