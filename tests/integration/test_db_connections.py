"""A connection whose statement broke is never used again, and a list is one parameter however long it is."""

import asyncio
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pg8000.core
import pytest
from sqlalchemy import Connection, String, TypeDecorator, literal_column, make_url, select, text
from sqlalchemy.orm import Session

from ragkv.errors import NotFound, Unavailable
from ragkv.service.base import postgres as postgres_module
from ragkv.service.base.database import Database, lift_time_limits
from ragkv.service.base.lists import one_of

pytestmark = pytest.mark.timeout(60)  # a connection that is out of step may wait for replies for ever

OWNERS = ("ada", "bob")
CREATE = text("CREATE TABLE secrets (owner VARCHAR(100) PRIMARY KEY, secret TEXT)")
ROW = text("SELECT secret FROM secrets WHERE owner = :owner")
BREAKS = [
    struct.error("ushort format requires 0 <= number <= 65535"),
    UnicodeError("not a text"),
    ValueError("no such value"),
    MemoryError(),
    RecursionError(),
    TimeoutError("timed out"),
    ConnectionResetError("reset by peer"),
    KeyboardInterrupt(),
    SystemExit(),
    GeneratorExit(),
    asyncio.CancelledError(),
]
Break = BaseException
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def postgres(postgres_server: str) -> Iterator[Database]:
    yield from filled(postgres_server)


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Database]:
    yield from filled(sqlite_url)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    return request.getfixturevalue(request.param)


def filled(url: str) -> Iterator[Database]:
    database = Database(url)
    with database.writing() as session:
        session.execute(CREATE)
        for owner in OWNERS:
            session.execute(text("INSERT INTO secrets VALUES (:owner, :secret)"), {"owner": owner, "secret": owner * 3})
    yield database
    with database.writing() as session:
        session.execute(text("DROP TABLE secrets"))
    database.close()


def assert_rows_are_right(database: Database) -> None:
    """On the pool's connections, one after the other and several at once."""
    for owner in OWNERS * 3:
        with database.reading() as session:
            assert session.scalar(ROW, {"owner": owner}) == owner * 3


def connection_of(database: Database) -> Any:
    """The one the pool hands out next."""
    with database.engine.connect() as connection:
        return connection.connection.driver_connection


def break_in_statement(database: Database) -> None:
    with suppress(Exception, *{type(error) for error in BREAKS}), database.reading() as session:
        session.scalar(ROW, {"owner": "ada"})


class TestPostgres:
    """Where the driver may break: sending, waiting, reading, between the replies of one statement."""

    @pytest.mark.parametrize("place", ["send_BIND", "send_EXECUTE", "handle_PARSE_COMPLETE", "handle_DATA_ROW"])
    def test_the_next_statement_gets_its_own_rows(
        self, postgres: Database, monkeypatch: Patch, place: str, subtests: pytest.Subtests
    ):
        for error in BREAKS:
            with subtests.test(error=type(error).__name__):
                assert_rows_are_right(postgres)
                before = connection_of(postgres)
                break_driver(monkeypatch, before, place, error)
                break_in_statement(postgres)
                monkeypatch.undo()

                assert_rows_are_right(postgres)
                assert connection_of(postgres) is not before

    @pytest.mark.parametrize("reads", [1, 4, 9])
    def test_replies_that_were_not_read_are_nobodys(
        self, postgres: Database, monkeypatch: Patch, reads: int, subtests: pytest.Subtests
    ):
        for error in BREAKS:
            with subtests.test(error=type(error).__name__):
                before = connection_of(postgres)
                with suppress(Exception, type(error)), postgres.writing() as session:
                    session.connection()
                    break_reading(monkeypatch, reads, error)
                    session.scalar(ROW, {"owner": "ada"})
                monkeypatch.undo()

                assert_rows_are_right(postgres)
                assert connection_of(postgres) is not before

    @pytest.mark.parametrize("times", [1, 4])
    def test_more_parameters_than_the_protocol_counts_break_nothing_else(self, postgres: Database, times: int):
        """The driver fails between sending and reading: `struct.error`, as a long `IN` did."""
        many = f"SELECT 1 WHERE '' IN ({','.join(['%s'] * 66_000)})"
        for _ in range(times):
            with pytest.raises(struct.error), postgres.reading() as session:
                session.connection().exec_driver_sql(many, ("",) * 66_000)

        assert_rows_are_right(postgres)

    def test_a_plain_connection_is_closed_too(self, postgres: Database, monkeypatch: Patch):
        before = connection_of(postgres)
        break_driver(monkeypatch, before, "send_BIND", struct.error())
        with pytest.raises(struct.error), postgres.engine.connect() as connection:
            connection.execute(ROW, {"owner": "ada"})
        monkeypatch.undo()

        assert connection_of(postgres) is not before

    def test_a_connection_that_is_out_of_step_is_refused_by_the_pool(self, postgres: Database):
        before = connection_of(postgres)
        before.send_QUERY("SELECT 'the rest of an earlier statement'")

        assert_rows_are_right(postgres)
        assert connection_of(postgres) is not before

    def test_a_socket_that_breaks_is_unavailable(self, postgres: Database, monkeypatch: Patch):
        break_driver(monkeypatch, connection_of(postgres), "handle_DATA_ROW", ConnectionResetError("reset by peer"))

        with pytest.raises(Unavailable), postgres.reading() as session:
            session.scalar(ROW, {"owner": "ada"})

    def test_a_connection_that_an_outage_broke_is_replaced_without_a_trace_in_the_log(
        self, postgres: Database, postgres_admin: Connection, caplog: pytest.LogCaptureFixture
    ):
        before = connection_of(postgres)
        backend = before.execute_simple("SELECT pg_backend_pid()").rows[0][0]
        postgres_admin.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": int(backend)})

        assert_rows_are_right(postgres)
        assert connection_of(postgres) is not before
        assert [record.getMessage() for record in caplog.records if record.exc_info] == []

    def test_a_connection_whose_server_hangs_is_replaced(self, postgres: Database, monkeypatch: Patch):
        monkeypatch.setattr(postgres_module, "CONNECT_TIMEOUT_S", 0.2)
        before = connection_of(postgres)
        backend = before.execute_simple("SELECT pg_backend_pid()").rows[0][0]
        os.kill(int(backend), signal.SIGSTOP)
        try:
            assert_rows_are_right(postgres)
            assert connection_of(postgres) is not before
        finally:
            os.kill(int(backend), signal.SIGCONT)

    def test_a_statement_waits_for_a_silent_server_only_so_long_unless_its_limits_are_lifted(
        self, postgres: Database, monkeypatch: Patch
    ):
        monkeypatch.setattr(postgres_module, "SILENCE_S", 0.1)
        with pytest.raises(Unavailable), postgres.reading() as session:
            session.execute(text("SELECT pg_sleep(5)"))

        with postgres.reading() as session:
            lift_time_limits(session)
            assert session.scalar(text("SELECT 1 FROM pg_sleep(0.3)")) == 1

    def test_a_brief_statement_waits_no_longer_than_a_connection(self, postgres: Database, monkeypatch: Patch):
        monkeypatch.setattr(postgres_module, "CONNECT_TIMEOUT_S", 0.2)
        for session_of in (postgres.brief.reading, postgres.brief.writing):
            with pytest.raises(Unavailable), session_of() as session:
                session.execute(text("SELECT pg_sleep(5)"))

        with postgres.reading() as session:
            assert session.scalar(text("SELECT 1 FROM pg_sleep(0.5)")) == 1

    def test_connections_to_a_server_that_takes_no_changes_are_replaced(
        self, postgres_url: str, postgres_admin: Connection
    ):
        """As those that were opened to a standby, before another server took over."""
        name = make_url(postgres_url).database
        postgres_admin.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
        with closing(Database(postgres_url)) as database:
            with pytest.raises(Unavailable, match="no changes"), database.writing() as session:
                session.execute(CREATE)
            assert not database.takes_changes()

            postgres_admin.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = off'))
            assert database.takes_changes()
            with database.writing() as session:
                session.execute(CREATE)


class TestBoth:
    def test_an_exception_while_rows_become_values_closes_the_connection(
        self, database: Database, subtests: pytest.Subtests
    ):
        for error in BREAKS:
            with subtests.test(error=type(error).__name__):
                before = connection_of(database)
                with pytest.raises(type(error)), database.reading() as session:
                    session.scalar(select(literal_column("secret", _Breaking(error))).select_from(text("secrets")))

                assert_rows_are_right(database)
                assert connection_of(database) is not before

    def test_an_exception_between_statements_closes_the_connection(self, database: Database, subtests: pytest.Subtests):
        for error in BREAKS:
            with subtests.test(error=type(error).__name__):
                before = connection_of(database)
                with pytest.raises(type(error)), database.writing() as session:  # noqa: PT012 - both belong to it
                    session.execute(text("UPDATE secrets SET secret = 'changed'"))
                    raise error

                assert_rows_are_right(database)
                assert connection_of(database) is not before


class TestSqlite:
    def test_an_exception_in_the_middle_of_a_row_closes_the_connection(
        self, sqlite: Database, subtests: pytest.Subtests
    ):
        for error in BREAKS:
            with subtests.test(error=type(error).__name__):
                before = connection_of(sqlite)
                before.text_factory = _raising(error)
                break_in_statement(sqlite)

                assert_rows_are_right(sqlite)
                assert connection_of(sqlite) is not before

    def test_a_number_that_sqlite_cannot_hold_breaks_nothing_else(self, sqlite: Database):
        with pytest.raises(OverflowError), sqlite.reading() as session:
            session.scalar(ROW, {"owner": 2**70})

        assert_rows_are_right(sqlite)


class TestKept:
    """A connection that is in order stays: errors of ours, and those that the server reported."""

    def test_after_an_error_of_ours(self, database: Database):
        before = connection_of(database)
        with pytest.raises(NotFound), database.writing() as session:  # noqa: PT012 - both belong to it
            session.execute(text("UPDATE secrets SET secret = 'changed'"))
            raise NotFound("no such thing")

        assert_rows_are_right(database)
        assert connection_of(database) is before

    def test_after_an_error_of_the_servers(self, database: Database):
        before = connection_of(database)
        with suppress(Exception), database.writing() as session:
            session.execute(text("INSERT INTO secrets VALUES ('ada', 'again')"))

        assert_rows_are_right(database)
        assert connection_of(database) is before


class TestLists:
    def test_a_list_of_any_length_is_one_parameter(self, database: Database):
        owner = literal_column("owner")
        many = [str(i) for i in range(70_000)]
        with database.reading() as session:
            assert found(session, one_of(owner, [*many, "bob"])) == ["bob"]
            assert found(session, one_of(owner, many)) == []
            assert found(session, one_of(owner, [])) == []

    def test_an_element_is_only_itself(self, database: Database, subtests: pytest.Subtests):
        for odd in ["null", "NULL", "", " ", '"', "\\", "{}", "a,b", "ü\n", "'", "%s", "🐍"]:
            with subtests.test(odd=odd), database.writing() as session:
                session.execute(text("INSERT INTO secrets VALUES (:owner, '')"), {"owner": odd})
                owner = literal_column("owner")

                assert found(session, one_of(owner, [odd, "other"])) == [odd]
                assert found(session, one_of(owner, ["other", f"{odd}x"])) == []
                session.execute(text("DELETE FROM secrets WHERE owner = :owner"), {"owner": odd})

    def test_nothing_is_found_by_a_nul(self, database: Database):
        with database.reading() as session:
            assert found(session, one_of(literal_column("owner"), ["ada\x00"])) == []


def found(session: Session, condition: Any) -> list[str]:
    return list(session.scalars(select(literal_column("owner")).select_from(text("secrets")).where(condition)))


def break_driver(monkeypatch: Patch, connection: Any, place: str, error: Break) -> None:
    """At this step of the next statement with parameters; what comes before has been sent, or read, by then."""
    raises = _raising(error)
    if place.startswith("handle_"):
        code = getattr(pg8000.core, place.removeprefix("handle_"))
        monkeypatch.setitem(connection.message_types, code, _unless_checking(connection.message_types[code], raises))
    else:
        monkeypatch.setattr(connection, place, raises)


def break_reading(monkeypatch: Patch, reads: int, error: Break) -> None:
    """After so many more reads from the socket."""
    left, read = iter(range(reads)), pg8000.core._read

    def reading(*args: Any) -> bytes:
        if next(left, None) is None:
            raise error
        return read(*args)

    monkeypatch.setattr(pg8000.core, "_read", reading)


@pytest.mark.parametrize("value", ["off", "local", "remote_write", "remote_apply", "on"])
def test_a_commit_on_postgresql_waits_for_the_disk_whatever_the_server_says(postgres_url: str, value: str):
    """Values beside `off` are an operator's choice about standby servers."""
    with Database(postgres_url).writing() as session:
        name = session.scalar(text("SELECT current_database()"))
        session.execute(text(f'ALTER DATABASE "{name}" SET synchronous_commit = {value}'))

    with Database(postgres_url).reading() as session:
        assert session.scalar(text("SHOW synchronous_commit")) == ("on" if value == "off" else value)


def _unless_checking(handle: Any, raises: Any) -> Any:
    """The pool's own check goes through."""
    return lambda data, context: (handle if str(context.statement).startswith("SELECT '") else raises)(data, context)


def _raising(error: Break) -> Any:
    def raises(*args: Any) -> None:
        raise error

    return raises


class _Breaking(TypeDecorator[str]):
    impl = String
    cache_ok = False

    def __init__(self, error: Break) -> None:
        super().__init__()
        self.error = error

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        raise self.error
