"""Supervision of an engine whose core is a real process: killed, stopped, or unable to start."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ragkv.engine import supervisor
from ragkv.engine.protocol import EngineLost, Generate
from ragkv.engine.supervisor import Phase, SupervisedEngine, SupervisionTimes
from ragkv.errors import Unavailable, Unsupported
from tests.support.child_engine import POISON, ChildEngine

PACE = SupervisionTimes(silence=25.0, look=0.02, delays=(0.05, 0.1, 0.2), stable=60.0, patience=25.0)
"""A machine that is busy makes no core seem dead."""
HANGS = replace(PACE, silence=2.0)
WORDS = 5
ANSWER = "01234"


class Cores:
    """Makes engines in a given order, the last kind for ever, and remembers them."""

    def __init__(self, *kinds: Callable[[], ChildEngine]) -> None:
        self._kinds = kinds or (ChildEngine,)
        self.made: list[ChildEngine] = []

    def __call__(self) -> ChildEngine:
        self.made.append(self._kinds[min(len(self.made), len(self._kinds) - 1)]())
        return self.made[-1]


def mute() -> ChildEngine:
    """A core that is killed before it says anything."""
    return ChildEngine(step_s=60)


def failing() -> ChildEngine:
    return ChildEngine(fails=True)


def run(
    scenario: Callable[[SupervisedEngine, Cores], Coroutine[Any, Any, None]], *kinds: Any, pace: SupervisionTimes = PACE
) -> None:
    """The scenario over a supervised engine, which leaves no process behind."""

    async def whole() -> None:
        cores = Cores(*kinds)
        engine = SupervisedEngine(cores, pace)
        try:
            await scenario(engine, cores)
        finally:
            await engine.stop()
        assert ChildEngine.running == set()
        assert await engine.status() == "not started"

    asyncio.run(asyncio.wait_for(whole(), 60))


async def ask(engine: SupervisedEngine, salt: str = "salt") -> str:
    return "".join([output.text async for output in engine.generate(Generate((1,), salt, max_tokens=WORDS))])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what it waits for is another process's
        await asyncio.sleep(0.01)


async def asked_of(core: ChildEngine, number: int = 1) -> None:
    """So many requests are in the core."""
    await until(lambda: core.asked == number)


async def until_ready(engine: SupervisedEngine) -> None:
    await until(lambda: engine._phase is Phase.READY)


def test_a_request_that_saw_nothing_of_a_killed_engine_is_answered_whole_by_the_next() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        asked = [asyncio.create_task(ask(engine)) for _ in range(3)]
        await asked_of(cores.made[0], 3)
        cores.made[0].signal(signal.SIGKILL)
        assert await asyncio.gather(*asked) == [ANSWER] * 3
        assert (await engine.status(), len(cores.made)) == ("ok", 2)

    run(scenario, mute, ChildEngine)


def test_an_answer_that_had_begun_ends_with_an_error_that_says_when_to_ask_again() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        outputs = engine.generate(Generate((1,), "salt", max_tokens=WORDS))
        assert (await anext(outputs)).text == "0"
        cores.made[0].signal(signal.SIGKILL)
        with pytest.raises(EngineLost, match="ask again") as lost:
            await anext(outputs)
        assert "trace" not in str(lost.value)
        assert lost.value.retry_after_s > 5
        await until_ready(engine)
        assert await ask(engine) == ANSWER

    run(scenario, lambda: ChildEngine(step_s=1.0), ChildEngine)


def test_a_request_that_kills_every_engine_is_asked_twice_and_no_more() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        with pytest.raises(EngineLost):
            await ask(engine, POISON)
        await until_ready(engine)
        assert [core.asked for core in cores.made][:2] == [1, 1]
        assert await ask(engine) == ANSWER

    run(scenario)


@pytest.mark.parametrize("asking", [True, False])
def test_an_engine_that_hangs_is_killed_and_replaced(asking: bool) -> None:
    """With a request in it or without one."""

    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        asked = asyncio.create_task(ask(engine)) if asking else None
        await asked_of(cores.made[0], int(asking))
        cores.made[0].signal(signal.SIGSTOP)
        await until(lambda: len(cores.made) > 1)
        await until_ready(engine)
        assert (await asked if asked else await ask(engine)) == ANSWER

    run(scenario, mute, ChildEngine, pace=HANGS)


def test_an_engine_that_says_no_token_while_its_core_responds_is_replaced() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        assert await ask(engine) == ANSWER
        assert len(cores.made) > 1

    run(scenario, mute, ChildEngine, pace=HANGS)


def test_clients_that_give_up_are_no_sign_of_life() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        patient = asyncio.create_task(ask(engine))
        while len(cores.made) == 1:
            with suppress(TimeoutError, Unavailable):
                await asyncio.wait_for(ask(engine), HANGS.silence / 4)
        assert await patient == ANSWER

    run(scenario, mute, ChildEngine, pace=HANGS)


def test_a_client_that_does_not_read_is_no_sign_of_a_hang() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        outputs = engine.generate(Generate((1,), "salt", max_tokens=WORDS))
        first = await anext(outputs)
        await asyncio.sleep(2 * HANGS.silence)
        assert first.text + "".join([output.text async for output in outputs]) == ANSWER
        assert len(cores.made) == 1

    run(scenario, pace=HANGS)


def test_an_engine_that_does_not_start_is_tried_again_ever_more_slowly() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        with pytest.raises(Unavailable, match="before it was ready"):
            await engine.start()
        began, seen = time.monotonic(), set()
        while not await engine.ready():
            seen.add(await engine.status())
            await asyncio.sleep(0.01)
        delays = sum(map(PACE.delay, range(1, 6)))
        assert time.monotonic() - began > 0.9 * delays
        assert len(cores.made) == 6
        assert "starting again after it did not start, attempt 3, next in 0 s" in seen
        assert "starting again after it did not start, attempt 6" in seen
        assert await ask(engine) == ANSWER

    run(scenario, *[failing] * 5, ChildEngine)


class Refusing(ChildEngine):
    """Its vLLM cannot run the model."""

    async def start(self) -> None:
        raise Unsupported("it can be served on GPUs alone")


def test_who_asks_is_told_why_the_engine_refuses_its_model() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        with pytest.raises(Unavailable, match="on GPUs alone"):
            await engine.start()
        with pytest.raises(Unavailable, match="after it did not start: it can be served on GPUs alone, attempt 2"):
            await ask(engine)

    run(scenario, Refusing, Refusing)


class Loading(ChildEngine):
    """Its core is never ready."""

    def __init__(self) -> None:
        super().__init__()
        self._arguments = ("-c", "import time; time.sleep(60)")


def test_an_engine_that_hangs_while_it_loads_is_killed_and_replaced() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        with pytest.raises(Unavailable, match="did not start within 3 s"):
            await engine.start()
        await until_ready(engine)
        assert (await ask(engine), len(cores.made)) == (ANSWER, 2)

    run(scenario, Loading, ChildEngine, pace=replace(HANGS, start=3.0))


class Stubborn(ChildEngine):
    """Its core goes when it is killed, and what it leaves behind cannot be removed."""

    async def kill(self) -> None:
        await super().kill()
        raise PermissionError("what it left cannot be removed")

    async def stop(self) -> None:
        await super().kill()


class Unanswered(ChildEngine):
    """The question whether it is alive is given up, not answered."""

    async def probe(self) -> None:
        raise asyncio.CancelledError


@pytest.mark.parametrize("kind", [Stubborn, Unanswered])
def test_whatever_goes_wrong_with_an_engine_there_is_another(kind: type[ChildEngine]) -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        cores.made[0].signal(signal.SIGKILL)
        await until(lambda: len(cores.made) == 2)
        await until_ready(engine)
        assert await ask(engine) == ANSWER

    run(scenario, kind, ChildEngine)


def test_delays_double_up_to_a_minute() -> None:
    delays = [SupervisionTimes().delay(failures) for failures in range(1, 12)]
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(delays) == delays[-1] == 60.0


def test_a_question_meanwhile_is_told_when_to_ask_again() -> None:
    pace = SupervisionTimes(look=0.02, delays=(20.0,))

    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        with pytest.raises(Unavailable):
            await ask(engine)
        with pytest.raises(Unavailable):
            await engine.start()
        with pytest.raises(Unavailable, match=r"after it did not start, attempt 2, next in (20|19) s") as away:
            await ask(engine)
        assert 20 < away.value.retry_after_s <= 60

    run(scenario, failing, pace=pace)


class SlowToDie(ChildEngine):
    """A core that does not end before it may."""

    may_end: asyncio.Event

    async def kill(self) -> None:
        await self.may_end.wait()
        await super().kill()


def test_the_time_to_ask_again_is_never_in_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the next attempt is overdue, since what is left of the last one has not ended."""
    monkeypatch.setattr(supervisor, "STARTS_IN_S", 0.1)

    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        SlowToDie.may_end = asyncio.Event()
        await engine.start()
        cores.made[0].signal(signal.SIGKILL)
        await until(lambda: engine._phase is Phase.WAITING)
        await asyncio.sleep(0.3)
        with pytest.raises(Unavailable, match="next in 0 s") as away:
            await ask(engine)
        SlowToDie.may_end.set()
        assert away.value.retry_after_s > 0

    run(scenario, SlowToDie)


def test_a_lost_request_is_not_kept_waiting_once_the_next_engine_fails_to_start() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        asked = asyncio.create_task(ask(engine))
        await asked_of(cores.made[0])
        cores.made[0].signal(signal.SIGKILL)
        with pytest.raises(Unavailable, match="attempt 3"):
            await asked

    run(scenario, mute, failing)


def test_stopping_ends_what_runs_and_what_waits() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        await engine.start()
        asked = asyncio.create_task(ask(engine))
        await asked_of(cores.made[0])
        await engine.stop()
        with pytest.raises(Unavailable):
            await asked
        assert engine._phase is Phase.STOPPED

    run(scenario, mute)


def test_stopping_while_it_starts_leaves_nothing() -> None:
    async def scenario(engine: SupervisedEngine, cores: Cores) -> None:
        starting = asyncio.create_task(engine.start())
        await until(lambda: ChildEngine.running)
        starting.cancel()
        await engine.stop()

    run(scenario)
