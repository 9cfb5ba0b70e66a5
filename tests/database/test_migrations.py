import threading

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine

from services.database import migrations_runner
from services.database.errors import DatabaseUnavailable, UnsuitableDatabase
from services.database.migrations_runner import BASE, MigrationFailed
from services.database.tables import METADATA
from tests.conftest_postgres import SessionServer

# Everything that makes a column, index or constraint what it is; order of creation does not count.
_SHAPE = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, k.collname, a.attidentity,
           pg_get_expr(d.adbin, d.adrelid), c.reloptions
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      LEFT JOIN pg_collation k ON k.oid = a.attcollation
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
    UNION ALL
    SELECT tablename, indexname, indexdef, NULL, NULL, NULL, NULL, NULL FROM pg_indexes
     WHERE schemaname = 'public' AND tablename <> 'alembic_version'
    UNION ALL
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, NULL, NULL, NULL, NULL
      FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace AND conrelid <> 'alembic_version'::regclass
"""
_OBJECTS = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"


def _connect(url: str) -> Connection:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    return engine.connect()


def test_upgraded_database_is_what_the_models_say(database_url: str) -> None:
    with _connect(database_url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []


def test_migrations_and_models_make_the_same_tables_to_the_last_detail(
    database_url: str, empty_database_url: str
) -> None:
    with _connect(empty_database_url) as connection, connection.begin():
        METADATA.create_all(connection)
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
    shapes = []
    for url in (database_url, empty_database_url):
        with psycopg.connect(url) as connection_to_read:
            shapes.append({repr(row) for row in connection_to_read.execute(_SHAPE)})
    assert len(shapes[0]) > 200
    assert shapes[0] == shapes[1]


def test_downgrade_to_base_leaves_nothing_and_can_be_undone(database_url: str) -> None:
    assert migrations_runner.current(database_url) == migrations_runner.newest()
    migrations_runner.downgrade(database_url, BASE)
    assert migrations_runner.current(database_url) is None
    with psycopg.connect(database_url) as connection:
        assert connection.execute(_OBJECTS).fetchall() == []
    migrations_runner.upgrade(database_url)
    assert migrations_runner.current(database_url) == migrations_runner.newest()


def test_upgrading_twice_changes_nothing(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO tenants (tenant, priority) VALUES ('research', 1)")
    migrations_runner.upgrade(database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT tenant FROM tenants").fetchall() == [("research",)]


def test_concurrent_upgrades_pass_one_after_the_other(empty_database_url: str) -> None:
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def upgrade() -> None:
        start.wait()
        try:
            migrations_runner.upgrade(empty_database_url)
        except Exception as error:  # noqa: BLE001 - the test's thread must hand over whatever went wrong
            failures.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert migrations_runner.current(empty_database_url) == migrations_runner.newest()


def test_unknown_revision_is_refused_and_changes_nothing(empty_database_url: str) -> None:
    with pytest.raises(MigrationFailed, match="'9999'"):
        migrations_runner.upgrade(empty_database_url, "9999")
    assert migrations_runner.current(empty_database_url) is None


def test_database_of_a_newer_version_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE fitting_programs SET oldest_revision = '9998'")
    with pytest.raises(
        MigrationFailed, match=r"revision 9999, .* know revision 9998 at least.* newer version of Topmast"
    ):
        migrations_runner.upgrade(database_url)
    with pytest.raises(UnsuitableDatabase, match="install that version here"):
        migrations_runner.require_tables(database_url)


def test_database_of_the_next_version_is_taken_as_it_is(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE fitting_programs SET oldest_revision = %s", [migrations_runner.newest()])
    migrations_runner.require_tables(database_url)
    migrations_runner.upgrade(database_url)
    assert migrations_runner.current(database_url) == "9999"


def test_tables_that_are_too_old_are_refused(database_url: str) -> None:
    migrations_runner.downgrade(database_url, "-1")
    with pytest.raises(UnsuitableDatabase, match="run 'topmast db upgrade'"):
        migrations_runner.require_tables(database_url)


def test_missing_database_is_unavailable(postgres_server: SessionServer) -> None:
    with pytest.raises(DatabaseUnavailable):
        migrations_runner.upgrade(postgres_server.layout.url("no_such_database"))
