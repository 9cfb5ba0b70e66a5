"""SQL that stands as text names tables and columns that the metadata has: PostgreSQL itself says so."""

from collections import Counter
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import NullPool, create_engine

import services.database
from services.database.tables import METADATA
from tests.database.sql_texts import SqlText, UnreadableText, prepared, texts_in, texts_of_source

_SERVICES = Path(services.database.__file__).parent.parent
_HOT_STORES = ("attempt_store", "auction_store", "queue_store", "workload_store")
_WITHOUT_TEXTS = {
    "core_statements.py": "executes statements of SQLAlchemy Core",
    "large_results.py": "executes statements of SQLAlchemy Core",
    "pipeline.py": "begins and ends transactions",
    "watcher.py": "listens to channels",
    "server_password.py": "changes a role, which cannot be prepared",
    "migrations_runner.py": "runs migrations on a connection of SQLAlchemy",
}
_SPEAKS_OF_NO_TABLE = (
    "SET ",
    "LISTEN ",
    "UNLISTEN ",
    "CREATE DATABASE ",
    "CREATE SCHEMA ",
    "CREATE TEMPORARY TABLE ",
    "ALTER SCHEMA ",
    "DROP SCHEMA ",
)


def _texts() -> list[SqlText]:
    texts = [
        text
        for path in sorted(_SERVICES.rglob("*.py"))
        if "psycopg" in path.read_text() or "AnyConnection" in path.read_text()
        if path.name not in _WITHOUT_TEXTS
        for text in texts_in(path, _SERVICES.parent)
    ]
    return [text for text in texts if not _without_comments(text.text).startswith(_SPEAKS_OF_NO_TABLE)]


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith("--")).strip()


def _refusals(url: str, texts: list[SqlText]) -> list[str]:
    """What PostgreSQL says against texts, in a database whose tables come from the metadata."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.begin() as to_fill:
        METADATA.create_all(to_fill)
    refusals = []
    with psycopg.connect(url, autocommit=True) as connection:
        for number, (place, text) in enumerate(texts):
            statement = sql.SQL(f"PREPARE statement_{number} AS {prepared(text)}")
            try:
                connection.execute(statement)
            except psycopg.errors.IndeterminateDatatype:
                continue  # of a parameter that the driver sends with its type; all names were found before
            except psycopg.Error as error:
                refusals.append(f"{place}: {error}")
    return refusals


def test_every_text_names_tables_and_columns_of_the_metadata(empty_database_url: str) -> None:
    texts = _texts()
    modules = Counter(text.place.split(":")[0] for text in texts)
    assert len(texts) > 60
    assert all(modules[f"services.database.{store}"] >= 8 for store in _HOT_STORES)
    assert _refusals(empty_database_url, texts) == []


_WRONG = """
_QUERY = "SELECT workload FROM queue_entry"


async def wrong_table(connection):
    await connection.execute(_QUERY)


async def wrong_column(connection, closed):
    which = "closed_by" if closed else "close_by"
    await connection.execute(f"SELECT {which} FROM auction_rounds WHERE round = %s", (1,))


async def wrong_column_to_change(connection):
    await _change(connection, "UPDATE attempts SET state = %(state)s, finished_s = %(now)s WHERE region = %(region)s")


async def _change(connection, query):
    async with connection.cursor() as cursor:
        await cursor.execute(query, {})


async def wrong_column_to_fill(connection):
    async with connection.cursor() as cursor, cursor.copy("COPY placements (workload, nodes) FROM STDIN") as copy:
        await copy.write_row(("a", "b"))
"""


def test_text_with_a_wrong_name_is_refused(empty_database_url: str) -> None:
    texts = texts_of_source(_WRONG, {"_QUERY": "SELECT workload FROM queue_entry"}, "wrong")
    assert len(texts) == 5
    refusals = _refusals(empty_database_url, texts)
    assert len(refusals) == 4
    for wrong, refusal in zip(("queue_entry", "close_by", "finished_s", "nodes"), refusals, strict=True):
        assert f'"{wrong}"' in refusal


def test_text_that_the_source_does_not_show_is_refused() -> None:
    source = "async def read(connection, query):\n    await connection.execute(query)\n"
    with pytest.raises(UnreadableText, match="wrong:2: query"):
        texts_of_source(source, {}, "wrong")


def test_parameters_are_numbered_once_per_name() -> None:
    assert prepared("SELECT %(a)s, %(b)s, %(a)s") == "SELECT $1, $2, $1"
    assert prepared("SELECT %s, %s, 5 %% 2") == "SELECT $1, $2, 5 % 2"
    assert prepared("COPY jobs (workload, job)\n  FROM STDIN (FORMAT BINARY)") == "SELECT workload, job FROM jobs"
    assert prepared("COPY (SELECT job FROM jobs WHERE gpus > %(least)s) TO STDOUT (FORMAT csv)") == (
        "SELECT job FROM jobs WHERE gpus > $1"
    )
    assert prepared("TRUNCATE jobs, awards") == prepared("ANALYZE jobs, awards") == "SELECT FROM jobs, awards"
