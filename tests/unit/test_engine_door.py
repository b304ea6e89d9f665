"""The engine's socket for workers: what goes through it, and what ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ragkv.engine.door import EngineBehindDoor, EngineDoor, is_open
from ragkv.engine.protocol import Prefill, PrefillChunk
from ragkv.errors import OutOfSpace, Unavailable
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import Compression, CompressionMethod
from ragkv.service.parts import Parts
from ragkv.settings import Settings

PREFILL = Prefill(
    "a" * 64, (1, 2), (PrefillChunk("b" * 64, (3,), (4, 5), 1),), KVFormat.INT8, "m", "d", "w",
    Compression(CompressionMethod.LAQ, 0.5), (9,),
)  # fmt: skip


class Recording:
    """Keeps what it is asked for, and does as it was told."""

    def __init__(self, work: Callable[[], Awaitable[None]] | None = None) -> None:
        self.asked: list[Prefill] = []
        self.cancelled = asyncio.Event()
        self._work = work

    async def prefill(self, prefill: Prefill) -> None:
        self.asked.append(prefill)
        try:
            if self._work is not None:
                await self._work()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Longer than the address of a socket may be."""
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    return folder / "engine.sock"


def test_a_prefill_comes_through_as_it_went(path: Path):
    async def work() -> Recording:
        async with EngineDoor(engine := Recording(), path):
            assert [mode_of(path), is_open(path)] == [0o600, True]
            await EngineBehindDoor(path).prefill(PREFILL)
        return engine

    assert asyncio.run(work()).asked == [PREFILL]
    assert not path.exists()
    assert not is_open(path)


@pytest.mark.parametrize("error", [OutOfSpace("full"), Unavailable("starting")])
def test_what_failed_is_told_with_the_reason(path: Path, error: Unavailable):
    async def fail() -> None:
        raise error

    async def work() -> None:
        async with EngineDoor(Recording(fail), path):
            await EngineBehindDoor(path).prefill(PREFILL)

    with pytest.raises(type(error), match=str(error)):
        asyncio.run(work())


def test_a_prefill_that_does_not_end_is_given_up(path: Path):
    """As while the disk of KV hangs."""

    async def work() -> None:
        async with EngineDoor(engine := Recording(asyncio.Event().wait), path):
            with pytest.raises(Unavailable, match="disk of KV"):
                await EngineBehindDoor(path, silence_s=0.1).prefill(PREFILL)
            await asyncio.wait_for(engine.cancelled.wait(), 5)

    asyncio.run(work())


def test_what_nobody_expected_is_no_workers_fault(path: Path):
    async def fail() -> None:
        raise KeyError("a bug")

    async def work() -> None:
        async with EngineDoor(Recording(fail), path):
            await EngineBehindDoor(path).prefill(PREFILL)

    with pytest.raises(Unavailable, match="could not prefill"):
        asyncio.run(work())


def test_a_worker_that_goes_away_ends_its_prefill(path: Path):
    async def work() -> None:
        engine = Recording(lambda: asyncio.sleep(60))
        async with EngineDoor(engine, path):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(EngineBehindDoor(path).prefill(PREFILL), 0.2)
            await asyncio.wait_for(engine.cancelled.wait(), 10)

    asyncio.run(work())


def test_without_a_service_it_is_said_what_to_do(path: Path):
    with pytest.raises(Unavailable, match="start `ragkv serve`"):
        asyncio.run(EngineBehindDoor(path).prefill(PREFILL))
    path.touch()
    with pytest.raises(Unavailable, match="start `ragkv serve`"):
        asyncio.run(EngineBehindDoor(path).prefill(PREFILL))


def test_what_a_killed_service_left_is_replaced_and_another_ones_is_kept(path: Path):
    async def work() -> None:
        async with EngineDoor(Recording(), path), EngineDoor(engine := Recording(), path):
            await EngineBehindDoor(path).prefill(PREFILL)
            assert engine.asked

    path.touch()
    asyncio.run(work())


@pytest.mark.parametrize("is_killed", [False, True])
def test_once_the_service_that_started_last_has_ended_another_is_asked_again(
    path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ragkv.engine.door.LOOK_S", 0.01)
    left_by_kill = path.touch if is_killed else lambda: None

    async def work() -> None:
        async with EngineDoor(engine := Recording(), path):
            async with EngineDoor(Recording(), path):
                await asyncio.sleep(0.1)
                await EngineBehindDoor(path).prefill(PREFILL)
            left_by_kill()
            await asyncio.sleep(0.1)
            assert engine.asked == []
            await EngineBehindDoor(path).prefill(PREFILL)
            assert engine.asked == [PREFILL]

    asyncio.run(work())
    assert not path.exists()


def test_a_service_that_ends_leaves_the_socket_of_one_that_started_later(path: Path):
    async def work() -> None:
        async with AsyncExitStack() as earlier:
            await earlier.enter_async_context(EngineDoor(Recording(), path))
            async with EngineDoor(engine := Recording(), path):
                await earlier.aclose()
                await EngineBehindDoor(path).prefill(PREFILL)
                assert engine.asked == [PREFILL]

    asyncio.run(work())


def test_nonsense_ends_the_connection_alone(path: Path):
    async def work() -> None:
        async with EngineDoor(engine := Recording(), path):
            for sent in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x09", b""):
                reader, writer = await asyncio.open_unix_connection(f"/proc/self/cwd/{path.name}")
                writer.write(sent)
                writer.write_eof()
                assert await reader.read() == b""
            await EngineBehindDoor(path).prefill(PREFILL)
        assert engine.asked == [PREFILL]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        asyncio.run(work())


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        (Settings(), None),
        (Settings(engine_url="http://answers:1"), "http://answers:1"),
        (Settings(engine_url="http://answers:1", ingest_engine_url="http://writes:1"), "http://writes:1"),
        (Settings(ingest_engine_url="http://writes:1"), "http://writes:1"),
    ],
)
def test_kv_is_computed_by_the_engine_that_the_settings_name_for_it(settings: Settings, place: str | None):
    assert getattr(Parts(settings).prefill_engine, "_shown_url", None) == place
