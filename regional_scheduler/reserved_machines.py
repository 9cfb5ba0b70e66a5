"""Which machines of a region are kept for gangs, and from whom (EASY backfilling, per machine).

Rule: a workload is kept off the machines of every reservation of another one, unless it stands strictly better, or ends
before the reservation begins, by what it says of its run time. A reservation binds nobody any more as soon as its own
workload holds anything in the region.

Invariant: who stands worse, or runs for longer, is kept off at least the same machines; time only adds to them. So what found no
room finds none later, until `opened` grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from domain.identifiers import MachineId, WorkloadId
from domain.rank import Standing
from domain.reservation import Reservation
from domain.workload import WorkloadSpecification
from regional_scheduler.run_time_class import most_s, run_time_class


class ReservedMachines:
    """The reservations of one region."""

    __slots__ = ("_reservations", "_started", "in_use", "opened", "start_up_s")

    def __init__(self) -> None:
        self._reservations: dict[WorkloadId, Reservation] = {}
        self._started: dict[WorkloadId, None] = {}
        self.in_use = False
        """Whether there may ever be any: then it matters how long workloads say that they run."""
        self.start_up_s = 0.0
        """From a dispatch to the work: added to how long workloads say that they run."""
        self.opened = 0
        """How often machines were opened to anybody who was kept off them."""

    def __bool__(self) -> bool:
        return bool(self._reservations)

    def begin_use(self, start_up_s: float) -> None:
        """There may be some from now on; before anything is asked of the region."""
        self.in_use = True
        self.start_up_s = start_up_s

    def go_on_from(self, before: ReservedMachines) -> None:
        """There are those of `before`, whose region has other machines now. Before anything is held or asked here."""
        if before.in_use:
            self.begin_use(before.start_up_s)
            self.replace(before.all)

    @property
    def all(self) -> tuple[Reservation, ...]:
        """Sorted by workload."""
        return tuple(self._reservations.values())

    def of(self, workload: WorkloadId) -> Reservation | None:
        """What is kept for the workload."""
        return self._reservations.get(workload)

    def replace(self, reservations: Iterable[Reservation]) -> None:
        """There are these from now on, of one workload each.

        Raises ValueError where none may be: what is remembered of refusals would not know of run times.
        """
        if not self.in_use:
            raise ValueError("reservations are not in use in this region")
        after = {one.workload: one for one in sorted(reservations, key=lambda one: one.workload)}
        if after == self._reservations:
            return
        if any(not _binds_as_much(after.get(name), one) for name, one in self._reservations.items()):
            self.opened += 1
        self._started = {name: None for name in self._started if name in after}
        self._reservations = after

    def holds(self, workload: WorkloadId, *, anything: bool) -> None:
        """The workload has an attempt in the region from now on, or has none any more."""
        if workload not in self._reservations:
            return
        if anything:
            self._started[workload] = None
            self.opened += 1
        else:
            self._started.pop(workload, None)

    @contextmanager
    def instead(self, reservations: Iterable[Reservation]) -> Iterator[None]:
        """There are these inside, and what there was again at exit. Nothing that is found inside may be remembered."""
        before = self._reservations, self._started, self.opened
        self.replace(reservations)
        try:
            yield
        finally:
            self._reservations, self._started, self.opened = before

    def binding(
        self, workload: WorkloadId, specification: WorkloadSpecification, standing: Standing, now: float
    ) -> tuple[Reservation, ...]:
        """Those that keep a workload off their machines that would be dispatched `now`, sorted by their own workloads."""
        if not self._reservations:
            return ()
        end_s = now + self.start_up_s + most_s(run_time_class(specification))
        return tuple(
            [
                one
                for one in self._reservations.values()
                if one.workload != workload
                and one.workload not in self._started
                and one.standing <= standing
                and end_s > one.expected_start_s
            ]
        )


def closed_machines(binding: Iterable[Reservation]) -> frozenset[MachineId]:
    """The machines of these reservations."""
    return frozenset(machine for one in binding for machine in one.machines)


def _binds_as_much(after: Reservation | None, before: Reservation) -> bool:
    """Whether all are still kept off that were kept off before."""
    return (
        after is not None
        and after.standing <= before.standing
        and after.expected_start_s <= before.expected_start_s
        and set(before.machines) <= set(after.machines)
    )
