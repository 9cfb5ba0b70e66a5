"""What becomes of tasks whose runners are gone: what is left of them ends, and what is known of how they ended is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import structlog

from cluster_manager.attempt_run.emulated_work import EmulatedJob, emulated_work
from domain.identifiers import JobName
from domain.placement import TaskPlacement
from domain.workload import Emulated
from services.execution.executor import AttemptOrder, AttemptPhase
from services.execution.gang_outcome import ASKED_TO_STOP, GangOutcome, TaskEnd, outcome_of
from services.execution.left_behind import StillThere, end_left_behind
from services.execution.task_journal import JournaledTask, TaskJournal
from services.execution.task_mark import TaskMark
from services.execution.task_paths import TaskPaths

Journaled = dict[tuple[JobName, int], JournaledTask]

NOT_FOUND = "it was running before, and nothing of it was found"

_LONGEST_AFTERWARDS_S = 60.0

_log = structlog.get_logger(__name__)


def settle_task(home: Path, order: AttemptOrder, placement: TaskPlacement) -> JournaledTask | None:
    """Ends on this machine what is left of the task; what its journal says, None without one. Waits."""
    mark = TaskMark.of(order.key, placement)
    try:
        end_left_behind(home, mark.__eq__)
    except StillThere as there:
        _log.error("what is left of a task cannot be ended", error=str(there))
    journaled = TaskJournal.of(TaskPaths(home), order, placement).read()
    if journaled is not None and journaled.report is None:
        end_afterwards(journaled)
    return journaled


def make_way(home: Path, mark: TaskMark) -> None:
    """Ends on this machine what is left of the attempts that this task's one replaces, and of this very task. Waits. Raises StillThere."""
    end_left_behind(home, mark.replaces)
    for attempt, journal in TaskPaths(home).journals(mark.key.workload):
        if attempt < mark.key.attempt:
            journaled = TaskJournal(journal).read()
            if journaled is not None and journaled.report is None:
                end_afterwards(journaled)


def end_afterwards(journaled: JournaledTask) -> None:
    """Ends what is no child of the task: its container."""
    if not journaled.afterwards:
        return
    try:
        subprocess.run(
            journaled.afterwards,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: text for name, text in os.environ.items() if not name.startswith("TOPMAST_")},
            timeout=_LONGEST_AFTERWARDS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("a container may be left", command=" ".join(journaled.afterwards), error=str(error))


def past_outcome(
    order: AttemptOrder,
    placements: list[TaskPlacement],
    journaled: Mapping[tuple[JobName, int], JournaledTask],
    now_s: float,
    *,
    all_here: bool,
) -> GangOutcome | None:
    """How an attempt ended by itself of which no runner is left, by what its tasks' journals say; None when they do not say it of all
    of them, or it was stopped."""
    ends: list[TaskEnd] = []
    for placement in placements:
        task = journaled.get((placement.job, placement.task))
        report = task.end(all_here=all_here) if task is not None else None
        if report is None:
            return None
        ends.append(TaskEnd(placement, report))
    if not ends:
        return None
    started_s = max(end.report.started_s for end in ends if end.report is not None)
    works = [job.entry_point for job in order.jobs_here()]
    jobs = tuple(EmulatedJob(one.duration_s, one.checkpoint_interval_s) for one in works if isinstance(one, Emulated))
    if jobs and emulated_work(jobs, 0.0, started_s, speed=1.0).done_s > now_s:
        # Nobody has looked after its emulated jobs: they are not done.
        return None
    outcome = outcome_of(ends, all_work_done=True, stop_reason=ASKED_TO_STOP)
    # Who asked it to stop was not the scheduler: that would have waited. It has saved its work, and goes on in another attempt.
    return None if outcome.phase is AttemptPhase.STOPPED else outcome
