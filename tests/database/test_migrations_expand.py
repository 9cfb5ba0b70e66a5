"""New migrations only add, so that tiers of the version before go on beside them; what takes away says for whom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.database import migrations_runner
from tests.database.contracting_migrations import contracting_operations, problems_of

_VERSIONS = Path(migrations_runner.__file__).parent / "migrations" / "versions"
_FIRST = "0054"
"""Since then programs of the version before are let in."""


def test_no_migration_takes_away_what_the_version_before_needs() -> None:
    held_to_it = [path for path in sorted(_VERSIONS.glob("0*.py")) if path.name.partition("_")[0] >= _FIRST]
    assert held_to_it
    assert [problem for path in held_to_it for problem in problems_of(path)] == []


def test_revisions_are_numbers_that_sort_as_text() -> None:
    assert all(re.fullmatch(r"\d{4}", revision) for revision in migrations_runner.revisions())


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("ALTER TABLE a DROP COLUMN b", ["drops a column"]),
        ("ALTER TABLE a DROP b, DROP c", ["drops a column"]),
        ("drop table a", ["drops a table"]),
        ("ALTER TABLE a RENAME COLUMN b TO c", ["renames"]),
        ("ALTER TABLE a ALTER b TYPE BIGINT", ["changes a type"]),
        ("ALTER TABLE a ALTER COLUMN b SET NOT NULL", ["forbids null"]),
        ("ALTER TABLE a ADD COLUMN b TEXT NOT NULL", ["adds a column that must be given"]),
        ("ALTER TABLE a ADD b TEXT NOT NULL DEFAULT '', ADD c TEXT NOT NULL", ["adds a column that must be given"]),
        ("ALTER TABLE a ADD CONSTRAINT b CHECK (c > 0)", ["adds a constraint"]),
        ("ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT '', ADD COLUMN c TEXT", []),
        ("CREATE TABLE a (b TEXT NOT NULL)", []),
        ("CREATE INDEX a ON b (c)", []),
        ("DROP INDEX a", []),
        ("ALTER TABLE a DROP CONSTRAINT b", []),
        ("ALTER TABLE a ALTER COLUMN b DROP NOT NULL", []),
    ],
)
def test_what_contracts_is_known(statement: str, found: list[str]) -> None:
    assert contracting_operations(f'def upgrade():\n    op.execute("{statement}")\n') == found


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "drops a table, and a program of the version before may be at work"),
        (['CONTRACTS_FOR = "9999"'], "must be an earlier migration"),
        (['CONTRACTS_FOR = "0100"'], "does not write CONTRACTS_FOR into fitting_programs"),
    ],
)
def test_what_contracts_must_say_for_whom_it_still_fits(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / "0123_something.py"
    path.write_text("\n".join([*lines, "def upgrade():", '    op.execute("DROP TABLE a")', ""]), encoding="utf-8")
    assert any(said in problem for problem in problems_of(path))
