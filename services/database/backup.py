"""Backups of the database: one file each, whole or not there, and restored whole or not at all.

They are archives of pg_dump (custom format): a snapshot of one moment, taken while the service goes on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from services.database.errors import DatabaseUnavailable
from services.database.migrations_runner import ASIDE, current, newest, revisions
from services.database.postgres_programs import ProgramFailed, run_program
from services.security.secret_values import hash_of, new_secret

_UNFINISHED: Final = ".unfinished"

_LOCK_KEY: Final = 0x726573746F7265
"""Of the advisory lock of who restores: the letters of `restore`."""

_TOKENS_AHEAD: Final = 1_000_000_000
"""So much greater the tokens of leases are after a restore: greater than any that was given since the backup was made."""

_SECRETS_SINCE: Final = "0057"
"""The revision of the tables since which leases have secrets."""


class BackupFailed(Exception):
    """A backup was not made, or not restored; says why. Nothing is changed, and there is no half file."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a file has in it."""

    file: Path
    size_bytes: int
    revision: str
    """Of the tables."""


def back_up(url: str, file: Path) -> Backup:
    """Writes everything in the database to a file that is not there yet. Raises BackupFailed."""
    if file.exists():
        raise BackupFailed(f"{file} is there already: name another file")
    if current(url) is None:
        raise BackupFailed("the database has no tables of Topmast: there is nothing to back up")
    unfinished = file.with_name(f"{file.name}{_UNFINISHED}")
    unfinished.unlink(missing_ok=True)
    try:
        # Closed to others from the first byte on.
        unfinished.touch(mode=0o600)
        _run("pg_dump", url, ["--format=custom", "--no-owner", "--no-privileges", "--file", unfinished])
        made = read_backup(unfinished)
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return Backup(file, made.size_bytes, made.revision)


def read_backup(file: Path) -> Backup:
    """What is in the file, of which every byte is read. Raises BackupFailed where it is no backup, or a part of one."""
    if not file.is_file():
        raise BackupFailed(f"{file} is no file")
    try:
        # To nowhere: that unpacks everything.
        run_program("pg_restore", None, ["--file", os.devnull, file])
        versions = run_program("pg_restore", None, ["--data-only", "--table=alembic_version", "--file=-", file])
    except ProgramFailed as error:
        raise BackupFailed(f"{file} is no whole backup of Topmast ({error})") from error
    lines = versions.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("COPY ")), None)
    if begin is None or begin + 1 >= len(lines) or lines[begin + 1] == "\\.":
        raise BackupFailed(f"{file} is a backup of something else: it has no tables of Topmast")
    return Backup(file, file.stat().st_size, lines[begin + 1].strip())


def restore(url: str, file: Path, *, replace: bool = False) -> Backup:
    """Makes the database what it was when the backup was made, whole or not at all. Raises BackupFailed.

    `replace`: a database that is not empty loses what it has; else it is refused. No tier may work on it meanwhile.
    Leases begin with tokens that are greater than any that may have been given since.
    """
    backup = read_backup(file)
    if backup.revision not in revisions():
        raise BackupFailed(
            f"{file} was made by a newer version of Topmast (its tables are at revision {backup.revision}, this program"
            f" knows them up to {newest()}): restore it with that version"
        )
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            _lock(connection)
            _finish_former(connection)
            _require_free(connection, replace=replace)
            _set_aside(connection)
            try:
                _run("pg_restore", url, ["--no-owner", "--no-privileges", "--single-transaction", file])
                with connection.transaction():
                    connection.execute(
                        "UPDATE leases SET holder = '', token = token + %s, expires_at = clock_timestamp()",
                        [_TOKENS_AHEAD],
                    )
                    if backup.revision >= _SECRETS_SINCE:
                        # Nobody is given the secrets of these numbers: no order passes before the leases are acquired.
                        connection.execute(
                            "UPDATE leases SET secret_hash = %s, secret_token = token", [hash_of(new_secret())]
                        )
                    connection.execute(f"DROP SCHEMA {ASIDE} CASCADE")
            except BaseException:
                # Where the database is lost, the next restore does it.
                with suppress(psycopg.OperationalError):
                    _take_back(connection)
                raise
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(f"the database was lost: {str(error).strip()}") from error
    return backup


def _run(name: str, url: str, arguments: list[str | Path]) -> None:
    try:
        run_program(name, url, arguments)
    except ProgramFailed as error:
        raise BackupFailed(str(error)) from error


def _lock(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """For as long as the connection lives. Raises BackupFailed while somebody else restores."""
    if connection.execute("SELECT pg_try_advisory_lock(%s::bigint)", [_LOCK_KEY]).fetchone() != (True,):
        raise BackupFailed("another process restores this database at this moment: wait until it has ended")


def _require_free(connection: psycopg.Connection[tuple[object, ...]], *, replace: bool) -> None:
    """Raises BackupFailed while tiers work on the database, and where it is not empty and may not be replaced."""
    if not connection.execute("SELECT 1 FROM pg_class WHERE relnamespace = 'public'::regnamespace LIMIT 1").fetchone():
        return
    if connection.execute("SELECT to_regclass('public.leases')").fetchone() != (None,):
        held = connection.execute(
            "SELECT name FROM leases WHERE expires_at > clock_timestamp() ORDER BY name"
        ).fetchone()
        if held is not None:
            raise BackupFailed(f"a tier works on this database ({held[0]}): take the service down first (topmast down)")
    if not replace:
        raise BackupFailed(
            "the database is not empty: name another one, or have all that is in it replaced (--replace)"
        )


def _set_aside(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with connection.transaction():
        connection.execute(f"ALTER SCHEMA public RENAME TO {ASIDE}")
        connection.execute("CREATE SCHEMA public")


def _take_back(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with connection.transaction():
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute(f"ALTER SCHEMA {ASIDE} RENAME TO public")


def _finish_former(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """A restore that was killed left the former tables aside: they come back."""
    if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [ASIDE]).fetchone() is not None:
        _take_back(connection)
