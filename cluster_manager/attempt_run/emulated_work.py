"""Emulated work: how far an attempt without processes is, what of that is saved, and when it is done.

An attempt has one progress, in seconds of work: its jobs advance together, each until its own duration is done, and
the attempt is complete when the longest is. The work advances by `speed` seconds a second, 0 while it stands still.

Invariants (design I9): progress never exceeds where the attempt started plus speed times the time that it ran, nor the
work that there is; a checkpoint never exceeds the progress, nor lies before the start.
"""

from __future__ import annotations

import math
from typing import NamedTuple

SLACK_INTERVALS = 1e-9
"""Times are sums of floats: a checkpoint that is due at this very moment counts as saved."""


class EmulatedJob(NamedTuple):
    """One job's work in seconds, and after how much of it a checkpoint is saved (0: only a stop with grace saves)."""

    duration_s: float
    checkpoint_interval_s: float


class Stopping(NamedTuple):
    """What stopping some work comes to."""

    kept: float
    """The progress that remains when it is over."""
    takes_s: float


class EmulatedWork(NamedTuple):
    """The work of an attempt. It had made `progress` at `anchor_s` and advances by `speed` since."""

    jobs: tuple[EmulatedJob, ...]
    work_s: float
    """The longest job's duration."""
    start: float
    """The progress that the attempt started from: what an earlier one had saved."""
    progress: float
    anchor_s: float
    speed: float

    def progress_at(self, now: float) -> float:
        """What it has reached, in seconds of work."""
        return min(self.work_s, self.progress + max(0.0, now - self.anchor_s) * self.speed)

    def checkpoint_at(self, now: float) -> float:
        """What of that every job has saved on its own: all that is left when there is no time to save."""
        progress = self.progress_at(now)
        saved = min([_saved_by(job, self.start, progress) for job in self.jobs])
        return max(self.start, min(saved, progress))

    def stopped(self, grace_s: float, save_s: float, now: float) -> Stopping:
        """What is left of it when it is stopped with that grace, where saving it takes `save_s` seconds.

        Within its grace it is saved whole. Where the grace is shorter it ends with that, unsaved, and what every job has
        saved on its own remains; without any grace nothing is even tried.
        """
        if grace_s > 0.0 and save_s <= grace_s:
            return Stopping(self.progress_at(now), save_s)
        return Stopping(self.checkpoint_at(now), max(0.0, grace_s))

    @property
    def done_s(self) -> float:
        """When all work is done; never, while it stands still."""
        return self.anchor_s + (self.work_s - self.progress) / self.speed if self.speed else math.inf

    def at_speed(self, speed: float, now: float) -> EmulatedWork:
        """The same work, advancing at another speed from now on; 0 halts it."""
        return self._replace(progress=self.progress_at(now), anchor_s=now, speed=speed)


def emulated_work(jobs: tuple[EmulatedJob, ...], progress: float, now: float, speed: float) -> EmulatedWork:
    """Work that goes on from `progress` at `now`; never from more than there is. Raises ValueError without jobs."""
    work_s = jobs[0].duration_s if len(jobs) == 1 else max([job.duration_s for job in jobs])
    start = min(progress, work_s)
    return EmulatedWork(jobs, work_s, start, start, now, speed)


def _saved_by(job: EmulatedJob, start: float, progress: float) -> float:
    """Up to where a job's work is saved: all of it when the job is done, else whole intervals since the start."""
    if progress >= job.duration_s:
        return math.inf
    if job.checkpoint_interval_s <= 0:
        return start
    intervals = (progress - start) / job.checkpoint_interval_s
    if not math.isfinite(intervals):
        return progress
    return start + math.floor(intervals + SLACK_INTERVALS) * job.checkpoint_interval_s
