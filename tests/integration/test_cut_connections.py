"""PostgreSQL behind a wire that is cut anywhere: a statement that ends was right, and nothing is half done."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select, text

from ragkv.errors import Unavailable
from ragkv.service.base.database import Database
from ragkv.service.base.tables import TenantRow

CUTS = 40


class Wire:
    """A socket in a folder that leads to PostgreSQL's. After `cut_after` bytes of answers both ends are closed."""

    def __init__(self, folder: Path, server: str) -> None:
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self.cut_after: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            threading.Thread(target=self._carry, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, True), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                left = self.cut_after
                if answers and left is not None:
                    self.cut_after = max(0, left - len(data))
                    if len(data) >= left:
                        target.sendall(data[:left])
                        break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(tmp_path: Path, migrated_postgres_url: str) -> Iterator[Wire]:
    folder = migrated_postgres_url.partition("?host=")[2]
    wire = Wire(tmp_path, f"{folder}/.s.PGSQL.5432")
    yield wire
    wire.close()


@pytest.fixture
def database(wire: Wire, tmp_path: Path, migrated_postgres_url: str) -> Iterator[Database]:
    database = Database(f"{migrated_postgres_url.partition('?')[0]}?host={tmp_path}")
    yield database
    database.close()


def test_a_connection_that_is_cut_anywhere_gives_no_wrong_answer_and_no_half_transaction(
    wire: Wire, database: Database
):
    """A write that returned is there; one that was cut off is there whole or not at all."""
    pick, returned, cut_off = random.Random(8), [], []
    for number in range(CUTS):
        wire.cut_after = pick.randrange(0, 900)
        try:
            with database.writing() as session:
                session.add_all([tenant(number, "a"), tenant(number, "b")])
            returned.append(number)
            with database.reading() as session:
                assert session.scalar(text("SELECT CAST(:n AS integer)"), {"n": number}) == number
        except Unavailable:
            cut_off.append(number)
        wire.cut_after = None
        with database.reading() as session:
            assert session.scalar(text("SELECT CAST(:n AS integer)"), {"n": -number}) == -number

    with database.reading() as session:
        names = set(session.scalars(select(TenantRow.name)))
    assert {f"{number}{half}" for number in returned for half in "ab"} <= names
    assert all((f"{number}a" in names) == (f"{number}b" in names) for number in cut_off)
    assert len(cut_off) > CUTS // 4


def tenant(number: int, half: str) -> TenantRow:
    return TenantRow(name=f"{number}{half}", secret=bytes(32))
