"""I5: a victim stands strictly worse than the one it made room for, or uses its cells opportunistically; other causes are
reclaim, loss, drain, migration, a change that was refused, and what its own user wants: cancel, requeue, a time limit.

The workload that gets the room says at its dispatch what it evicts; each preemption must be in such a list, of a
dispatch to the victim's region. The victim's standing is the one it had when it was chosen: it may be reclassified
while it is being stopped. A loss or a drain must be seen on one of the attempt's machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.events import EventKind, EvictionCause
from domain.fleet import MachineState
from simulator.validation.lives import CLOCK_SLACK_S, AttemptLife, Lives, Standing, WorkloadLife
from simulator.validation.machines import Machines, MachineUse
from simulator.validation.record_fields import (
    BadField,
    Record,
    flag_field,
    number_field,
    text_field,
    texts_field,
    whole_field,
)
from simulator.validation.report import Findings, Invariant

_CAUSES = frozenset(cause.value for cause in EvictionCause)

_Promise = tuple[str, int]
"""Victim and attempt."""


class _Promised(NamedTuple):
    """What a preemption says of its newcomer, which is to be dispatched."""

    line: int
    standing: Standing
    region: str
    own_cells: bool


class Evictions:
    """Compares each eviction with its cause."""

    def __init__(self, lives: Lives, machines: Machines, findings: Findings) -> None:
        self.checks = 0
        self._machines = machines
        self._lives = lives
        self._findings = findings
        self._promised: dict[str, dict[_Promise, _Promised]] = {}
        """Preemptions whose newcomer is not dispatched yet, by newcomer."""

    def dispatched(
        self, newcomer: str, standing: Standing, region: str, evicts: Sequence[Record], *, uses_cells: bool
    ) -> list[AttemptLife]:
        """The newcomer's dispatch and what it evicts; returns the victims that are live. Raises BadField.

        `uses_cells`: whether it is guaranteed, and uses cells of its virtual cluster.
        """
        promised = self._promised.pop(newcomer, {})
        victims: list[AttemptLife] = []
        for entry in evicts:
            self.checks += 1
            victim, number = text_field(entry, "workload"), whole_field(entry, "attempt", 1)
            promise = promised.pop((victim, number), None)
            own_cells = uses_cells_of_newcomer(entry)
            if own_cells and not uses_cells:
                self._add(f"evicts attempt {number} of {victim} from cells, but has none itself")
            if promise is not None:
                self._compare_claim(newcomer, standing, promise.standing)
                self._compare_cells(newcomer, own_cells, promise.own_cells)
                if region != promise.region:
                    self._add(
                        f"is dispatched to {region}, but evicted attempt {number} of {victim} in {promise.region}"
                    )
            life = self._lives.open_life(victim)
            attempt = life.attempt if life is not None else None
            if attempt is not None and attempt.number == number:
                attempt.room_for[newcomer] = standing
                attempt.cells_of[newcomer] = own_cells
                victims.append(attempt)
                if promise is None:
                    self._check_victim(attempt, newcomer, standing, region, own_cells=own_cells)
            elif promise is None:
                self._add(f"evicts attempt {number} of {victim}, which is not live")
        for (victim, number), promise in promised.items():
            self._add(
                f"is dispatched without a word of attempt {number} of {victim}, which was evicted for it"
                f" (line {promise.line})"
            )
        return victims

    def evicted(self, life: WorkloadLife, attempt: AttemptLife, record: Record) -> str:
        """An `evicting` or `evicted` event; returns its cause. Raises BadField."""
        cause = text_field(record, "cause")
        if cause not in _CAUSES:
            raise BadField(f"has cause {cause}, which is none of {', '.join(sorted(_CAUSES))}")
        self.checks += 1
        if cause == EvictionCause.MIGRATED and attempt.migrates_since_line is None:
            attempt.migrates_since_line = self._findings.line
        if cause == EvictionCause.PREEMPTED:
            self._check_preemption(life, attempt, record)
        elif cause == EvictionCause.MACHINE_LOST:
            self._check_machines(attempt, "lost", [m for m in _machines(attempt) if _was_down(m, attempt)])
        elif cause == EvictionCause.DRAINED:
            drained = [m for m in _machines(attempt) if _was_draining(m, attempt) or _was_down(m, attempt)]
            self._check_machines(attempt, "drained", drained)
        elif cause == EvictionCause.TIME_LIMIT:
            self._check_time_limit(attempt, record)
        return cause

    def successor(self, attempt: AttemptLife, record: Record, cause: str) -> int | None:
        """The attempt that goes on elsewhere for one that was evicted; None when its workload is queued. Raises BadField.

        One that migrates has a successor, unless a machine that was kept for it (`to`) is lost or drained meanwhile.
        """
        if cause != EvictionCause.MIGRATED:
            return None
        self.checks += 1
        kept = texts_field(record, "to")
        if record.get("successor") is not None:
            number = whole_field(record, "successor", 1)
            if number != attempt.number + 1:
                self._add(f"{attempt.name} migrates to attempt {number}, which is not the next one")
            return number
        lost = [name for name in kept if self._machines.was_lost_or_drained(name, attempt.migrates_since_line or 0)]
        if not lost:
            self._add(f"{attempt.name} migrates, has no successor, and none of {', '.join(kept)} was lost or drained")
        return None

    def check_promises(self) -> None:
        """At the end of a whole run: no attempt was evicted for a workload that was never dispatched."""
        for newcomer in sorted(self._promised):
            for (victim, number), promise in self._promised[newcomer].items():
                self._findings.workload = victim
                self._add(
                    f"attempt {number} was evicted (line {promise.line}) for {newcomer}, which was not dispatched"
                )
        self._findings.workload = None

    def _check_preemption(self, life: WorkloadLife, attempt: AttemptLife, record: Record) -> None:
        newcomer = text_field(record, "by")
        claimed = (whole_field(record, "by_priority"), whole_field(record, "by_level"))
        dispatched_at = attempt.room_for.get(newcomer)
        if dispatched_at is not None:
            self._compare_claim(newcomer, dispatched_at, claimed)
            self._compare_cells(newcomer, attempt.cells_of[newcomer], uses_cells_of_newcomer(record))
            return
        promises = self._promised.setdefault(newcomer, {})
        if (life.name, attempt.number) not in promises:
            own_cells = uses_cells_of_newcomer(record)
            self._check_standing(attempt, newcomer, claimed, own_cells=own_cells)
            promises[life.name, attempt.number] = _Promised(self._findings.line, claimed, attempt.region, own_cells)

    def _check_machines(self, attempt: AttemptLife, what: str, found: Sequence[MachineUse]) -> None:
        if not found:
            names = ", ".join(dict.fromkeys(machine.name for machine in _machines(attempt))) or "none"
            self._add(f"{attempt.name} is evicted because a machine was {what}, but none of its own was ({names})")

    def _check_time_limit(self, attempt: AttemptLife, record: Record) -> None:
        """It has run for as long as it may, and not less; it does not return to the queue."""
        limit_s, t_s = number_field(record, "limit_s"), number_field(record, "t")
        if text_field(record, "event") == EventKind.EVICTED:
            self._add(f"{attempt.name} returns to the queue, but its time limit was reached")
        elif attempt.started_s is None or t_s - attempt.started_s < limit_s - CLOCK_SLACK_S:
            ran = "has not started" if attempt.started_s is None else f"ran for {t_s - attempt.started_s:g} s"
            self._add(f"{attempt.name} is stopped for its time limit of {limit_s:g} s, but {ran}")

    def _check_victim(
        self, attempt: AttemptLife, newcomer: str, standing: Standing, region: str, *, own_cells: bool
    ) -> None:
        if attempt.region != region:
            self._add(
                f"is dispatched to region {region}, but evicts {attempt.name}, which is in region {attempt.region}"
            )
        self._check_standing(attempt, newcomer, standing, own_cells=own_cells)

    def _check_standing(self, attempt: AttemptLife, newcomer: str, by: Standing, *, own_cells: bool) -> None:
        """A victim stands worse, or uses the newcomer's cells opportunistically: then it has not only cells of its own."""
        if not own_cells:
            self._compare(attempt, newcomer, by)
        elif attempt.is_all_in_cells:
            self._add(f"{attempt.name} is evicted from cells of {newcomer}, but uses those of its own virtual cluster")

    def _compare(self, attempt: AttemptLife, newcomer: str, by: Standing) -> None:
        if attempt.standing is None or not by < attempt.standing:
            self._add(
                f"{attempt.name} at (priority, level) {attempt.standing} makes room for {newcomer} at {by},"
                " which is not strictly better"
            )

    def _compare_claim(self, newcomer: str, dispatched: Standing, claimed: Standing) -> None:
        if dispatched != claimed:
            self._add(
                f"an eviction for {newcomer} says that it is at (priority, level) {claimed}, but it was dispatched"
                f" at {dispatched}"
            )

    def _compare_cells(self, newcomer: str, dispatched: bool, claimed: bool) -> None:
        if dispatched != claimed:
            negation = "" if claimed else "not "
            self._add(f"an eviction for {newcomer} says that it is {negation}from its cells, unlike its dispatch")

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I5, sentence)


def uses_cells_of_newcomer(record: Record) -> bool:
    """Whether the victim uses the newcomer's cells opportunistically, as the record says. Raises BadField."""
    return "own_cells" in record and flag_field(record, "own_cells")


def _machines(attempt: AttemptLife) -> list[MachineUse]:
    """The machines that the attempt holds, or was to hold if it has not started."""
    return [claim.machine for claim in (attempt.claims if attempt.started else attempt.planned)]


def _was_down(machine: MachineUse, attempt: AttemptLife) -> bool:
    return machine.state.is_down or machine.last_down_line > attempt.dispatched_line


def _was_draining(machine: MachineUse, attempt: AttemptLife) -> bool:
    return machine.state is MachineState.DRAINING or machine.last_draining_line > attempt.dispatched_line
