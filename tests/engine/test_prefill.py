"""Chunks that the engine prefills: the KV that it stores, beside answers, and what it refuses."""

import asyncio
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import torch

from ragkv.connector.metadata import PrefillRequest
from ragkv.connector.prefill import LAST_FILES_S, MOST_FILES, Prefills
from ragkv.connector.ranks import Ranks
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Prefill, PrefillChunk
from ragkv.errors import Unavailable
from ragkv.kv.format import KVFormat
from ragkv.kv.layout import Shard
from tests.engine.world import World, request
from tests.support.made_kv import stored_kv


def key() -> str:
    return uuid.uuid4().hex * 2


def prefill_of(world: World, number: int = 4, **fields: object) -> Prefill:
    chunks = tuple(PrefillChunk(key(), tuple(chunk.token_ids)) for chunk in world.model.chunks[:number])
    return msgspec.structs.replace(Prefill(world.model.keys.prefix(), world.model.keys.prefix_ids, chunks), **fields)


def prefill(world: World, order: Prefill) -> None:
    run_in_background(world.engine.prefill(order))


def test_a_batch_gives_what_each_chunk_gives_alone(exact: World):
    """Neither the others nor the padding of the batch is attended to."""
    together = prefill_of(exact)
    prefill(exact, together)
    for chunk in together.chunks:
        alone = exact.prefilled(together.prefix_ids, chunk.token_ids)
        kv = stored_kv(exact.model.store, chunk.key, exact.model.layout)
        assert kv.num_tokens == len(chunk.token_ids)
        for name in ("keys", "values", "initial", "local", "mean_keys"):
            torch.testing.assert_close(getattr(kv, name), getattr(alone, name), atol=1e-4, rtol=1e-4)


def test_every_format_is_made_of_the_same_kv(exact: World):
    layout, made = exact.model.layout, {}
    for kv_format in KVFormat:
        order = prefill_of(exact, 1, kv_format=kv_format)
        prefill(exact, order)
        made[kv_format] = stored_kv(exact.model.store, order.chunks[0].key, layout)
    keys = {}
    for kv_format, kv in made.items():
        keys[kv_format], values = (
            torch.empty(layout.layers, kv.num_tokens, layout.kv_heads, layout.head_dim) for _ in "kv"
        )
        kv.copy_into(keys[kv_format], values, slice(0, layout.layers), 0)
    largest = keys[KVFormat.BF16].abs().max()
    assert 0 < (keys[KVFormat.INT8] - keys[KVFormat.BF16]).abs().max() / largest < 0.02
    assert (keys[KVFormat.INT4] - keys[KVFormat.BF16]).abs().max() / largest < 0.2


def test_answers_beside_prefills_are_those_given_alone(exact: World):
    chunks = exact.model.chunks
    prompts = [request(exact.model.prompt(chunks[first : first + 6]), max_tokens=24) for first in (0, 6)]
    prompts += [replace(prompts[0], plan=exact.model.plan(chunks[:6]), salt="stitched beside prefills")]
    alone = [exact.ask_all([replace(each, salt=key())])[0] for each in prompts]

    async def both() -> list[tuple[int, ...]]:
        orders = [exact.engine.prefill(prefill_of(exact, 24)) for _ in range(3)]
        answers, *_ = await asyncio.gather(asyncio.gather(*map(exact.answer, prompts)), *orders)
        return [answer.token_ids for answer in answers]

    assert run_in_background(both()) == [answer.token_ids for answer in alone]


def test_a_prefill_that_is_given_up_leaves_the_engine_free(exact: World):
    """What was stored stays; the rest is not computed."""
    once = prefill_of(exact, 24)
    chunks = tuple(msgspec.structs.replace(chunk, key=key()) for chunk in once.chunks * 4)
    order = msgspec.structs.replace(once, chunks=chunks)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(exact.engine.prefill(order), 0.05)

    run_in_background(give_up())
    prefill(exact, prefill_of(exact, 1))
    stored = [chunk.key in exact.model.store for chunk in order.chunks]
    assert not all(stored)


def test_a_prefix_whose_file_was_lost_is_computed_again_though_its_chunks_have_theirs(exact: World):
    prefix = exact.model.keys.prefix()
    exact.model.store.drop([prefix])

    exact.ingest(exact.model.chunks)

    assert prefix in exact.model.store


def test_files_that_hang_hold_up_one_step_of_answers_and_no_other(exact: World):
    """The engine goes on; whoever waits for the files goes on waiting."""
    model = SimpleNamespace(ranks=Ranks(0, 1))
    prefills = Prefills(model, exact.model.store, Shard(exact.model.layout), writer=pytest.fail)
    prefills.begin(PrefillRequest("hanging", Prefill(key(), (), ())))
    prefills._jobs["hanging"].writes.append(Future())
    began = time.monotonic()

    reports = [prefills.advance(64, is_idle=False) for _ in range(40)]

    assert LAST_FILES_S / 2 < time.monotonic() - began < 4 * LAST_FILES_S
    assert not any(reports)


@pytest.mark.parametrize("is_idle", [True, False])
def test_no_chunk_runs_while_many_files_wait(exact: World, monkeypatch: pytest.MonkeyPatch, is_idle: bool):
    prefills = Prefills(SimpleNamespace(ranks=Ranks(0, 1)), exact.model.store, Shard(exact.model.layout), pytest.fail)
    prefills.begin(PrefillRequest("waiting", prefill_of(exact, 1)))
    writes = [Future() for _ in range(MOST_FILES)]
    prefills._jobs["waiting"].writes.extend(writes)
    runs: list[int] = []
    monkeypatch.setattr(prefills, "_run", lambda _job, tokens: runs.append(tokens) or tokens)

    assert prefills.advance(64, is_idle=is_idle) == {} and not runs
    writes[0].set_result(None)
    assert prefills.advance(64, is_idle=is_idle) == {} and runs == [64]


def test_what_a_question_waits_for_comes_first(exact: World, monkeypatch: pytest.MonkeyPatch):
    prefills = Prefills(SimpleNamespace(ranks=Ranks(0, 1)), exact.model.store, Shard(exact.model.layout), pytest.fail)
    prefills.begin(PrefillRequest("backlog", prefill_of(exact, 4)))
    prefills.begin(PrefillRequest("a question's", prefill_of(exact, 4, is_urgent=True)))
    runs: list[str] = []
    monkeypatch.setattr(prefills, "_run", lambda job, tokens: runs.append(job.request.request_id) or tokens)

    prefills.advance(64, is_idle=False)

    assert runs == ["a question's"]


def test_what_a_question_waits_for_is_not_computed_again(exact: World):
    """A prefill that wants the same chunk waits for that file, and runs the others."""
    store, once = exact.model.store, prefill_of(exact, 24)
    backlog = msgspec.structs.replace(
        once, chunks=tuple(msgspec.structs.replace(chunk, key=key()) for chunk in once.chunks * 4)
    )
    last = min(backlog.chunks, key=lambda chunk: len(chunk.token_ids))
    urgent = msgspec.structs.replace(backlog, chunks=(last,), is_urgent=True)

    async def of_question() -> int:
        await exact.engine.prefill(urgent)
        return store.path(last.key).stat().st_ino

    async def both() -> list[int | None]:
        return await asyncio.gather(exact.engine.prefill(backlog), of_question())

    _, file = run_in_background(both())
    assert all(chunk.key in store for chunk in backlog.chunks)
    assert store.path(last.key).stat().st_ino == file


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "another"}, "other weights"),
        ({"writer": "w"}, "another writer"),
        ({"chunks": (PrefillChunk("a" * 64, (2**30,)),)}, "vocabulary"),
        ({"chunks": (PrefillChunk("a" * 64, (1,) * 9000),)}, "window"),
        ({"chunks": (PrefillChunk("a" * 64, ()),)}, "length >= 1"),
        ({"chunks": (PrefillChunk("a" * 64, (1,), (), 3),)}, "fewer tokens behind"),
    ],
)
def test_what_it_cannot_prefill_is_refused_with_the_reason(exact: World, fields: dict[str, object], reason: str):
    with pytest.raises(Unavailable, match=reason):
        prefill(exact, prefill_of(exact, 1, **fields))


def test_a_key_that_is_none_stores_nothing(exact: World):
    with pytest.raises(Unavailable, match="no KV is computed"):
        prefill(exact, prefill_of(exact, chunks=(PrefillChunk("../../etc/passwd", (1, 2)),)))
