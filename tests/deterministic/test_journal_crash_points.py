"""The journal of ends, broken off at every byte that is written to it: an end that was told is never forgotten, nor is another read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.execution import task_reaper
from services.execution.runner_messages import RunnerReport, RunnerState
from services.execution.task_journal import JournaledTask, TaskJournal

_STARTED_S = 100.0
_REPORT = RunnerReport(3, RunnerState.ENDED, _STARTED_S, 0, ended_real_s=7.0)

Write = Callable[[Path], None]


def _begin(file: Path) -> None:
    TaskJournal(file).begin(_STARTED_S, ["docker", "rm", "--force", "it"])


def _reaped(file: Path) -> None:
    task_reaper._note_end({"command": [], "journal": str(file)}, 0)  # type: ignore[typeddict-item]  # what it reads of it


def _reported(file: Path) -> None:
    TaskJournal(file).end(_REPORT)


@dataclass(frozen=True, slots=True)
class _After:
    """What must be read after these writes, all of them whole."""

    writes: tuple[Write, ...]

    def check(self, journaled: JournaledTask | None) -> None:
        assert journaled is not None
        assert journaled.started_s == _STARTED_S
        assert journaled.report == (_REPORT if _reported in self.writes else None)
        assert journaled.exit_code == (0 if _reaped in self.writes else None)


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param((_begin, _reaped, _reported), id="as usual"),
        pytest.param((_begin, _reported), id="without a reaper"),
        pytest.param((_begin, _reported, _reaped), id="the reaper last"),
        pytest.param((_begin, _reaped, _reaped, _reported), id="noted twice"),
    ],
)
def test_what_is_written_after_a_write_that_broke_off_is_read(tmp_path: Path, writes: tuple[Write, ...]) -> None:
    """A write breaks off when the disk is full, or whoever writes is killed; what others write later is a line of its own."""
    for broken in range(1, len(writes)):
        whole_before, whole_after = writes[:broken], writes[broken + 1 :]
        for length in range(10_000):
            file = tmp_path / "journal"
            for write in whole_before:
                write(file)
            before = file.read_bytes()
            writes[broken](file)
            written = file.read_bytes()
            if len(before) + length > len(written):
                break
            file.write_bytes(written[: len(before) + length])
            for write in whole_after:
                write(file)
            came_through = length == len(written) - len(before) or written[len(before) + length :] == b"\n"
            expected = (*whole_before, *((writes[broken],) if came_through else ()), *whole_after)
            _After(expected).check(TaskJournal(file).read())
            file.unlink()


def test_a_beginning_that_broke_off_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    _begin(file)
    _reported(file)
    before = TaskJournal(file).read()
    # What is left behind by a writer that was killed in the middle of it.
    (tmp_path / ".journal.4711").write_text('{"started_s": 200.0, "after', encoding="utf-8")
    assert TaskJournal(file).read() == before
    TaskJournal(file).begin(200.0, [])
    assert TaskJournal(file).read() == JournaledTask(200.0)
