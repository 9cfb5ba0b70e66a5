"""topmast db prune, and how long what is over is kept by configuration."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from domain.events import Event, EventKind
from formats.problems import FormatError
from services.configuration import load_configuration
from services.database import event_store, use_store
from services.database.engine import Database
from services.retention.age import DAY_S
from services.runtime.clock_record import record_clock
from tests.command_line.conftest import Topmast


@pytest.mark.parametrize(
    ("age", "said"),
    [
        ("0d", "still needed for credit"),
        ("-3d", "still needed for credit"),
        ("23h", "what is younger than 1 day is still needed"),
        ("23h", "keep at least that"),
        ("1000000000d", "at most 36525 days make sense"),
        ("1000000000d", "take nothing out at all"),
        ("soon", "such as 30d"),
        ("30", "such as 30d"),
        ("30y", "such as 30d"),
    ],
)
def test_an_age_that_makes_no_sense_is_refused(topmast: Topmast, age: str, said: str) -> None:
    result = topmast("db", "prune", "--older-than", age, "--yes")
    assert result.exit_code == 2
    words = " ".join(result.stderr.replace("│", " ").split())
    assert "--older-than" in words
    assert said in words


@pytest.mark.parametrize(
    ("age", "said"), [("29d", "kept for 30 days; keep them at least that"), ("never", "such as 30d")]
)
def test_workloads_are_kept_for_no_less_than_what_they_had(topmast: Topmast, age: str, said: str) -> None:
    result = topmast("db", "prune", "--older-than", "30d", "--workloads-older-than", age, "--yes")
    assert result.exit_code == 2
    words = " ".join(result.stderr.replace("│", " ").split())
    assert "--workloads-older-than" in words
    assert said in words


def test_an_archive_that_cannot_be_written_is_refused(topmast: Topmast, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    result = topmast("db", "prune", "--archive", str(file / "archive"), "--yes")
    assert result.exit_code == 2
    words = " ".join(result.stderr.replace("│", " ").split())
    assert "--archive" in words
    assert "name a folder that can" in words


def test_an_archive_that_is_a_file_is_refused_before_anything_is_counted(topmast: Topmast, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    result = topmast("db", "prune", "--archive", str(file), "--dry-run")
    assert result.exit_code == 2
    assert "is a file" in result.stderr


def test_a_database_without_tables_is_refused_in_words(topmast: Topmast, empty_database_url: str) -> None:
    result = topmast("db", "prune", "--database-url", empty_database_url, "--dry-run")
    assert result.exit_code == 4
    assert "run 'topmast db upgrade'" in result.stderr


@pytest.mark.parametrize("command", [("db", "prune", "--dry-run"), ("db", "current"), ("profile", "show")])
def test_a_home_without_a_database_is_refused_and_gets_none(
    topmast: Topmast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.delenv("TOPMAST_DATABASE_URL", raising=False)
    home = tmp_path / "mistyped"
    result = topmast(*command, "--home", str(home))
    assert result.exit_code == 4
    assert f"there is no database in {home}; name the folder of a Topmast with --home" in result.stderr
    assert not home.exists()


def test_where_nobody_can_be_asked_it_wants_yes(topmast: Topmast) -> None:
    result = topmast("db", "prune")
    assert result.exit_code == 2
    assert "--dry-run shows what would go" in " ".join(result.stderr.replace("│", " ").split())


def test_an_empty_database_has_nothing_that_is_old(topmast: Topmast, database_url: str, tmp_path: Path) -> None:
    result = topmast("db", "prune", "--database-url", database_url, "--yes", "--archive", str(tmp_path / "archive"))
    assert (result.exit_code, result.stdout) == (0, "nothing is older than 30d\n")
    counted = topmast("db", "prune", "--database-url", database_url, "--dry-run", "--json")
    assert json.loads(counted.stdout) == {"dry_run": True, "rows": {}}


def test_ages_are_those_of_the_services_clock(topmast: Topmast, database_url: str) -> None:
    now_s = time.time()

    async def fill() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await record_clock(connection, speed=1.0, origin_s=now_s + 2 * DAY_S)
            await event_store.append(connection, [Event(now_s, EventKind.MACHINE_DOWN)])
            await use_store.count_uses(connection, [], 0, 1_000_000)

    asyncio.run(fill())
    prune = ("db", "prune", "--database-url", database_url, "--dry-run", "--json", "--older-than")
    assert json.loads(topmast(*prune, "3d").stdout)["rows"] == {}
    assert json.loads(topmast(*prune, "36h").stdout)["rows"] == {"events": 1}


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("older_than_s: 3600", "retention.older_than_s"),
        ("older_than_s: -1", "retention.older_than_s"),
        ("older_than_s: 1.0e+15", "retention.older_than_s"),
        ("archive: archive", "retention.archive"),
        ("workloads_older_than_s: 2592000", "retention.workloads_older_than_s"),
        ("older_than_s: 2592000\n  workloads_older_than_s: 2591999", "retention.workloads_older_than_s"),
        ("older_than_s: 2592000\n  workloads_older_than_s: 1.0e+15", "retention.workloads_older_than_s"),
        ("older_than_s: 2592000\n  archive: ''", "retention.archive"),
        ("older_than_s: 2592000\n  archive: scheduler.yaml/archive", "retention.archive"),
    ],
)
def test_a_configuration_that_would_lose_what_is_needed_is_refused(tmp_path: Path, section: str, field: str) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"retention:\n  {section}\n")
    with pytest.raises(FormatError) as refused:
        load_configuration(path)
    assert [problem.field for problem in refused.value.problems] == [field]


def test_the_archive_of_a_configuration_is_beside_its_file(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text("retention:\n  older_than_s: 2592000\n  archive: archive\n")
    retention = load_configuration(path).retention
    assert (retention.older_than_s, retention.archive) == (2_592_000.0, str(tmp_path / "archive"))
