"""Sampling and structured answers over stitched KV, in the engine of this process and in a server."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragkv.chunk import Chunk
from ragkv.engine.protocol import GREEDY, Sampling
from ragkv.errors import Rejected
from ragkv.tokenizer import Tokenizer
from tests.engine.world import World

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "born": {"type": "integer", "maximum": 2100}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


@pytest.fixture
def chunks(served: World) -> list[Chunk]:
    return served.model.chunks[5:8]


def answer(world: World, chunks: Sequence[Chunk], sampling: Sampling, max_tokens: int = 24) -> str:
    prompt = world.model.prompt(chunks)
    answered = world.ask(
        prompt, world.model.plan(chunks), sampling=sampling, max_tokens=max_tokens, ignore_eos=sampling.schema is None
    )
    return Tokenizer.load(Path(world.model.settings.model)).decode(list(answered.token_ids))


def test_a_seed_gives_the_same_answer_again_and_another_seed_another(served: World, chunks: list[Chunk]) -> None:
    warm = Sampling(temperature=1.5, seed=7)
    assert answer(served, chunks, warm) == answer(served, chunks, warm)
    assert answer(served, chunks, warm) != answer(served, chunks, Sampling(temperature=1.5, seed=8))


def test_without_temperature_the_other_fields_of_sampling_change_nothing(served: World, chunks: list[Chunk]) -> None:
    assert answer(served, chunks, Sampling(top_p=0.3, seed=7)) == answer(served, chunks, GREEDY)


def test_an_answer_follows_its_schema(served: World, chunks: list[Chunk]) -> None:
    text = answer(served, chunks, Sampling(schema=json.dumps(PERSON)), max_tokens=80)
    person = json.loads(text)
    compact = json.dumps(person, separators=(",", ":"), ensure_ascii=False)  # small models go on with white space
    assert text in (compact, json.dumps(person, ensure_ascii=False))  # the latter with vLLM 0.25
    assert person.keys() == {"name", "born"}
    assert isinstance(person["born"], int)
    assert isinstance(person["name"], str)


def test_a_schema_that_cannot_be_followed_is_refused(served: World, chunks: list[Chunk]) -> None:
    """Also one that vLLM would check with another backend than that of the engine, which would leave out a part."""
    for schema in ({"type": "nothing"}, {"type": "integer", "multipleOf": 7}):
        with pytest.raises(Rejected, match="refused"):
            answer(served, chunks, Sampling(schema=json.dumps(schema)))
    assert answer(served, chunks, GREEDY)


def test_a_schema_that_compiles_only_in_part_is_no_empty_answer(served: World, chunks: list[Chunk]) -> None:
    """vLLM takes the request, and gives it up without an exception."""
    with pytest.raises(Rejected, match="could not follow the schema"):
        answer(served, chunks, Sampling(schema='{"type": "string", "pattern": "^.{1,200}$"}'))
    assert answer(served, chunks, GREEDY)
