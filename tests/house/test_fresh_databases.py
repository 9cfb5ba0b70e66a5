"""A test gets a database with all tables and nothing in them, whatever the one before has left in it."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.conftest_postgres import SessionServer

_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname"
_SEQUENCES = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public' ORDER BY sequencename"
_LEFTOVERS = (
    """INSERT INTO audit_log (actor, actor_role, actor_kind, actor_credential, action, subjects, outcome)
       VALUES ('somebody', 'admin', 'token', 'x', 'apply', '{}', 'OK')""",
    "INSERT INTO events (t, event, details) VALUES (1.0, 'submitted', '{}')",
    "SELECT nextval('events_sequence_seq')",
    "UPDATE fitting_programs SET oldest_revision = '0001'",
    "INSERT INTO revisions (subject, revision) VALUES ('fleet', 7)",
)


@pytest.fixture
def untouched(postgres_server: SessionServer) -> Iterator[psycopg.Connection]:
    """A database that was made of the template and of nothing else."""
    name = postgres_server.new_database()
    with psycopg.connect(postgres_server.layout.url(name)) as connection:
        yield connection
    postgres_server.drop_database(name)


def everything(connection: psycopg.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Rows by table, and where sequences are."""
    tables = [str(row[0]) for row in connection.execute(_TABLES).fetchall()]
    assert len(tables) > 50
    found = {name: connection.execute(sql.SQL("TABLE {}").format(sql.Identifier(name))).fetchall() for name in tables}
    return {**found, "sequences": connection.execute(_SEQUENCES).fetchall()}


def leave(server: SessionServer, *statements: str) -> str:
    """A database in which these were executed, and that was given back; returns its name."""
    name = server.fresh.take()
    with psycopg.connect(server.layout.url(name), autocommit=True) as connection:
        for statement in statements:
            connection.execute(sql.SQL(statement))
    server.fresh.give_back(name)
    return name


def test_what_was_left_is_gone_and_what_migrations_wrote_is_there(
    postgres_server: SessionServer, untouched: psycopg.Connection
) -> None:
    left = leave(postgres_server, *_LEFTOVERS)
    name = postgres_server.fresh.take()
    assert name != left
    with psycopg.connect(postgres_server.layout.url(name)) as connection:
        assert everything(connection) == everything(untouched)
    postgres_server.fresh.give_back(name)


def test_who_goes_on_with_a_database_that_was_given_back_finds_none(postgres_server: SessionServer) -> None:
    name = postgres_server.fresh.take()
    connection = psycopg.connect(postgres_server.layout.url(name))
    postgres_server.fresh.give_back(name)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(postgres_server.layout.url(name))


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE workloads ADD COLUMN further TEXT",
        "DROP INDEX usage_windows_end",
        "ALTER TABLE audit_log DISABLE TRIGGER USER",
        "CREATE TABLE further (number BIGINT)",
        "ANALYZE revisions",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
        "CREATE OR REPLACE FUNCTION further() RETURNS BIGINT LANGUAGE sql AS 'SELECT 1'",
        "GRANT SELECT ON revisions TO PUBLIC",
        "ALTER TABLE tenants ENABLE ROW LEVEL SECURITY",
        "CREATE SCHEMA further",
        "ALTER SEQUENCE events_sequence_seq INCREMENT BY 2",
    ],
)
def test_tables_that_are_not_as_they_were_are_given_to_nobody(
    postgres_server: SessionServer, untouched: psycopg.Connection, statement: str
) -> None:
    rows = "INSERT INTO revisions (subject, revision) VALUES ('fleet', 7)"
    left = postgres_server.fresh.take()
    with psycopg.connect(postgres_server.layout.url(left), autocommit=True) as connection:
        (number,) = _one(connection, "SELECT oid FROM pg_database WHERE datname = current_database()")
        connection.execute(rows)
        connection.execute(sql.SQL(statement))
    postgres_server.fresh.give_back(left)
    assert _one(untouched, f"SELECT count(*) FROM pg_database WHERE oid = {number}") == (0,)


def test_several_that_are_used_at_a_time_are_given_back_each(postgres_server: SessionServer) -> None:
    several = [postgres_server.fresh.take() for _ in range(2)]
    for name in several:
        postgres_server.fresh.give_back(name)
    again = [postgres_server.fresh.take() for _ in range(2)]
    assert not {*several} & {*again}
    for name in again:
        with psycopg.connect(postgres_server.layout.url(name)) as connection:
            assert _one(connection, "SELECT current_database()") == (name,)
        postgres_server.fresh.give_back(name)


def test_one_is_not_emptied_for_ever(postgres_server: SessionServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server.fresh, "uses", 3)
    monkeypatch.setattr(postgres_server.fresh, "_emptied", [])  # what tests before have left was emptied before
    numbers = set()
    for _ in range(9):
        name = postgres_server.fresh.take()
        with psycopg.connect(postgres_server.layout.url(name)) as connection:
            numbers.add(_one(connection, "SELECT oid FROM pg_database WHERE datname = current_database()"))
        postgres_server.fresh.give_back(name)
    assert len(numbers) == 3


def _one(connection: psycopg.Connection, statement: str) -> tuple[object, ...]:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return tuple(row)
