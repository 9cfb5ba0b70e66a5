"""Brings a database to the tables that this version of Topmast needs, and back.

Each command is one transaction: it happens as a whole or not at all. Several at once are safe, from anywhere: an
advisory lock of the database lets them pass one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from services.database.errors import DatabaseUnavailable, UnsuitableDatabase

ASIDE: Final = "topmast_before_restore"
"""The schema that has the former tables while a backup is restored in their place (`services.database.backup`)."""

HEAD = "head"
BASE = "base"

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x746F706D617374
"""Any number with no other use: the letters of `topmast`."""


class MigrationFailed(Exception):
    """There is no such revision, or no way to it; says what to do."""


def upgrade(database_url: str, revision: str = HEAD) -> None:
    """Brings the database up to a revision; does nothing when it is there already, or newer and fit for this program.

    Raises MigrationFailed, among others when the database is too new for this program.
    """
    with _configured(database_url) as (config, connection):
        if connection.execute(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": ASIDE}).first():
            raise MigrationFailed("a restore of this database broke off: repeat it with 'topmast db restore'")
        if revision == HEAD and _is_newer(connection):
            _require_fitting(connection)
            return
        _run(config, command.upgrade, revision)


def downgrade(database_url: str, revision: str) -> None:
    """Takes the database back to a revision, with whatever only newer ones can hold; `base` leaves nothing at all."""
    with _configured(database_url) as (config, connection):
        _run(config, command.downgrade, revision)
        if MigrationContext.configure(connection).get_current_revision() is None:
            connection.execute(text("DROP TABLE IF EXISTS alembic_version"))


def current(database_url: str) -> str | None:
    """The revision that the database is at; None: it has none of our tables."""
    with _connected(database_url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest() -> str:
    """The revision that this program needs."""
    revision = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    if revision is None:
        raise MigrationFailed(f"the installation is incomplete: there are no migrations in {_SCRIPTS}")
    return revision


def revisions() -> frozenset[str]:
    """All that this program knows."""
    return frozenset(script.revision for script in ScriptDirectory(str(_SCRIPTS)).walk_revisions())


def require_tables(url: str) -> None:
    """Raises UnsuitableDatabase where this program cannot work with the tables: they are older, or too new."""
    with _connected(url) as connection:
        if _is_newer(connection):
            try:
                _require_fitting(connection)
            except MigrationFailed as error:
                raise UnsuitableDatabase(str(error)) from error
            return
        here = MigrationContext.configure(connection).get_current_revision()
    if here != newest():
        raise UnsuitableDatabase(
            f"the database is at revision {here or 'empty'}, and this program needs {newest()}; run 'topmast db upgrade',"
            " or start the service with 'topmast up'"
        )


def _is_newer(connection: Connection) -> bool:
    """Whether a newer program has brought the tables to where they are."""
    here = MigrationContext.configure(connection).get_current_revision()
    return here is not None and here not in revisions()


def _require_fitting(connection: Connection) -> None:
    """Raises MigrationFailed where newer tables lack what this program needs."""
    known = connection.execute(text("SELECT to_regclass('fitting_programs') IS NOT NULL")).scalar()
    oldest = connection.execute(text("SELECT oldest_revision FROM fitting_programs")).scalar() if known else None
    if oldest is None or newest() < str(oldest):
        here = MigrationContext.configure(connection).get_current_revision()
        raise MigrationFailed(
            f"the database is at revision {here}, which needs programs that know revision {oldest or here} at least, and"
            f" this one knows them up to {newest()}: a newer version of Topmast has used it; install that version here"
        )


def _run(config: Config, action: object, revision: str) -> None:
    if not callable(action):
        raise TypeError(f"{action!r} is no command of Alembic")
    try:
        action(config, revision)
    except CommandError as error:
        raise MigrationFailed(
            f"the database cannot be brought to revision {revision!r}: {error}; "
            "if a newer version of Topmast has used it, use that version"
        ) from error


@contextmanager
def _configured(database_url: str) -> Iterator[tuple[Config, Connection]]:
    """Alembic's configuration on a connection in a transaction that holds the lock; committed at the end."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    with _connected(database_url) as connection, connection.begin():
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        config.attributes["connection"] = connection
        yield config, connection


@contextmanager
def _connected(database_url: str) -> Iterator[Connection]:
    # psycopg reads the URL: SQLAlchemy knows fewer of its forms.
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except OperationalError as error:
        if error.connection_invalidated or isinstance(error.orig, psycopg.OperationalError):
            raise DatabaseUnavailable(f"the database was lost: {error.orig}") from error
        raise
    finally:
        engine.dispose()


def main() -> int:
    """The process of `services.database.upgrade_beside`: reads the URL from its input, which nobody else sees, and prints why it fails."""
    try:
        upgrade(sys.stdin.read())
    except (MigrationFailed, DatabaseUnavailable, UnsuitableDatabase) as error:
        sys.stdout.write(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
