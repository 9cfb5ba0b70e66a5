"""How far simulations have come: bars on a terminal, now and then a line elsewhere, always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from services.command_line.output import note
from services.command_line.wording import duration

if TYPE_CHECKING:
    from simulator.engine.simulation import RunProgress

BAR_REFRESH_S = 0.125
LINE_EVERY_S = 10.0
DAY_S = 86_400.0


class RunsProgress:
    """Takes the progress of runs by their position in `labels`; several may run at once."""

    def __init__(
        self, labels: Sequence[str], clock_zero_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._labels = labels
        self._clock_zero_s = clock_zero_s
        self._clock = clock
        self._begun_s: dict[int, float] = {}
        self._told_s: dict[int, float] = {}
        self._tasks: dict[int, Any] = {}
        self._all: Any = None
        self._ended = 0
        self._bars: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bars = _bars()
            if len(self._labels) > 1:
                self._all = self._bars.add_task("all runs", total=len(self._labels), about="")
            self._bars.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, position: int, progress: RunProgress) -> None:
        """A run has come so far."""
        now_s = self._clock()
        begun_s = self._begun_s.setdefault(position, now_s)
        every_s = LINE_EVERY_S if self._bars is None else BAR_REFRESH_S
        if now_s - self._told_s.get(position, -every_s) < every_s and progress.ended < progress.workloads:
            return
        self._told_s[position] = now_s
        about = self.sentence(progress, now_s - begun_s)
        if self._bars is None:
            share = progress.ended / max(progress.workloads, 1)
            left = _time_left(share, now_s - begun_s)
            note(f"{self._labels[position]}: {share:.0%} of {progress.workloads:,} workloads ended, {about}{left}")
            return
        if position not in self._tasks:
            self._tasks[position] = self._bars.add_task(self._labels[position], total=progress.workloads, about="")
        self._bars.update(self._tasks[position], completed=progress.ended, about=about, refresh=True)

    def ended(self, position: int) -> None:
        """A run is over."""
        self._ended += 1
        if self._bars is None:
            if len(self._labels) > 1:
                note(f"{self._labels[position]}: done, {self._ended} of {len(self._labels)} runs")
            return
        task = self._tasks.pop(position, None)
        if task is not None and self._all is not None:
            self._bars.remove_task(task)
        if self._all is not None:
            self._bars.update(self._all, completed=self._ended, refresh=True)

    def sentence(self, progress: RunProgress, since_s: float) -> str:
        """The date in the simulation, and how quick it is."""
        rate = f", {progress.events / since_s:,.0f} events/s" if since_s > 0 else ""
        return f"{date_on_clock(progress.now_s, self._clock_zero_s)}{rate}"


def date_on_clock(now_s: float, clock_zero_s: float) -> str:
    """`2017-10-03 12:40` where the trace has dates, else `day 3, 12:40`: the first day is day 1."""
    if clock_zero_s:
        return datetime.fromtimestamp(clock_zero_s + now_s, UTC).strftime("%Y-%m-%d %H:%M")
    days, rest_s = divmod(now_s, DAY_S)
    return f"day {int(days) + 1}, {int(rest_s // 3600):02d}:{int(rest_s % 3600 // 60):02d}"


def _time_left(share: float, since_s: float) -> str:
    return f", {duration(since_s / share * (1 - share))} left" if 0 < share < 1 and since_s > 0 else ""


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[about]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True, highlight=False),
        auto_refresh=False,
        transient=True,
    )
