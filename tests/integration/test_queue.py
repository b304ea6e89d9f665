"""The embedded Redis and the queue in it."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragkv.errors import Unavailable
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.queue import Queue, celery_url, make_celery
from ragkv.service.base.redis import connect, ping, redis_url, socket_path
from ragkv.settings import Settings

OWNER = """
import sys, time
from pathlib import Path
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.settings import Settings
server = EmbeddedRedis(Settings(data_dir=Path(sys.argv[1])))
server.start()
print(server.owned, flush=True)
time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


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

    def test_it_stops_with_its_owner(self, settings: Settings):
        server = EmbeddedRedis(settings)
        server.start()
        server.stop()

        assert not server.socket.exists()
        with pytest.raises(Unavailable):
            ping(connect(settings))

    def test_a_server_whose_owner_was_killed_is_taken_over(self, settings: Settings):
        owner = subprocess.Popen([sys.executable, "-c", OWNER, settings.data_dir], stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None and owner.stdout.readline() == "True\n"
        pid = connect(settings).info("server")["process_id"]
        owner.kill()
        owner.communicate()

        server = EmbeddedRedis(settings)
        server.start()
        assert server.owned
        assert connect(settings).info("server")["process_id"] == pid
        server.stop()

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
