"""What a run that begins with a snapshot goes on from, and what of it is a guess; on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.output import note
from services.command_line.wording import counted, moment

if TYPE_CHECKING:
    from domain.snapshot import Snapshot


def tell_snapshot(snapshot: Snapshot, default_duration_s: float | None) -> None:
    """How much waits and runs, and of how much the remaining work is unknown."""
    from domain.workload import emulated_work_s

    queued, running = counted(len(snapshot.queue), "queued workload"), counted(len(snapshot.running), "running attempt")
    note(f"the run goes on from {moment(snapshot.taken_s)}: {queued}, {running}")
    unknown = sum(1 for workload in snapshot.workloads() if emulated_work_s(workload.specification) is None)
    if unknown and default_duration_s is not None:
        note(
            f"estimated: {counted(unknown, 'workload')} of {len(snapshot.workloads()):,} are not emulated; each is taken "
            f"to work for {default_duration_s:g} s more (--default-duration)"
        )
