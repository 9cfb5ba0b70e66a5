"""How long workloads waited: from becoming pending to running, each time anew (MAST §5.5, Figure 11).

A workload becomes pending when it is submitted, and again whenever an attempt that ran has ended without ending the
workload. An attempt that never ran ends no wait and begins none. What counts as waiting thus includes the queue, the
auction, the eviction of victims and the start of containers: everything but running.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.results.grouping import sums_by_group
from simulator.results.run_record import NO_ROW, Flags, Integers, Reals, RunRecord, WorkloadEnd


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """One row per wait: first those that ended with a start, by (workload, attempt), then the others, by workload."""

    workload: Integers
    attempt: Integers
    """Position of the attempt that ran at last, or NO_ROW."""
    priority: Integers
    """Of that attempt, else of the workload."""
    region: Integers
    """Of that attempt, or NO_ROW."""
    from_s: Reals
    until_s: Reals
    """It ran; else it was given up, or the run was over."""
    ran: Flags
    again: Flags
    """It had run before."""

    def __len__(self) -> int:
        return len(self.workload)

    @property
    def seconds(self) -> Reals:
        return np.maximum(self.until_s - self.from_s, 0.0)


def waits_of(record: RunRecord) -> Waits:
    """All waits of a run. Workloads that were refused never waited."""
    workloads, attempts = record.workloads, record.attempts
    order = np.lexsort((attempts.number, attempts.workload))
    order = order[~np.isnan(attempts.started_s[order])]
    owner = attempts.workload[order]
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = owner[1:] == owner[:-1]
    before = np.concatenate(([np.nan], attempts.ended_s[order][:-1])) if len(order) else np.zeros(0)
    from_s = np.where(again, before, workloads.submitted_s[owner])

    # What each workload did after its last attempt that ran: nothing is pending while that one still runs.
    pending_since = workloads.submitted_s.copy()
    pending_since[owner] = attempts.ended_s[order]
    has_run = np.zeros(len(workloads), dtype=np.bool_)
    has_run[owner] = True
    given_up_s = np.where(np.isnan(workloads.ended_s), record.ended_s, workloads.ended_s)
    waiting = (
        (workloads.end != WorkloadEnd.REFUSED)
        & (workloads.end != WorkloadEnd.COMPLETED)
        & ~np.isnan(pending_since)
        & (given_up_s > pending_since)
    )
    open_ones = np.flatnonzero(waiting)
    no_row = np.full(len(open_ones), NO_ROW, dtype=np.int64)
    return Waits(
        workload=np.concatenate((owner, open_ones)),
        attempt=np.concatenate((order, no_row)),
        priority=np.concatenate((attempts.priority[order], workloads.priority[open_ones])),
        region=np.concatenate((attempts.region[order], no_row)),
        from_s=np.concatenate((from_s, pending_since[open_ones])),
        until_s=np.concatenate((attempts.started_s[order], given_up_s[open_ones])),
        ran=np.concatenate((np.ones(len(order), dtype=np.bool_), np.zeros(len(open_ones), dtype=np.bool_))),
        again=np.concatenate((again, has_run[open_ones])),
    )


def queueing_of_workloads(waits: Waits, workloads: int) -> Reals:
    """Seconds that each workload waited in all."""
    return sums_by_group(waits.workload, waits.seconds, workloads)
