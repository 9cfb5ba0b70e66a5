"""`topmast clean` lists and removes what former runs of a home have left, and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.runtime.home import HomeLayout
from services.runtime.host_lock import host_lock
from services.runtime.host_record import HostRecord, HostState
from tests.command_line.test_command_service import topmast

_BYTES = 3_000


@pytest.fixture
def home() -> Iterator[Path]:
    """With a name that is short enough for sockets, so that everything is in there."""
    with tempfile.TemporaryDirectory(prefix="topmast-") as folder:
        yield Path(folder)


def _file(path: Path, *, old: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * _BYTES)
    if old:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def _kept(home: Path) -> list[Path]:
    """What workloads have written, and the database."""
    names = ("checkpoints/w-1/1.npz", "logs/w-1/1/main-0.log", "postgres/data/PG_VERSION", "ray/mine.txt", "notes.txt")
    return [_file(home / name) for name in names]


def test_what_former_runs_have_left_is_listed_with_sizes_and_removed_only_when_told(home: Path, tmp_path: Path) -> None:
    kept, layout = _kept(home), HomeLayout(home)
    gone = [
        _file(layout.ray_sessions / "session_2026-01-01_10-00-00_000001_17" / "logs" / "raylet.out"),
        _file(home / "logs" / "host.log"),
        _file(home / "logs" / "host.log.1"),
        _file(home / "logs" / "tiers" / "tiers.log"),
        _file(home / "postgres" / "server.log.old"),
        _file(layout.simulations / "a.npz"),
    ]
    (layout.ray_sessions / "session_latest").symlink_to(gone[0].parents[1])
    outside = _file(tmp_path / "session_of_others")
    (layout.ray_sessions / "session_elsewhere_18").symlink_to(outside.parent)
    listed = topmast("clean", "--home", str(home))
    assert listed.exit_code == 0, listed.stderr
    assert listed.stderr == "nothing was removed; --yes removes 17.6 KiB\n"
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [["2.9", "KiB"]] * len(gone)
    assert all(file.exists() for file in (*gone, *kept))
    removed = topmast("clean", "--home", str(home), "--yes")
    assert removed.stdout.endswith("removed 17.6 KiB\n")
    assert not any(file.exists() for file in gone)
    assert all(file.exists() for file in (*kept, outside))
    assert topmast("clean", "--home", str(home)).stdout == f"there is nothing to remove in {home}\n"


def test_nothing_is_removed_that_a_living_service_uses(home: Path) -> None:
    process, layout = psutil.Process(), HomeLayout(home)
    HostRecord(process.pid, process.create_time(), HostState.READY).write(layout.host_record)
    used = [
        _file(layout.ray_sessions / f"session_2026-01-02_10-00-00_000001_{process.pid}" / "logs" / "raylet.out"),
        _file(home / "logs" / "host.log"),
    ]
    old = [
        _file(layout.ray_sessions / f"session_2026-01-01_10-00-00_000001_1{process.pid}" / "logs" / "raylet.out"),
        _file(home / "logs" / "tiers" / "regional-gone.log", old=True),
    ]
    with host_lock(layout.host_lock):
        told = json.loads(topmast("clean", "--home", str(home), "--yes", "--json").stdout)
    assert {one["path"] for one in told["leftovers"]} == {str(old[0].parents[1]), str(old[1])}
    assert told["size_bytes"] == len(old) * _BYTES
    assert all(file.exists() for file in used)
    assert not any(file.exists() for file in old)


def test_a_home_whose_service_is_just_being_started_is_left_alone(home: Path) -> None:
    log, layout = _file(home / "logs" / "host.log"), HomeLayout(home)
    with host_lock(layout.host_lock):
        refused = topmast("clean", "--home", str(home), "--yes")
    assert refused.exit_code == 5
    assert "another process holds" in refused.stderr
    assert log.exists()


def test_a_home_that_is_not_there_is_not_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPMAST_HOME", str(home / "nowhere"))
    assert topmast("clean", "--yes").stdout == f"there is nothing to remove in {home / 'nowhere'}\n"
    assert not (home / "nowhere").exists()
