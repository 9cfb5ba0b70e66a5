import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import JobName, WorkloadId
from services.execution.executor import LogRequest
from services.execution.task_logs import TaskLogs
from services.execution.task_paths import TaskPaths, escaped, last_line, write_whole
from tests.execution.orders import key


@given(st.text(max_size=20), st.text(max_size=20))
def test_never_does_a_name_lead_out_of_the_home(workload: str, job: str) -> None:
    paths = TaskPaths(Path("/home"))
    attempt = key(workload)
    for path, depth in (
        (paths.checkpoint_directory(attempt.workload), 2),
        (paths.attempt_directory(attempt), 3),
        (paths.task_directory(attempt, JobName(job), 0), 4),
        (paths.log(attempt, JobName(job), 0), 4),
    ):
        assert "\0" not in str(path)
        assert ".." not in path.parts
        assert len(path.relative_to("/home").parts) == depth


@given(st.text(max_size=10), st.text(max_size=10))
def test_never_do_two_names_become_one(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)


def test_logged_tasks_are_found_again(tmp_path: Path) -> None:
    paths = TaskPaths(tmp_path)
    for number, job, task in ((1, "train", 0), (2, "pre-process/a", 10), (2, "train", 2)):
        log = paths.log(key(attempt=number), JobName(job), task)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    assert paths.logged_attempts(WorkloadId("w")) == (1, 2)
    found = [(logged.job, logged.task) for logged in paths.logged_tasks(key(attempt=2))]
    assert found == [("pre-process/a", 10), ("train", 2)]
    assert paths.logged_attempts(WorkloadId("nobody")) == ()
    assert paths.logged_tasks(key("nobody")) == ()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"one\ntwo\n\n", "two"),
        (b"no line break", "no line break"),
        (b"\xff\xfe broken\n", "\ufffd\ufffd broken"),
        (b"x" * 20_000, "x" * 300),
    ],
    ids=["empty", "blank", "two lines", "unfinished", "not unicode", "endless"],
)
def test_the_last_line_of_a_log(tmp_path: Path, content: bytes, line: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert last_line(log) == line


def test_a_log_that_is_not_there_has_no_last_line(tmp_path: Path) -> None:
    assert last_line(tmp_path / "nothing") == ""


def test_a_small_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_whole(path, "one")
    write_whole(path, "two")
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


@given(
    st.lists(st.binary(max_size=40_000).map(lambda line: line.replace(b"\n", b"")), max_size=6),
    st.booleans(),
    st.integers(1, 8),
)
def test_never_does_a_tail_differ_from_the_last_lines(lines: list[bytes], finished: bool, wanted: int) -> None:
    content = b"\n".join(lines) + (b"\n" if finished and lines else b"")
    whole = content.splitlines(keepends=True) if b"\r" not in content else split_at_line_breaks(content)

    async def tail(home: Path) -> bytes:
        log = TaskPaths(home).log(key(), JobName("train"), 0)
        await asyncio.to_thread(write_log, log, content)
        request = LogRequest(WorkloadId("w"), tail_lines=wanted)
        chunks = [chunk.chunk async for chunk in TaskLogs(TaskPaths(home), "").read(request, (), lambda _: True)]
        return b"".join(chunks)

    with TemporaryDirectory() as home:
        assert asyncio.run(tail(Path(home))) == b"".join(whole[-wanted:])


def split_at_line_breaks(content: bytes) -> list[bytes]:
    """Only at \\n: a carriage return is part of a line."""
    parts = [part + b"\n" for part in content.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return [part for part in parts if part]


def write_log(log: Path, content: bytes) -> None:
    log.parent.mkdir(parents=True)
    log.write_bytes(content)
