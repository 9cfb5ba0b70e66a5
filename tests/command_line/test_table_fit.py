"""Tables within 60, 80 and 120 columns: names whole, sentences by words, what finds no room named. Goldens in `tables/`.

`pytest --rewrite tests/command_line/test_table_fit.py` writes them anew; read the difference.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from services.command_line.output import note, print_table, show, show_json, show_line
from services.command_line.table_fit import GAP, TextTable, fit
from services.command_line.waiting_view import waiting_table
from services.command_line.workload_view import attempts_table, details_table, list_table
from topmast.v1 import workload_pb2
from topmast.workloads import Workload, workload_from_proto

GOLDENS = Path(__file__).parent / "tables"
ID = "w-01kb3x5m9qv7t2c8h4n6"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock on the wall shows UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def waiting() -> Workload:
    """It was preempted once, failed once, and waits: two regions say why."""
    message = workload_pb2.Workload(
        workload=ID,
        state=workload_pb2.WORKLOAD_STATE_WAITING,
        submitted_s=1_790_000_000.0,
        specification=workload_pb2.WorkloadSpecification(name="resnet50-imagenet-ablation", tenant="computer-vision"),
        reason="No region has room for it now: east: job trainer asks for 8 tasks of 8 A100 GPUs; west: the same.",
        failures=1,
        remarks=[
            "job trainer keeps its 8 tasks and does not grow to 16 by itself yet: scheduler.yaml names no elastic policy"
        ],
    )
    job = message.specification.jobs.add(name="trainer", tasks=8, max_tasks=16)
    job.resources.gpus, job.resources.gpu_model = 8, "A100"
    job.command.arguments.extend(["python", "train.py", "--config", "configs/imagenet/resnet50_with_a_long_name.yaml"])
    position = message.queue_position
    position.priority, position.within_quota, position.rank = 2, True, 17
    position.reason = f"{message.reason} (64 of the 128 A100 of computer-vision are in use)"
    for region, available in (("east", 3), ("west", 0)):
        one = message.region_diagnoses.add()
        one.diagnosis.reason, one.diagnosis.region, one.diagnosis.cluster = "no_room", region, f"{region}-training-a"
        one.diagnosis.job, one.diagnosis.since_s = "trainer", 1_790_000_100.0
        one.diagnosis.numbers.add(quantity="tasks", asked=8, available=available)
        one.holders.add(workload="w-01kb3x5m9qv7t2c8h4n5", name="vit-large", priority=2, workloads=1, gpus=32)
        one.holders.add(priority=1, workloads=3, gpus=96)
    position.diagnosis.CopyFrom(message.region_diagnoses[0].diagnosis)
    first = message.attempts.add(
        attempt=1, region="east", started_s=1_790_000_010.0, ended_s=1_790_000_070.0, end="preempted"
    )
    first.preempted_by.priority = 1
    second = message.attempts.add(
        attempt=2, region="west", started_s=1_790_000_080.0, ended_s=1_790_000_090.0, end="failed"
    )
    second.end_reason = "task 3 of job trainer ended with exit code 137: killed, out of memory"
    return workload_from_proto(message)


def tables_of(workload: Workload) -> list[TextTable]:
    return [
        list_table([workload]),
        details_table(workload),
        waiting_table(workload.region_diagnoses),
        attempts_table(workload.attempts),
    ]


def printed(width: int, *, wide: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, force_terminal=False)
    for table in tables_of(waiting()):
        print_table(console, table, wide=wide)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def test_nothing_that_others_have_written_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of a task's log, say, which is why its attempt ended."""
    hostile = "\x1b]0;mine\x07\x1b[2J\r\x9b1A\u202e"
    table = TextTable("", ("name", "why"), [("w-1", f"{hostile}\nw-2  COMPLETED")])
    stream = io.StringIO()
    print_table(Console(file=stream, width=200, highlight=False, force_terminal=True), table)
    show(table)
    show_line(hostile)
    show_json({"why": hostile})
    note(hostile)
    captured = capsys.readouterr()
    texts = stream.getvalue(), captured.out, captured.err
    for text in texts:
        assert "mine" in text
        assert not set("\x07\r\x9b\u202e") & set(text)
        assert "\x1b]" not in text
        assert "\x1b[2J" not in text
        assert not any(line.startswith("w-2") for line in text.splitlines())
    assert json.loads(captured.out.splitlines()[-1]) == {"why": hostile}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_within_the_width_names_are_whole_and_sentences_wrap_by_words(
    width: int, request: pytest.FixtureRequest
) -> None:
    shown, golden = printed(width), GOLDENS / f"{width}.txt"
    if request.config.getoption("--rewrite"):
        golden.write_text(shown)
    assert shown == golden.read_text()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert shown.count(ID) == 2
    assert shown.count("w-01kb3x5m9qv7t2c8h4n5") == 2
    # No word of a sentence is split, and no time is a bare number.
    assert set(shown.split()) >= {"task", "ended", "with", "exit", "code", "137:", "killed,", "out", "of", "memory"}
    assert "1790000" not in shown.replace(".", "")


def test_wide_output_has_every_column_in_one_line_a_row() -> None:
    shown = printed(60, wide=True)
    assert "not shown" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith(ID)]
    for word in ("resnet50-imagenet-ablation", "computer-vision", "WAITING", "64", "2026-09-21 14:13:20 UTC", "since"):
        assert word in row


def test_what_finds_no_room_is_named() -> None:
    assert "not shown at this width: " in printed(60)


WORDS = st.text("abc", min_size=1, max_size=12)


@given(
    rows=st.lists(st.tuples(WORDS, WORDS, st.lists(WORDS, max_size=20).map(" ".join)), min_size=1, max_size=4),
    width=st.integers(10, 120),
)
def test_never_wider_than_asked_and_never_narrower_than_a_name(rows: list[tuple[str, str, str]], width: int) -> None:
    fitted = fit(TextTable("", ("id", "name", "why"), rows, prose=frozenset({2}), least=(1,)), width)
    if fitted.widths is None:
        return
    assert sum(fitted.widths) + GAP * (len(fitted.widths) - 1) <= width
    assert fitted.widths[0] >= max(len(row[0]) for row in rows)
    assert fitted.left_out == (() if len(fitted.widths) == 3 else ("name",))
