"""A backup brings everything back; what goes wrong leaves no half file and no half database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from services.database import migrations_runner
from services.database.backup import BackupFailed, back_up, restore
from services.database.migrations_runner import ASIDE, MigrationFailed

_LEASE = "INSERT INTO leases VALUES ('global', 'one', '127.0.0.1:1', 1, 7, now(), now() - interval '1 s', NULL)"
_TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'leases'"
)


@pytest.fixture
def filled_url(database_url: str) -> str:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO tenants (tenant, priority) SELECT 'tenant-' || n, 1 FROM generate_series(1, 500) n"
        )
        connection.execute(_LEASE)
    return database_url


def _content(url: str) -> dict[str, list[str]]:
    """The rows of each table but that of the leases."""
    with psycopg.connect(url) as connection:
        tables = [str(name) for (name,) in connection.execute(_TABLES)]
        return {
            table: sorted(str(row) for row in connection.execute(sql.SQL("TABLE {}").format(sql.Identifier(table))))
            for table in tables
        }


def test_a_restored_database_is_what_it_was(filled_url: str, empty_database_url: str, tmp_path: Path) -> None:
    made = back_up(filled_url, tmp_path / "backup")
    restored = restore(empty_database_url, tmp_path / "backup")
    assert made.revision == restored.revision == migrations_runner.newest()
    assert len(_content(filled_url)) > 40
    assert _content(empty_database_url) == _content(filled_url)
    with psycopg.connect(empty_database_url) as connection:
        (token,) = connection.execute("SELECT token FROM leases").fetchone() or (0,)
        assert token > 1_000_000, "whoever held a lease since the backup is fenced"
    migrations_runner.upgrade(empty_database_url)
    # And again from the restored one, over what is there.
    back_up(empty_database_url, tmp_path / "again")
    restore(filled_url, tmp_path / "again", replace=True)
    assert _content(filled_url) == _content(empty_database_url)


def test_what_is_there_is_not_overwritten(filled_url: str, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    back_up(filled_url, file)
    before = _content(filled_url)
    with pytest.raises(BackupFailed, match="is there already: name another file"):
        back_up(filled_url, file)
    with pytest.raises(BackupFailed, match=r"not empty: .*--replace"):
        restore(filled_url, file)
    with psycopg.connect(filled_url) as connection:
        connection.execute("UPDATE leases SET expires_at = now() + interval '1 hour'")
    with pytest.raises(BackupFailed, match=r"a tier works on this database \(global\): take the service down"):
        restore(filled_url, file, replace=True)
    assert _content(filled_url) == before


def _of_newer_tables(file: Path, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    back_up(url, file)


def _cut_off(file: Path, url: str) -> None:
    back_up(url, file)
    file.write_bytes(file.read_bytes()[: -file.stat().st_size // 4])


def _of_something_else(file: Path, _url: str) -> None:
    file.write_text("no backup")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_of_newer_tables, "was made by a newer version of Topmast .*revision 9999, .*restore it with that version"),
        (_cut_off, "is no whole backup of Topmast"),
        (_of_something_else, "is no whole backup of Topmast"),
    ],
)
def test_what_cannot_be_restored_changes_nothing(
    filled_url: str, empty_database_url: str, tmp_path: Path, make: Callable[[Path, str], None], said: str
) -> None:
    make(tmp_path / "backup", filled_url)
    with pytest.raises(BackupFailed, match=said):
        restore(empty_database_url, tmp_path / "backup")
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", [ASIDE]).fetchone() is None
    assert migrations_runner.current(empty_database_url) is None


def test_a_backup_that_breaks_off_leaves_no_file(filled_url: str, tmp_path: Path) -> None:
    with psycopg.connect(filled_url) as connection:
        # A row that the server cannot give out stands for a disk or a server that goes away on the way.
        connection.execute("ALTER TABLE tenants ENABLE ROW LEVEL SECURITY")
        connection.execute("ALTER TABLE tenants FORCE ROW LEVEL SECURITY")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'of the reader'")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        connection.execute("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO reader")
    try:
        with pytest.raises(BackupFailed, match="row-level security"):
            back_up(filled_url.replace("postgres@", "reader:of%20the%20reader@"), tmp_path / "backup")
    finally:
        with psycopg.connect(filled_url) as connection:
            connection.execute("DROP OWNED BY reader")
            connection.execute("DROP ROLE reader")
    assert list(tmp_path.iterdir()) == []


def test_a_restore_that_was_killed_is_noticed_and_repeated(filled_url: str, tmp_path: Path) -> None:
    back_up(filled_url, tmp_path / "backup")
    before = _content(filled_url)
    with psycopg.connect(filled_url) as connection:
        # What it leaves that was killed before anything was restored.
        connection.execute(f"ALTER SCHEMA public RENAME TO {ASIDE}")
        connection.execute("CREATE SCHEMA public")
    with pytest.raises(MigrationFailed, match="a restore of this database broke off"):
        migrations_runner.upgrade(filled_url)
    with pytest.raises(BackupFailed, match="not empty"):
        restore(filled_url, tmp_path / "backup")
    assert _content(filled_url) == before
    migrations_runner.upgrade(filled_url)
