"""A real PostgreSQL for every test that asks for a database: one server per session, a fresh database per test."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from services.database import migrations_runner
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from tests.fresh_databases import FreshDatabases

_TEMPLATE = "topmast_template"


@dataclass
class SessionServer:
    """The session's server, and databases in it."""

    layout: EmbeddedLayout
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.fresh = FreshDatabases(self.layout.url, self._copy_template, self.drop_database, _TEMPLATE)
        """For tests that need nothing but the tables."""

    def make_template(self) -> None:
        """All further databases are copies of this one."""
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
        migrations_runner.upgrade(self.layout.url(_TEMPLATE))

    def new_database(self, *, template: str = _TEMPLATE) -> str:
        """The name of a fresh database with all tables (and, with template0, with none)."""
        name = f"own_{next(self._numbers)}"
        self._copy(name, template)
        return name

    def _copy_template(self, name: str) -> None:
        self._copy(name, _TEMPLATE)

    def _copy(self, name: str, template: str) -> None:
        # Copying files is quicker than logging every page, and forcing that to disk is switched off here.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))

    def drop_database(self, name: str) -> None:
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.layout.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[SessionServer]:
    """The session's PostgreSQL server; it ends with the session, however that ends."""
    home = Path(tempfile.mkdtemp(prefix="topmast-postgres-"))
    try:
        start_embedded(home, settings=["fsync=off", "full_page_writes=off", "autovacuum=off"], stop_with_us=True)
        server = SessionServer(EmbeddedLayout.of(home))
        server.make_template()
        yield server
    finally:
        stop_embedded(home)
        shutil.rmtree(home)


@pytest.fixture
def database_url(postgres_server: SessionServer) -> Iterator[str]:
    """The URL of a fresh database that has all tables and nothing in them."""
    name = postgres_server.fresh.take()
    yield postgres_server.layout.url(name)
    postgres_server.fresh.give_back(name)


@pytest.fixture
def empty_database_url(postgres_server: SessionServer) -> Iterator[str]:
    """The URL of a fresh database without any tables."""
    name = postgres_server.new_database(template="template0")
    yield postgres_server.layout.url(name)
    postgres_server.drop_database(name)
