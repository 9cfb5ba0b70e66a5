"""How an attempt ended, from how its tasks ended. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from domain.placement import TaskPlacement
from services.execution.executor import AttemptPhase
from services.execution.runner_messages import COULD_NOT_START, RunnerReport, StopCause

ASKED_TO_STOP = "it was asked to stop"


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The end of one task: what its runner reported, or why there is no report."""

    placement: TaskPlacement
    report: RunnerReport | None
    lost: str = ""

    @property
    def failed(self) -> bool:
        """It ended badly, and not because it was asked to stop by its cluster manager."""
        if self.report is None or self.had_no_lease:
            return True
        return self.report.stop_cause is None and self.report.exit_code != 0

    @property
    def had_no_lease(self) -> bool:
        """It has stopped itself, for nobody who holds its cluster's lease has allowed it to run on."""
        report = self.report
        return report is not None and report.stop_cause is StopCause.NO_LEASE and report.stopped_early


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """The phase in which the attempt ends, and why; `culprit` is the task whose last line belongs to the reason."""

    phase: AttemptPhase
    reason: str = ""
    culprit: TaskPlacement | None = None
    exit_code: int | None = None
    """Of the task to blame, as shells have it: 128 and the number of the signal that killed it."""


def outcome_of(ends: Sequence[TaskEnd], *, all_work_done: bool, stop_reason: str) -> GangOutcome:
    """The outcome of the whole gang here.

    A lost task outweighs a failed one: when a machine goes, the tasks on the others fail for it. Of several that
    failed the first is to blame. An attempt that was asked to stop is complete all the same when every task came to
    its end by itself. `all_work_done` False: an emulated job of the attempt was not yet through.
    """
    own = [end for end in ends if end.report is None or end.report.stop_cause is not StopCause.RELEASED]
    lost = [end for end in own if end.report is None]
    if lost:
        return GangOutcome(AttemptPhase.LOST, f"{_task(lost[0].placement)} was lost: {lost[0].lost}")
    unprepared = [(end.placement, end.report.unprepared) for end in own if end.report and end.report.unprepared]
    if unprepared:
        placement, why = unprepared[0]
        return GangOutcome(AttemptPhase.LOST, without_files(placement, why))
    without_lease = [end for end in own if end.had_no_lease]
    if without_lease:
        name = _task(without_lease[0].placement)
        return GangOutcome(AttemptPhase.LOST, f"{name} stopped itself: no lease of its cluster allowed it to run on")
    reports = [(end.placement, end.report) for end in own if end.report is not None]
    failed = [(placement, report) for placement, report in reports if report.stop_cause is None and report.exit_code]
    if failed:
        placement, report = min(failed, key=lambda pair: (pair[1].ended_real_s, pair[0].job, pair[0].task))
        # Of one that was not started, or was ended from outside, its log says no more.
        known = report.out_of_memory or (report.failure and report.exit_code == COULD_NOT_START)
        culprit = None if known else placement
        reason = f"{_task(placement)}: {describe_exit(report)}"
        return GangOutcome(AttemptPhase.FAILED, reason, culprit, _as_shells_have_it(report))
    stopped = [(placement, report) for placement, report in reports if report.stopped_early]
    if not stopped and all_work_done:
        return GangOutcome(AttemptPhase.COMPLETED)
    badly = [
        f"; {_task(placement)}: {describe_exit(report)}"
        for placement, report in stopped
        if report.exit_code not in {None, 0, -signal.SIGTERM}
    ]
    return GangOutcome(AttemptPhase.STOPPED, (stop_reason or ASKED_TO_STOP) + "".join(badly[:1]))


def without_files(placement: TaskPlacement, why: str) -> str:
    """How an attempt ended of which a machine did not get the files."""
    return f"{_task(placement)} did not start: {why}"


def describe_exit(report: RunnerReport) -> str:
    """An exit code in words."""
    code = report.exit_code
    if report.out_of_memory:
        return report.out_of_memory
    if report.failure and code == COULD_NOT_START:
        return report.failure
    if code is None:
        return "never started"
    reason = f", {report.failure}" if report.failure else ""
    if code >= 0:
        return f"exit code {code}{reason}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"killed by signal {-code} ({name}){reason}"


def _as_shells_have_it(report: RunnerReport) -> int | None:
    code = report.exit_code
    return code if code is None or code >= 0 else 128 - code


def _task(placement: TaskPlacement) -> str:
    return f"task {placement.task} of job {placement.job} on machine {placement.machine}"
