"""A circuit breaker: one call at a time waits for a server that hangs, the others are refused at once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from redis.exceptions import TimeoutError as RedisTimeout

from ragkv.errors import Conflict, Unavailable
from ragkv.retrieve import qdrant
from ragkv.retrieve.qdrant import QdrantIndex
from ragkv.service.base import postgres, queue, redis
from ragkv.service.base.database import Database
from ragkv.service.base.queue import Queue, make_celery
from ragkv.settings import Settings
from ragkv.threads import CircuitBreaker
from tests.support.silent_server import SilentServer, silent_server

CALLERS = 8
LIMIT_S = 1.5


@pytest.fixture
def breaker() -> CircuitBreaker:
    return CircuitBreaker(60, "it hangs")


def end_with(error: Exception, breaker: CircuitBreaker) -> None:
    with suppress(type(error)), breaker.guarding():
        raise error


def is_refused(breaker: CircuitBreaker) -> bool:
    try:
        with breaker.guarding():
            return False
    except Unavailable:
        return True


class TestBreaker:
    def test_others_are_refused_until_the_call_that_goes_on_has_ended(self, breaker: CircuitBreaker):
        end_with(TimeoutError(), breaker)

        with breaker.guarding():
            assert is_refused(breaker)
        assert not is_refused(breaker)

    def test_it_stays_open_while_calls_time_out(self, breaker: CircuitBreaker):
        for _ in range(2):
            end_with(TimeoutError(), breaker)

        assert is_refused(breaker)

    def test_a_library_has_an_error_of_its_own_for_it(self, breaker: CircuitBreaker):
        error = RedisTimeout()
        error.__context__ = TimeoutError()
        end_with(error, breaker)

        with breaker.guarding():
            assert is_refused(breaker)

    @pytest.mark.parametrize("error", [ConnectionRefusedError(), Conflict(), ValueError()])
    def test_a_server_that_answers_or_is_gone_does_not_hang(self, breaker: CircuitBreaker, error: Exception):
        end_with(TimeoutError(), breaker)
        end_with(error, breaker)

        with breaker.guarding():
            assert not is_refused(breaker)


class TestServers:
    """Servers that take connections and say nothing."""

    @pytest.fixture(autouse=True)
    def _short_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postgres, "CONNECT_TIMEOUT_S", LIMIT_S)
        monkeypatch.setattr(redis, "SILENCE_S", LIMIT_S)
        monkeypatch.setattr(queue, "SILENCE_S", LIMIT_S)
        monkeypatch.setattr(qdrant, "TIMEOUT_S", LIMIT_S)

    @pytest.fixture
    def silent(self) -> Iterator[SilentServer]:
        with silent_server() as server:
            yield server

    def test_postgresql(self, silent: SilentServer):
        with closing(Database(f"postgresql://user:word@127.0.0.1:{silent.port}/name")) as database:
            assert_few_wait(database.ping, silent)

    def test_redis(self, silent: SilentServer, tmp_path: Path):
        settings = Settings(data_dir=tmp_path, redis_url=f"redis://127.0.0.1:{silent.port}")
        with closing(redis.connect(settings)) as client:
            assert_few_wait(lambda: redis.ping(client), silent)

    def test_the_queue(self, silent: SilentServer):
        waking = Queue(make_celery(f"redis://127.0.0.1:{silent.port}"))
        assert_few_wait(lambda: waking.enqueue_ingest("a"), silent)

    def test_qdrant(self, silent: SilentServer):
        assert_few_wait(QdrantIndex.connect(f"http://127.0.0.1:{silent.port}").ping, silent)


def assert_few_wait(call: Callable[[], object], silent: SilentServer) -> None:
    """After one call that timed out, one of several at once connects: a library may try twice."""
    assert is_unavailable(call)
    silent.connections()
    with ThreadPoolExecutor(CALLERS) as threads:
        assert all(threads.map(is_unavailable, [call] * CALLERS))
    assert 1 <= silent.connections() <= 2


def is_unavailable(call: Callable[[], object]) -> bool:
    try:
        call()
    except Unavailable:
        return True
    return False
