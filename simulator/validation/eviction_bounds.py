"""I15: an attempt makes room for another only after its minimum run time, and no workload more often than the limit.

I5, where guaranteed attempts are spared: no newcomer that is not guaranteed evicts one that is.

The rule is not in the log, so the caller gives it; without bounds nothing is checked. An attempt runs from `started`;
one that has not started is protected from its `dispatched` on. What counts is when it was asked to leave: `evicting`,
or `evicted` where no `evicting` precedes it. Only the cause `preempted` is bounded, and not where the newcomer owns the
cells that the victim uses opportunistically (`own_cells`); that counts towards the limit of later ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from domain.events import EvictionCause
from domain.eviction import HOUR_S, EvictionRule
from simulator.validation.lives import AttemptLife, WorkloadLife
from simulator.validation.report import Findings, Invariant


class EvictionBounds:
    """Compares each preemption with the bounds that were in force."""

    def __init__(self, rule: EvictionRule, findings: Findings) -> None:
        self.checks = 0
        self._rule = rule
        self._findings = findings
        self._leaving: dict[str, int] = {}
        """The attempt of each workload that was asked to leave last."""
        self._preempted_s: dict[str, deque[float]] = {}
        """When each workload was asked to leave for others within the last hour."""

    def dispatched(self, newcomer: AttemptLife, victims: Sequence[AttemptLife]) -> None:
        """These live attempts leave for the newcomer."""
        if not self._rule.spares_guaranteed:
            return
        for victim in victims:
            if victim.guaranteed and not newcomer.guaranteed:
                sentence = f"evicts {victim.name}, which is guaranteed, for {newcomer.name}, which is not"
                self._findings.add(Invariant.I5, sentence)

    def asked_to_leave(
        self, life: WorkloadLife, attempt: AttemptLife, cause: str, t_s: float, *, own_cells: bool
    ) -> None:
        """An `evicting` or `evicted` event of the attempt."""
        if self._leaving.get(life.name) == attempt.number:
            return
        self._leaving[life.name] = attempt.number
        if cause != EvictionCause.PREEMPTED or not self._rule.waits_for_time:
            return
        self.checks += 1
        if not own_cells:
            self._check_run_time(attempt, t_s)
        self._check_frequency(life.name, t_s, bounded=not own_cells)

    def ended(self, workload: str) -> None:
        """The workload has ended: nothing more can happen to it."""
        self._leaving.pop(workload, None)
        self._preempted_s.pop(workload, None)

    def _check_run_time(self, attempt: AttemptLife, t_s: float) -> None:
        since_s = attempt.dispatched_s if attempt.started_s is None else max(attempt.dispatched_s, attempt.started_s)
        if t_s < since_s + self._rule.minimum_run_time_s:
            what = "its dispatch" if attempt.started_s is None else "its start"
            self._findings.add(
                Invariant.I15,
                f"{attempt.name} makes room {t_s - since_s:g} s after {what}; the minimum run time is"
                f" {self._rule.minimum_run_time_s:g} s",
            )

    def _check_frequency(self, workload: str, t_s: float, *, bounded: bool) -> None:
        limit = self._rule.evictions_per_workload_and_hour
        if limit is None:
            return
        times = self._preempted_s.setdefault(workload, deque())
        while times and times[0] + HOUR_S <= t_s:
            times.popleft()
        times.append(t_s)
        if bounded and len(times) > limit:
            self._findings.add(Invariant.I15, f"makes room {len(times)} times within an hour; the limit is {limit}")
