"""The time to first token and the other measurements with an engine of their own: what is refused before it starts."""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench.command import _measure, table_of
from bench.remote import _measured
from bench.serving.command import _ask_engine
from bench.serving.load import Plan
from bench.ttft import RATIOS, Bench, TtftReport, TtftRow, _passages
from ragkv.answer.planner import Planner
from ragkv.answer.prompt import PromptBuilder, Wording
from ragkv.chunk import Chunk
from ragkv.cli import main
from ragkv.engine.protocol import Generate, Output
from ragkv.errors import Rejected
from ragkv.kv.key import KeyMaker
from ragkv.kv.store import KVStore
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from ragkv.tokenizer import Tokenizer
from tests.support.echo_engine import EchoEngine

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
    with pytest.raises(Rejected, match="the collection has only 60 tokens, but 64 are needed"):
        _passages([chunk(0, 30), chunk(1, 30)], 64)


def test_the_floor_is_asked_for_just_before_it_is_measured(language_model: Path, tmp_path: Path):
    """Other methods' prompts may have taken its place in a small cache: it would be measured as full prefill."""
    salts: list[str] = []

    class Recording(EchoEngine):
        async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
            salts.append(request.salt)
            async for output in super().generate(request):
                yield output

    async def measured() -> list[TtftRow]:
        engine = Recording(Settings())
        await engine.start()
        prompts = PromptBuilder(Tokenizer.load(language_model), Wording("Be brief."), 1000)
        keys = KeyMaker(b"secret", "", "", prompts.prefix_ids)
        bench = Bench(engine, prompts, Planner(KVStore(tmp_path)), keys, "none", 16, ratios=())
        chunks = [chunk(0, 30), chunk(1, 30)]
        return [row async for row in bench.measure(chunks, [40], 2, lambda line: None)]

    rows = asyncio.run(measured())

    assert [(row.method, row.runs) for row in rows] == [("full", 2), ("floor", 2)]
    floor = salts[1]
    assert [salt == floor for salt in salts] == [False, True, True] * 3


def test_the_table_fits_eighty_columns():
    methods = [("full", None), ("floor", None), *(("stitched", ratio) for ratio in RATIOS)]
    rows = [TtftRow(6144, 20, method, ratio, None, 13.454 if method == "full" else 1.0, 5) for method, ratio in methods]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table_of(TtftReport("m", "here", rows)))
    lines = console.export_text().splitlines()
    assert " ".join(lines[-2].split()) == "context full s floor s 0% s 5% s 10% s 15% s full / 0% 0% / floor full / 10%"
    assert lines[-1].split() == ["6,144", "13.454", *["1.000"] * 5, "13.45x", "1.00x", "13.45x"]


@pytest.mark.parametrize("policy", ["contextual", "initial"])
@pytest.mark.parametrize(
    "measure",
    [
        lambda parts: _measure(parts, (64,), 1),
        lambda parts: _ask_engine(parts, LOAD, "default"),
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
