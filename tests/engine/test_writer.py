"""KV that a writer wrote: stitched like any other, exact behind the prefix alone, plain wherever it is recomputed."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.writer.reading import Reader, Tail
from bench.writer.trainable import TrainableAdapter
from ragkv.answer.recompute import Recompute
from ragkv.chunk import Chunk
from ragkv.kv.key import KeyMaker
from ragkv.models import Fingerprints
from tests.engine.world import World, kl, whole_context


@dataclass
class Written:
    """Chunks whose KV a writer with weights of its own wrote, and the model that it belongs to."""

    chunks: list[Chunk]
    keys: KeyMaker
    reader: Reader


@pytest.fixture(scope="module")
def written(exact: World) -> Written:
    world = exact.model
    model = AutoModelForCausalLM.from_pretrained(world.settings.model, dtype=torch.float32).eval()
    adapter = TrainableAdapter.new(model)
    torch.manual_seed(0)
    for parameter in adapter.parameters:
        parameter.data.normal_(0, 0.02)
    world.settings.writer_dir.mkdir(parents=True, exist_ok=True)
    adapter.save(world.settings.writer_dir)
    adapter.round()  # as it is saved
    keys = dataclasses.replace(world.keys, writer=Fingerprints().adapter(world.settings.writer_dir))
    chunks = [world.chunks[index] for index in (4, 9, 1)]
    exact.ingest(chunks, keys)
    return Written(chunks, keys, Reader(model, adapter, world.prompts.prefix_ids))


def plan_of(world: World, written: Written, recompute: Recompute, keys: KeyMaker | None = None):
    prompt = world.model.prompt(written.chunks)
    return world.model.planner.plan(prompt, world.model.located(written.chunks, keys or written.keys), recompute, None)


@pytest.mark.parametrize("policy", ["question", "head"])
def test_recomputing_everything_gives_full_prefills_next_token_distribution(
    exact: World, written: Written, policy: str
) -> None:
    """The oracle, whatever wrote the KV: the first chunk is recomputed too, by the plain model."""
    prompt = exact.model.prompt(written.chunks)
    full = exact.ask(prompt, logprobs=-1)

    recomputed = exact.ask(prompt, plan_of(exact, written, Recompute(policy, 1.0, 4)), logprobs=-1)

    assert recomputed.report.recomputed == whole_context(prompt).num_tokens
    assert kl(full.logprobs[0], recomputed.logprobs[0]) <= 0.005


def test_the_engine_reads_what_training_reads(exact: World, written: Written) -> None:
    """Nothing recomputed: the distribution that the loss is made of is the one that is served."""
    prompt = exact.model.prompt(written.chunks)
    question = prompt.token_ids[prompt.question.start : prompt.question.end]
    with torch.no_grad():
        context = written.reader.write([chunk.token_ids for chunk in written.chunks])
        [reading] = written.reader.stitched(context, [Tail(question, (0,))])

    served = exact.ask(prompt, plan_of(exact, written, Recompute("none", 0.0, 4)), logprobs=-1)

    assert kl(served.logprobs[0], dict(enumerate(reading.logprobs[0].tolist()))) <= 0.005


def test_it_is_not_what_the_plain_model_wrote(exact: World, written: Written) -> None:
    """The tests above can fail: this writer's KV gives another distribution than the plain model's."""
    prompt = exact.model.prompt(written.chunks)
    nothing = Recompute("none", 0.0, 4)

    ours = exact.ask(prompt, plan_of(exact, written, nothing), logprobs=-1)
    plain = exact.ask(prompt, plan_of(exact, written, nothing, exact.model.keys), logprobs=-1)

    assert kl(plain.logprobs[0], ours.logprobs[0]) > 0.005


def test_the_first_chunk_may_be_recomputed_in_part(exact: World, written: Written) -> None:
    """It stands where it was prefilled, but the plain model did not write it."""
    prompt = exact.model.prompt(written.chunks)

    spans = exact.ask(prompt, plan_of(exact, written, Recompute("question", 0.5, 4))).report.recomputed_spans

    assert any(span.start < prompt.chunks[0].end for span in spans)


def test_one_chunk_is_prefilled_in_full(exact: World, written: Written) -> None:
    chunk = written.chunks[:1]

    assert (
        exact.model.planner.plan(
            exact.model.prompt(chunk), exact.model.located(chunk, written.keys), Recompute("question", 0.1, 4), None
        )
        is None
    )
