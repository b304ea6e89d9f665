"""Rounds of faults: parts of a service die while documents are uploaded, replaced, deleted and asked about.

    make chaos                     50 rounds, on SQLite and on PostgreSQL with Qdrant
    CHAOS_ROUNDS=7 CHAOS_SEED=3 .venv/bin/python -m pytest tests/chaos

Each round is drawn from its seed: what dies, when, and what clients do meanwhile. However few the rounds, each fault
occurs: several share a round where there are more faults than rounds, each amid uploads and questions of its own.
Afterwards everything that was accepted is ready, because none of the faults is a document's own; nothing is there twice
or left over that `fsck` does not mend; a question was answered after each fault, and every answer was right.
"""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ingest.parts import IngestParts
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.chaos.world import Postgres, World, in_background
from tests.conftest import lend_models
from tests.support.qdrant_server import QdrantServer

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
SEED = int(os.environ.get("CHAOS_SEED", "8"))

DAY_S = 86_400.0

Fault = Callable[[World], None]


def kill_worker(world: World) -> None:
    world.kill("run_worker")
    world.launch("run_worker")


def kill_api(world: World) -> None:
    world.kill("run_api")
    world.launch("run_api")


def kill_both(world: World) -> None:
    world.kill("run_worker")
    kill_api(world)
    world.launch("run_worker")


def kill_redis(world: World) -> None:
    world.kill_redis()
    _pause(world)
    world.start_redis()


def empty_redis(world: World) -> None:
    world.parts.redis.flushall()


def kill_postgres(world: World) -> None:
    assert world.postgres is not None
    world.postgres.kill()
    _pause(world)
    world.postgres.start()


def cut_connections(world: World) -> None:
    assert world.postgres is not None
    world.postgres.cut()


def stop_qdrant(world: World) -> None:
    assert world.qdrant is not None
    world.qdrant.stop()
    _pause(world)
    world.qdrant.start()


def step_clocks(world: World) -> None:
    """The clock of the one machine jumps by up to a day, and some time later is right again."""
    _step(world, "run_api", "run_worker")


def step_worker_clock(world: World) -> None:
    """The same of the worker's machine: database and API keep their time."""
    _step(world, "run_worker")


def _step(world: World, *names: str) -> None:
    seconds = world.random.choice((-1, 1)) * world.random.uniform(60, DAY_S)
    for moved in (seconds, 0.0):
        for name in names:
            world.clocks[name].value = moved
        _pause(world)


def damage_kv(world: World) -> None:
    """A byte of some KV files is another one, one file is cut short, one is gone."""
    keys = sorted(world.parts.kv_store.keys())[:6]
    assert keys
    for index, key in enumerate(keys):
        path = world.parts.kv_store.path(key)
        if index % 3 == 0:
            path.unlink(missing_ok=True)
        elif path.exists():
            content = bytearray(path.read_bytes())
            content[world.random.randrange(len(content))] ^= 1 << world.random.randrange(8)
            path.write_bytes(content[: len(content) // 2] if index % 3 == 1 else content)


ANYWHERE: list[Fault] = [kill_worker, kill_api, kill_both, kill_redis, empty_redis, damage_kv, step_clocks]
WITH_SERVERS: list[Fault] = [kill_postgres, cut_connections, stop_qdrant, step_worker_clock, kill_worker, kill_api]


@pytest.fixture
def embedded(settings: Settings, loaded: IngestParts) -> Iterator[World]:
    """SQLite, embedded Redis, index in memory."""
    yield from _world(settings, loaded, None, None)


@pytest.fixture
def with_servers(settings: Settings, loaded: IngestParts) -> Iterator[World]:
    """PostgreSQL, and Qdrant over HTTP."""
    folder = Path(tempfile.mkdtemp(prefix="ragkv-chaos-"))
    postgres = Postgres(folder / "data")
    qdrant = QdrantServer()
    qdrant.start()
    given = msgspec.structs.replace(settings, database_url=postgres.url, qdrant_url=qdrant.url)
    yield from _world(given, loaded, postgres, qdrant)
    qdrant.stop()
    postgres.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _world(
    settings: Settings, loaded: IngestParts, postgres: Postgres | None, qdrant: QdrantServer | None
) -> Iterator[World]:
    parts = Parts(settings)
    lend_models(parts, loaded)
    parts.prepare()
    world = World(settings, parts, SEED, postgres, qdrant)
    world.open()
    yield world
    world.close()
    parts.close()


def test_nothing_is_lost_when_parts_of_an_embedded_service_die(embedded: World):
    _play(embedded, ANYWHERE, (ROUNDS + 1) // 2)


def test_nothing_is_lost_when_servers_die(with_servers: World):
    _play(with_servers, WITH_SERVERS, max(1, ROUNDS // 2))


def _play(world: World, faults: list[Fault], rounds: int) -> None:
    seen: Counter[str] = Counter()
    world.upload()
    world.settle()
    world.check()
    for number in range(rounds):
        occurring = faults[number::rounds] or [world.random.choice(faults)]
        names = [fault.__name__ for fault in occurring]
        began = time.monotonic()
        for fault in occurring:
            with in_background(lambda: _use(world)):
                time.sleep(world.random.uniform(0.0, 1.5))
                fault(world)
        world.settle()
        mended = world.check()
        seen.update(names)
        print(
            f"round {number} {', '.join(names)}: {time.monotonic() - began:.1f} s, mended {mended or 'nothing'}",
            flush=True,
        )
    assert seen.keys() == {fault.__name__ for fault in faults}
    books = world.books
    print(
        f"{dict(seen)}; {len(books.accepted)} documents, {books.answers} answers, {books.refused} refused", flush=True
    )


def _use(world: World) -> None:
    """Some uploads, a replacement, a deletion, and questions in between; the last until it is answered."""
    for _ in range(world.clients.randrange(2, 4)):
        world.upload()
        _ask_about_any(world)
    kept = [i for i in world.books.accepted if i not in world.books.deleted]
    world.replace(world.clients.choice(kept))
    _ask_about_any(world)
    if len(kept) > 3:
        world.delete(world.clients.choice(kept))
    world.wait_until(lambda: _ask_about_any(world))


def _ask_about_any(world: World) -> bool:
    kept = [name for i, name in world.books.accepted.items() if i not in world.books.deleted]
    return world.ask(world.clients.choice(kept))


def _pause(world: World) -> None:
    time.sleep(world.random.uniform(0.1, 1.5))
