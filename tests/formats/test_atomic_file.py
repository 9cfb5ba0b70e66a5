"""Files that are there whole or not at all; what is no regular file is written through, and never replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from formats.atomic_file import atomic_file


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as part:
        part.write_text(text)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_new_file_is_there_at_the_end_only(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with atomic_file(file) as part:
        part.write_text("new")
        assert part.suffix == ".csv"
        assert not file.exists()
    assert file.read_text() == "new"
    assert _names(tmp_path) == ["a.csv"]


def test_a_folder_that_is_not_there_is_told_by_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"its folder is not there: '.*/nowhere/a\.csv'"):
        _write(tmp_path / "nowhere" / "a.csv", "new")


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("old")

    def fail() -> None:
        with atomic_file(file) as part:
            part.write_text("half")
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert file.read_text() == "old"
    assert _names(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_are_kept(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "a.csv"
    file.write_text("old")
    file.chmod(mode)
    _write(file, "new")
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "a.csv", tmp_path / "link.csv"
    if there:
        file.write_text("old")
    link.symlink_to(file)
    _write(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert _names(tmp_path / "elsewhere") == ["a.csv"]


@pytest.mark.parametrize("linked", [True, False])
def test_a_pipe_is_written_through(tmp_path: Path, linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    said = pipe
    if linked:
        said = tmp_path / "link"
        said.symlink_to(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    _write(said, "through")
    reader.join(timeout=60)
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_the_shell_opened_is_written_through(tmp_path: Path) -> None:
    """As /dev/stdout is, where the output goes into a file."""
    file = tmp_path / "out"
    with file.open("w") as opened:
        before = file.stat().st_ino
        _write(Path(f"/dev/fd/{opened.fileno()}"), "through")
    assert file.read_text() == "through"
    assert file.stat().st_ino == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_must_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("old")
    file.chmod(0o400)
    with pytest.raises(PermissionError, match=r"a\.csv"):
        _write(file, "new")
    assert file.read_text() == "old"
