"""The embedded Redis and the queue in it."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ragkv.errors import Unavailable
from ragkv.service.base import embedded_redis, redis
from ragkv.service.base import queue as queue_module
from ragkv.service.base.embedded_redis import LOOK_S, EmbeddedRedis
from ragkv.service.base.queue import Queue, celery_url, make_celery
from ragkv.service.base.redis import connect, is_there, ping, redis_url, socket_path
from ragkv.settings import Settings
from tests.support.over_http import wait_until

OWNER = """
import sys
from pathlib import Path
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.settings import Settings
server = EmbeddedRedis(Settings(data_dir=Path(sys.argv[1])))
server.start()
print(server.owned, flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def started_owner(settings: Settings) -> subprocess.Popen[str]:
    """A process that runs the server until its input ends."""
    command = [sys.executable, "-c", OWNER, settings.data_dir]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline() == "True\n"
    return owner


def leave_server(settings: Settings) -> int:
    """The id of a server whose owner was killed."""
    owner = started_owner(settings)
    pid = int(connect(settings).info("server")["process_id"])
    owner.kill()
    owner.communicate()
    return pid


def state_of(pid: int) -> str:
    """Empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def queue_of(settings: Settings) -> Queue:
    return Queue(make_celery(redis_url(settings)))


class TestEmbeddedRedis:
    def test_only_its_user_can_open_it(self, redis_server: EmbeddedRedis):
        assert stat.S_IMODE(redis_server.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(redis_server.socket.parent.stat().st_mode) == 0o700

    def test_a_second_one_uses_the_first_and_leaves_it_running(self, settings: Settings, redis_server: EmbeddedRedis):
        second = EmbeddedRedis(settings)
        second.start()
        second.stop()

        assert redis_server.owned and not second.owned
        ping(connect(settings))

    @pytest.mark.parametrize("is_killed", [False, True])
    def test_a_second_one_runs_it_once_the_first_has_ended(self, settings: Settings, is_killed: bool):
        owner = started_owner(settings)
        second = EmbeddedRedis(settings)
        second.start()
        second.keep_running()
        assert not second.owned

        if is_killed:
            owner.kill()
        owner.communicate()

        with closing(connect(settings)) as client:
            wait_until(lambda: second.owned and is_there(client, settings), seconds=10)
            second.stop()
            assert not is_there(client, settings)

    def test_it_stops_with_its_owner(self, settings: Settings):
        server = EmbeddedRedis(settings)
        server.start()
        server.stop()

        assert not server.socket.exists()
        with pytest.raises(Unavailable):
            ping(connect(settings))

    def test_a_server_whose_owner_was_killed_is_taken_over(self, settings: Settings):
        pid = leave_server(settings)

        server = EmbeddedRedis(settings)
        server.start()
        assert server.owned
        assert connect(settings).info("server")["process_id"] == pid
        server.stop()

    @pytest.mark.parametrize("stops_it", [False, True])
    def test_a_server_that_hangs_is_killed_by_who_takes_it_over_and_by_who_stops_it(
        self, settings: Settings, stops_it: bool, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(redis, "SILENCE_S", 0.5)
        monkeypatch.setattr(embedded_redis, "STOP_TIMEOUT_S", 2.0)
        hanging = leave_server(settings)
        server = EmbeddedRedis(settings)
        with closing(connect(settings)) as client:
            client.set("queued", "here")
            if stops_it:
                server.start()
            os.kill(hanging, signal.SIGSTOP)
            if stops_it:
                server.stop()
            server.start()
            assert client.get("queued") == b"here"
            assert int(client.info("server")["process_id"]) != hanging
        assert "State:\tT" not in state_of(hanging)
        server.stop()

    @pytest.mark.parametrize("is_taken_over", [False, True])
    def test_a_server_that_is_killed_is_started_again_with_what_was_queued(
        self, settings: Settings, is_taken_over: bool
    ):
        if is_taken_over:
            leave_server(settings)
        server = EmbeddedRedis(settings)
        server.start()
        server.keep_running()
        with closing(connect(settings)) as client:
            client.set("queued", "here")
            killed = int(client.info("server")["process_id"])
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: is_there(client, settings), seconds=10)
            assert client.get("queued") == b"here"
            assert int(client.info("server")["process_id"]) != killed
            server.stop()
            time.sleep(1.5 * LOOK_S)
            assert not is_there(client, settings)

    def test_a_socket_left_by_a_killed_server_does_no_harm(self, settings: Settings):
        server = EmbeddedRedis(settings)
        server.start()
        os.kill(connect(settings).info("server")["process_id"], signal.SIGKILL)
        server.stop()

        server.start()
        ping(connect(settings))
        server.stop()

    def test_a_deep_data_folder_gets_a_short_socket(self, tmp_path: Path):
        settings = Settings(data_dir=tmp_path / ("d" * 60) / ("e" * 60))
        server = EmbeddedRedis(settings)
        server.start()

        assert len(str(socket_path(settings))) < 100
        assert not server.socket.is_relative_to(settings.data_dir)
        ping(connect(settings))
        server.stop()
        server.socket.parent.rmdir()


class TestQueue:
    def test_what_is_queued_survives_a_restart(self, settings: Settings, redis_server: EmbeddedRedis):
        queue_of(settings).enqueue_ingest("a")
        redis_server.stop()
        redis_server.start()

        assert queue_of(settings).depth() == 1

    def test_a_queue_nobody_used_is_empty(self, settings: Settings, redis_server: EmbeddedRedis):
        assert queue_of(settings).depth() == 0

    def test_a_queue_that_is_away_says_so_at_once(self, settings: Settings):
        queue, began = queue_of(settings), time.monotonic()

        with pytest.raises(Unavailable):
            queue.enqueue_ingest("a")
        with pytest.raises(Unavailable):
            queue.depth()
        assert time.monotonic() - began < 5

    def test_a_worker_waits_for_redis_however_long(self, settings: Settings):
        """Celery's own ends after a hundred attempts."""
        assert make_celery(redis_url(settings)).conf.broker_connection_max_retries is None

    def test_a_queue_that_hangs_says_so_too(
        self, settings: Settings, redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(queue_module, "SILENCE_S", 0.2)
        queue, pid = queue_of(settings), int(connect(settings).info("server")["process_id"])
        queue.enqueue_ingest("a")
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable):
                queue.enqueue_ingest("b")
            with pytest.raises(Unavailable):
                queue.depth()
        finally:
            os.kill(pid, signal.SIGCONT)
        queue.enqueue_ingest("c")

    def test_how_deep_a_full_queue_is_is_not_known(self, settings: Settings, redis_server: EmbeddedRedis):
        queue = queue_of(settings)
        queue.enqueue_ingest("a")
        connect(settings).config_set("maxmemory", 1)

        with pytest.raises(Unavailable):
            queue.enqueue_ingest("b")
        with pytest.raises(Unavailable):
            queue.depth()
        connect(settings).config_set("maxmemory", 0)
        assert queue.depth() == 1

    def test_a_unix_socket_has_another_name_in_celery(self):
        assert celery_url("unix:///run/x.sock") == "redis+socket:///run/x.sock"
        assert celery_url("redis://h:1/0") == "redis://h:1/0"
