"""The time to first token and the other measurements with an engine of their own: what is refused before it starts."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.command import _measure
from bench.remote import _measured
from bench.serving.command import _ask_engine
from bench.serving.load import Plan
from bench.ttft import _passages
from ragkv.chunk import Chunk
from ragkv.cli import main
from ragkv.errors import Rejected
from ragkv.service.parts import Parts
from ragkv.settings import Settings

LOAD = Plan(clients=1, rate=None, context=64, answer=2, questions=1, rounds=1, modes=("stitched",))


def chunk(number: int, tokens: int) -> Chunk:
    return Chunk(f"c{number}", "d", number, "T", "t", 0, 1, None, (1,) * tokens)


def test_a_context_has_chunks_of_at_most_its_size():
    chunks = [chunk(number, 30) for number in range(5)]
    assert [passage.chunk for passage in _passages(chunks, 100)] == chunks[:3]


def test_a_size_without_room_for_a_passage_is_refused():
    """The prefix alone would be measured as stitched."""
    with pytest.raises(Rejected, match="--size 64 has no room for a passage: the first one has 200 tokens"):
        _passages([chunk(0, 200)], 64)


def test_more_context_than_there_is_text_is_refused():
    with pytest.raises(Rejected, match="there are only 60 tokens of text, but 64 are needed"):
        _passages([chunk(0, 30), chunk(1, 30)], 64)


@pytest.mark.parametrize("policy", ["contextual", "initial"])
@pytest.mark.parametrize(
    "measure",
    [
        lambda parts: _measure(parts, (64,), 1),
        lambda parts: _ask_engine(parts, LOAD),
        lambda parts: _measured(parts, 64, 1, 1, 2),
    ],
    ids=["ttft", "serve", "remote"],
)
def test_a_policy_that_needs_the_questions_vectors_is_refused(
    measure: Callable[[Parts], Coroutine[Any, Any, object]], policy: str, tmp_path: Path
):
    parts = Parts(Settings(data_dir=tmp_path, recompute_policy=policy))
    with pytest.raises(Rejected, match=f"RAGKV_RECOMPUTE_POLICY={policy} needs the question's vectors"):
        asyncio.run(measure(parts))


@pytest.mark.parametrize("command", ["ttft", "api"])
def test_a_report_that_could_not_be_written_is_refused_first(command: str, tmp_path: Path):
    done = CliRunner().invoke(main, ["bench", command, "--json", str(tmp_path / "nowhere" / "x.json")])
    assert done.exit_code == 1
    assert "there is no folder" in done.output
