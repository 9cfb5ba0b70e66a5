"""What one sees while the demo runs: clock, queue, regions, and what has just happened."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from domain.life_cycle import LIVE, QUEUED, State
from topmast import Event, Status

_BAR_CELLS = 30
_SHOWN_EVENTS = 8
_LINE_EVERY_REAL_S = 10.0
_TOLD = frozenset({"started", "evicted", "completed", "failed", "awaiting_data"})


class View(Protocol):
    """Shows how a run goes."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def stage(self, sentence: str) -> None:
        """Something takes a while before there is anything to see."""

    def update(self, status: Status, submitted: int, total: int, elapsed_real_s: float) -> None: ...

    def happened(self, event: Event) -> None: ...


class TerminalView:
    """A screen that is drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._recent: deque[str] = deque(maxlen=_SHOWN_EVENTS)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def stage(self, sentence: str) -> None:
        self._live.update(Text(f"… {sentence}"))

    def happened(self, event: Event) -> None:
        if event.event in _TOLD:
            self._recent.append(_sentence(event))

    def update(self, status: Status, submitted: int, total: int, elapsed_real_s: float) -> None:
        regions = Table(box=None, padding=(0, 1))
        for heading in ("region", "GPUs in use", "", "running"):
            regions.add_column(heading)
        for region in status.regions:
            share = region.gpus_in_use / region.gpus if region.gpus else 0.0
            filled = round(share * _BAR_CELLS)
            bar = Text("█" * filled, style="green") + Text("░" * (_BAR_CELLS - filled), style="dim")
            regions.add_row(region.region, bar, f"{region.gpus_in_use}/{region.gpus}", str(region.live_attempts))
        headline = f"{shown_time(status.now_s)}   submitted {submitted}/{total}   {counts(status)}"
        self._live.update(
            Panel(
                Group(Text(headline), Text(), regions, Text(), *(Text(line, style="dim") for line in self._recent)),
                title=f"Topmast · {elapsed_real_s:.0f} s",
                title_align="left",
            )
        )


class LineView:
    """A line now and then: for output that is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_real_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stage(self, sentence: str) -> None:
        self._console.print(f"... {sentence}", highlight=False)

    def happened(self, event: Event) -> None:
        return None

    def update(self, status: Status, submitted: int, total: int, elapsed_real_s: float) -> None:
        if elapsed_real_s < self._next_real_s:
            return
        self._next_real_s = elapsed_real_s + _LINE_EVERY_REAL_S
        used = ", ".join(f"{region.region} {region.gpus_in_use}/{region.gpus}" for region in status.regions)
        self._console.print(
            f"{elapsed_real_s:5.0f} s  {shown_time(status.now_s)}  submitted {submitted}/{total}, {counts(status)};"
            f" GPUs in use: {used}",
            highlight=False,
            soft_wrap=True,
        )


def counts(status: Status) -> str:
    """Workloads by what they are doing."""
    workloads = status.workloads
    queued = sum(workloads.get(state, 0) for state in sorted(QUEUED))
    running = sum(workloads.get(state, 0) for state in sorted(LIVE))
    return f"queued {queued}, running {running}, completed {workloads.get(State.COMPLETED, 0)}"


def shown_time(now_s: float) -> str:
    """The service's time of day."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _sentence(event: Event) -> str:
    what = f"{event.workload}#{event.attempt}" if event.attempt is not None else str(event.workload)
    match event.event:
        case "started":
            return f"{what} started in {event.region} (priority {event.priority})"
        case "evicted":
            by = f" by {event.details['by']} (priority {event.details['by_priority']})" if "by" in event.details else ""
            return f"{what} evicted in {event.region}: {event.details.get('cause')}{by}"
        case _:
            return f"{what} {event.event.replace('_', ' ')}" + (f" in {event.region}" if event.region else "")
