"""Chunks of which a share of the tokens has KV: what the engine makes of them, and what a question to such a collection
gets, with the whole service but HTTP around a real engine, in float32."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from bench.writer.reading import KV, Reader, Tail
from ingest.local import ingest_files
from ingest.parts import IngestParts
from ragkv.answer.planner import lay_out
from ragkv.answer.prompt import Prompt
from ragkv.answer.question import Answer, Question
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk
from ragkv.engine.loop import run_in_background
from ragkv.ids import new_id
from ragkv.kv.key import KeyMaker
from ragkv.kv.rule import Compression, CompressionMethod
from ragkv.service.evaluations.fidelity import FidelityMeter
from ragkv.service.kv_admin.entry_statements import KVOwner
from ragkv.service.kv_admin.rules import KVRulePatch, change_rule
from ragkv.service.parts import Parts
from ragkv.span import Span
from ragkv.stitch.located import LocatedPassage
from ragkv.stitch.plan import StitchPlan
from tests.conftest import lend_models
from tests.engine.world import SAMPLE, World, kl, whole_context
from tests.support.made_kv import stored_kv

HALF = Compression(CompressionMethod.LAQ, 0.5)
NOTHING = Recompute("none", 0.0, 4)
INDICES = (4, 9, 1)
QUESTION, ANSWER = "Who directed the film Madame la Presidente?", "Frank Lloyd"


class NoWriter:
    """The plain model as a writer."""

    disabled = nullcontext


@pytest.fixture(scope="module")
def parts(exact: World, loaded: IngestParts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Parts over the engine with a database of their own: the rule of its default collection changes here."""
    database = f"sqlite:///{tmp_path_factory.mktemp('compressed') / 'ragkv.sqlite3'}"
    parts = Parts(msgspec.structs.replace(exact.model.settings, database_url=database), exact.engine)
    lend_models(parts, loaded)
    parts.prepare()
    yield parts
    parts.close()


@pytest.fixture(scope="module")
def chunks(exact: World) -> list[Chunk]:
    return [exact.model.chunks[index] for index in INDICES]


@pytest.fixture
def keys(exact: World, chunks: list[Chunk]) -> KeyMaker:
    """Of chunks that keep half of their tokens."""
    keys = dataclasses.replace(exact.model.keys, compression=HALF)
    exact.ingest(chunks, keys)
    return keys


def planned(
    world: World, chunks: Sequence[Chunk], keys: KeyMaker, recompute: Recompute
) -> tuple[tuple[LocatedPassage, ...], Prompt, StitchPlan]:
    located = lay_out(world.model.located(chunks, keys), recompute)
    prompt = world.model.prompt([passage.chunk for passage in located.passages])
    plan = world.model.planner.plan(prompt, located, recompute, None)
    assert plan is not None
    return located.passages, prompt, plan


def context_of(world: World, chunks: Sequence[Chunk], keys: KeyMaker, model: torch.nn.Module) -> KV:
    """The prefix's KV and what stays of each chunk's, one behind the other: rows of the KV of all tokens, each turned
    to where it now stands."""
    store, layout = world.model.store, world.model.layout
    rows = []
    for key, kept in [
        (keys.prefix(), None),
        *((world.model.keys.chunk(c.token_ids), store.kept(keys.chunk(c.token_ids))) for c in chunks),
    ]:
        kv = stored_kv(store, key, layout)
        chosen = range(kv.num_tokens) if kept is None else kept
        rows.append((kv.keys[:, list(chosen)], kv.values[:, list(chosen)]))
    together = [torch.cat(kind, 1) for kind in zip(*rows, strict=True)]
    un_rotated, values = (each.transpose(1, 2) for each in together)
    cos, sin = model.model.rotary_emb(values[:1], torch.arange(values.shape[2])[None])
    turned = [apply_rotary_pos_emb(layer[None], layer[None], cos, sin)[1] for layer in un_rotated]
    return [(keys_, layer[None]) for keys_, layer in zip(turned, values, strict=True)]


def test_the_engine_reads_the_kept_tokens_at_the_places_where_they_now_stand(
    exact: World, chunks: list[Chunk], keys: KeyMaker
) -> None:
    laid_out, prompt, plan = planned(exact, chunks, keys, NOTHING)
    assert whole_context(prompt).num_tokens == pytest.approx(sum(c.num_tokens for c in chunks) / 2, abs=len(chunks))
    model = AutoModelForCausalLM.from_pretrained(exact.model.settings.model, dtype=torch.float32).eval()
    question = prompt.token_ids[prompt.question.start : prompt.question.end]
    reader = Reader(model, NoWriter(), exact.model.prompts.prefix_ids)
    with torch.no_grad():
        [reading] = reader.stitched(context_of(exact, chunks, keys, model), [Tail(question, (0,))])

    answered = exact.ask(prompt, plan, logprobs=-1)

    assert answered.report.failed_keys == ()
    assert answered.report.recomputed == 0
    assert kl(answered.logprobs[0], dict(enumerate(reading.logprobs[0].tolist()))) <= 0.005
    assert [one.chunk.text for one in laid_out] == [chunk.text for chunk in chunks]


def test_recomputing_everything_is_full_prefill_of_all_tokens(
    exact: World, chunks: list[Chunk], keys: KeyMaker
) -> None:
    """The oracle: nothing is left out of a prompt that is recomputed anyway."""
    full = exact.model.prompt(chunks)
    _, prompt, plan = planned(exact, chunks, keys, Recompute("question", 1.0, 4))
    assert prompt == full

    wanted, got = exact.ask(full, logprobs=-1), exact.ask(prompt, plan, logprobs=-1)

    assert got.report.recomputed == whole_context(prompt).num_tokens
    assert kl(wanted.logprobs[0], got.logprobs[0]) <= 0.005


def test_what_is_left_recomputed_in_place_is_full_prefill_of_the_shortened_prompt(
    exact: World, chunks: list[Chunk], keys: KeyMaker
) -> None:
    _, prompt, plan = planned(exact, chunks, keys, NOTHING)
    whole = msgspec.structs.replace(plan, recompute=(Span(prompt.prefix.end, prompt.question.start),))

    wanted, got = exact.ask(prompt, logprobs=-1), exact.ask(prompt, whole, logprobs=-1)

    assert kl(wanted.logprobs[0], got.logprobs[0]) <= 0.005
    assert kl(wanted.logprobs[0], exact.ask(prompt, plan, logprobs=-1).logprobs[0]) > 0.005


def test_other_tokens_in_the_place_of_the_planned_ones_are_recomputed_and_counted(
    exact: World, chunks: list[Chunk], keys: KeyMaker
) -> None:
    """As many, of the same chunk, in a file that was written between the plan and the step."""
    _, prompt, plan = planned(exact, chunks, keys, NOTHING)
    key, store = keys.chunk(chunks[1].token_ids), exact.model.store
    there = stored_kv(store, key, exact.model.layout)
    others = sorted(set(range(chunks[1].num_tokens)) - set(there.kept.tolist()))[: len(there.kept)]
    others = (others + there.kept.tolist())[: len(there.kept)]
    store.put(key, dataclasses.replace(there, kept=torch.tensor(sorted(others), dtype=torch.int32)))
    expected = msgspec.structs.replace(plan, recompute=(prompt.chunks[1],))

    answered = exact.ask(prompt, plan, logprobs=-1)

    assert answered.report.failed_keys == (key,)
    assert answered.report.recomputed == prompt.chunks[1].num_tokens
    assert kl(exact.ask(prompt, expected, logprobs=-1).logprobs[0], answered.logprobs[0]) <= 1e-4
    store.delete([key])


@pytest.fixture(scope="module")
def asked(exact: World, parts: Parts, loaded: IngestParts, tmp_path_factory) -> Question:
    """A question to a collection whose rule keeps KV of half of the tokens, as its worker did."""
    ref = parts.default_collection
    change_rule(KVOwner(ref.tenant_id, ref.collection_id), KVRulePatch(compress="laq", keep=0.5), parts)
    ingest = IngestParts(parts)
    ingest.prefiller, ingest.parser = exact.prefiller, loaded.parser
    file: Path = tmp_path_factory.mktemp("documents") / "films.md"
    file.write_text((SAMPLE / "films.md").read_text()[:2500])
    assert ingest_files([file], ingest, Console(quiet=True)).read == 1
    return Question(ref.tenant_id, ref.collection_id, QUESTION, top_k=4, max_tokens=16)


def answer_to(question: Question, world: World, parts: Parts) -> Answer:
    async def last() -> Answer:
        once = dataclasses.replace(question, id=new_id())
        events = [event async for event in parts.answerer.uncached.stream(once)]
        assert isinstance(events[-1], Answer)
        return events[-1]

    return run_in_background(last())


class TestQuestions:
    def test_half_of_the_tokens_answer_and_the_whole_text_is_cited(self, exact: World, parts: Parts, asked: Question):
        answer = answer_to(asked, exact, parts)
        full = answer_to(dataclasses.replace(asked, mode="full"), exact, parts)

        whole = sum(passage.chunk.num_tokens for passage in answer.passages)
        left = sum(one.tokens for one in answer.kv)
        assert left == pytest.approx(whole / 2, abs=len(answer.kv))
        assert full.usage.prompt - answer.usage.prompt == whole - left
        assert {one.source for one in answer.kv} <= {"disk", "host"}
        assert (answer.usage.failed_chunks, answer.usage.stitched > 0) == (0, True)
        usage = answer.usage
        assert usage.prompt == usage.cached + usage.stitched + usage.recomputed + usage.computed
        assert answer.prompt_spans[-1].end == usage.prompt
        assert [p.chunk for p in answer.passages] == [p.chunk for p in full.passages]
        for citation in answer.citations:
            [cited] = {p.chunk.text for p in answer.passages if p.chunk.id == citation.chunk_id}
            assert citation.quote in cited

    def test_a_sparse_question_reads_some_of_the_passages(self, exact: World, parts: Parts, asked: Question):
        every = answer_to(asked, exact, parts)
        some = answer_to(dataclasses.replace(asked, sparse_ratio=0.5), exact, parts)

        whole = sum(passage.chunk.num_tokens for passage in every.passages)
        read = sum(passage.chunk.num_tokens for passage in some.passages)
        assert 0 < read <= whole / 2
        names = [passage.chunk.id for passage in (*some.passages, *some.omitted_passages)]
        assert sorted(names) == sorted(passage.chunk.id for passage in every.passages)
        assert len(some.kv) == len(some.passages)
        assert some.usage.failed_chunks == 0

    def test_the_same_question_again_comes_from_the_engines_cache(self, exact: World, parts: Parts, asked: Question):
        first, again = (answer_to(asked, exact, parts) for _ in "12")
        assert again.text == first.text
        assert again.usage.cached > 0

    def test_recomputing_everything_is_what_full_prefill_says(self, exact: World, parts: Parts, asked: Question):
        everything = dataclasses.replace(asked, recompute_ratio=1.0)
        meter = FidelityMeter(parts.answerer.uncached, parts.engine, parts.prompts, 16)
        outcome, _ = run_in_background(meter.measure(everything, (ANSWER,)))
        nothing, _ = run_in_background(meter.measure(dataclasses.replace(asked, policy="none"), (ANSWER,)))

        assert outcome.kl < 1e-3
        assert outcome.agree
        assert nothing.kl > 1e-2
        assert outcome.context_tokens > 1.8 * nothing.context_tokens
        assert (outcome.passages_without_kv, nothing.passages_without_kv) == (0, 0)

    def test_a_chunk_whose_file_vanishes_is_there_whole_and_counted(self, exact: World, parts: Parts, asked: Question):
        before = answer_to(asked, exact, parts)
        keys = parts.kv_keys_of(asked.tenant_id, asked.collection_id)
        lost = before.passages[0]
        parts.kv_store.delete([keys.chunk(lost.chunk.token_ids)])

        answer = answer_to(asked, exact, parts)

        assert answer.usage.failed_chunks == 1
        assert (answer.kv[0].tokens, answer.kv[0].source) == (lost.chunk.num_tokens, "recomputed")
        assert [one.tokens for one in answer.kv[1:]] == [one.tokens for one in before.kv[1:]]
