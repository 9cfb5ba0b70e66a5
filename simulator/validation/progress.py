"""I9: progress is never invented: what is done is the sum of the attempts without the work after a last checkpoint.

Progress is in the workload's own unit: seconds of work when it is emulated, steps otherwise. An attempt begins
at the newest checkpoint, and what it reports never falls behind that. Only emulated work can be compared with
the clock: an attempt cannot have done more than the time since it started, times the speed that its events state.
"""

from __future__ import annotations

from simulator.validation.lives import AttemptLife, WorkloadLife
from simulator.validation.record_fields import BadField, Record, number_field
from simulator.validation.report import Findings, Invariant

ABSOLUTE_SLACK = 1e-3
RELATIVE_SLACK = 1e-6


class ProgressCheck:
    """Compares what the attempts of a workload say about progress with each other and with the clock."""

    def __init__(self, findings: Findings) -> None:
        self.checks = 0
        self._findings = findings

    def started(self, life: WorkloadLife, attempt: AttemptLife, record: Record, t_s: float) -> None:
        """The attempt restores exactly what was kept. Raises BadField."""
        progress = number_field(record, "progress")
        self.checks += 1
        if abs(progress - life.kept) > _slack(life.kept):
            self._add(f"{attempt.name} starts at progress {progress:.10g}, but {life.kept:.10g} was kept before it")
        attempt.restored = attempt.checkpoint = life.kept
        attempt.speed = _speed(record)
        attempt.speed_since_s = t_s

    def speed_changed(self, attempt: AttemptLife, record: Record, t_s: float) -> None:
        """From now on the attempt works at another speed. Raises BadField."""
        attempt.work_possible = _work_possible(attempt, t_s)
        attempt.speed = _speed(record)
        attempt.speed_since_s = t_s

    def checkpointed(self, life: WorkloadLife, attempt: AttemptLife, record: Record, t_s: float) -> None:
        """A checkpoint holds work that has been done, and no less than the one before it. Raises BadField."""
        progress = number_field(record, "progress")
        self._check_reached(life, attempt, progress, t_s)
        self._check_kept(attempt, progress)
        attempt.checkpoint = max(attempt.checkpoint, progress)

    def ended(self, life: WorkloadLife, attempt: AttemptLife, record: Record, t_s: float) -> None:
        """Evicted or failed: what was reached, and what of it is kept. Raises BadField."""
        progress = number_field(record, "progress")
        kept = number_field(record, "checkpoint_progress")
        self._check_reached(life, attempt, progress, t_s)
        self._check_kept(attempt, kept)
        if kept > progress + _slack(progress):
            self._add(f"{attempt.name} reached progress {progress:.10g}, but {kept:.10g} of it is kept")
        life.kept = max(attempt.checkpoint, min(kept, progress))

    def stopped_for_good(self, life: WorkloadLife, attempt: AttemptLife, record: Record, t_s: float) -> None:
        """Cancelled: nothing need be kept. Raises BadField."""
        self._check_reached(life, attempt, number_field(record, "progress"), t_s)

    def completed(self, life: WorkloadLife, attempt: AttemptLife, record: Record, t_s: float) -> None:
        """All work is done, no more and no less. Raises BadField."""
        progress = number_field(record, "progress")
        self._check_reached(life, attempt, progress, t_s)
        if life.work_s is not None and progress < life.work_s - _slack(life.work_s):
            self._add(f"completes with progress {progress:.10g} of {life.work_s:.10g} seconds of work")

    def _check_reached(self, life: WorkloadLife, attempt: AttemptLife, progress: float, t_s: float) -> None:
        self.checks += 1
        if progress < attempt.checkpoint - _slack(attempt.checkpoint):
            self._add(
                f"{attempt.name} is at progress {progress:.10g}, behind its checkpoint of {attempt.checkpoint:.10g}"
            )
        if life.work_s is not None and progress > life.work_s + _slack(life.work_s):
            self._add(
                f"{attempt.name} is at progress {progress:.10g}, but there are {life.work_s:.10g} seconds of work"
            )
        if not attempt.started:
            possible, why = 0.0, "it never started"
        elif life.emulated:
            possible = _work_possible(attempt, t_s)
            why = f"in the {t_s - attempt.speed_since_s:.6g} s since it started or changed at most"
        else:
            return
        done = progress - attempt.restored
        if done > possible + _slack(max(possible, progress)):
            self._add(
                f"{attempt.name} says it did {done:.10g} (from {attempt.restored:.10g} to {progress:.10g}), but"
                f" {why}: {possible:.10g} was possible"
            )

    def _check_kept(self, attempt: AttemptLife, kept: float) -> None:
        if kept < attempt.checkpoint - _slack(attempt.checkpoint):
            self._add(
                f"{attempt.name} keeps progress {kept:.10g}, but a checkpoint of {attempt.checkpoint:.10g} was there"
            )

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I9, sentence)


def _work_possible(attempt: AttemptLife, t_s: float) -> float:
    return attempt.work_possible + max(0.0, t_s - attempt.speed_since_s) * attempt.speed


def _speed(record: Record) -> float:
    """Seconds of work per second; 1 where the event does not say."""
    if record.get("speed") is None:
        return 1.0
    speed = number_field(record, "speed")
    if speed > 1e6:
        raise BadField(f"has speed {speed:g}, which must be at most 1,000,000")
    return speed


def _slack(amount: float) -> float:
    return ABSOLUTE_SLACK + RELATIVE_SLACK * abs(amount)
