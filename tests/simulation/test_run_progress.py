"""Bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

from services.command_line.run_progress import RunsProgress, date_on_clock
from simulator.engine.simulation import RunProgress


class SteppedClock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def come(ended: int, events: int = 0) -> RunProgress:
    return RunProgress(now_s=ended * 3600.0, events=events, submitted=ended + 5, ended=ended, workloads=100)


def test_lines_are_few_and_say_how_far_and_how_long_still(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SteppedClock()
    with RunsProgress(["fifo"], clock=clock) as view:
        for second in range(31):
            clock.now_s = float(second)
            view.say(0, come(second, 1000 * second))
        view.say(0, come(100, 50_000))
        view.ended(0)
    assert capsys.readouterr().err.splitlines() == [
        "fifo: 0% of 100 workloads ended, day 1, 00:00",
        "fifo: 10% of 100 workloads ended, day 1, 10:00, 1,000 events/s, 1m 30s left",
        "fifo: 20% of 100 workloads ended, day 1, 20:00, 1,000 events/s, 1m 20s left",
        "fifo: 30% of 100 workloads ended, day 2, 06:00, 1,000 events/s, 1m 10s left",
        "fifo: 100% of 100 workloads ended, day 5, 04:00, 1,667 events/s",
    ]


def test_a_terminal_shows_a_bar_for_each_run_and_one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), SteppedClock()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    with RunsProgress(["fifo", "mast"], clock_zero_s=1_500_000_000.0, clock=clock) as view:
        view.say(0, come(10))
        clock.now_s = 2.0
        view.say(0, come(40, 4000))
        view.say(1, come(20))
        view.ended(0)
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert re.search(r"fifo +━.* 40% 2017-07-15 18:40, 2,000 events/s", printed)
    assert re.search(r"mast +━.* 20% 2017-07-14 22:40", printed)
    assert re.search(r"all runs +━.* 50%", printed)


def test_dates_are_those_of_the_trace_or_days_of_its_clock() -> None:
    assert date_on_clock(90_000.0, 0.0) == "day 2, 01:00"
    assert date_on_clock(90_000.0, 1_506_902_400.0) == "2017-10-03 01:00"
