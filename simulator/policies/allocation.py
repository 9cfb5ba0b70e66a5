"""Plug-in point: allocation. Who of the waiting starts now, given the order of the queue and the room that there is.

An allocation policy walks the queue. What it may do is in `QueueWalk`: look at the queue in order, try to start a
workload (the auction and the planner decide where, and whom it evicts), and think ahead. It changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.policies.work import Work


@dataclass(frozen=True, slots=True)
class Reservation:
    """When and where a workload that finds no room now could start at the latest, if attempts end when expected."""

    region: int
    start_s: float


class QueueWalk(Protocol):
    """The queue at one moment, and what can be done about it."""

    @property
    def now(self) -> float: ...

    def next(self) -> Work | None:
        """The first of the queue that was not tried in this walk and is not known to find no room; None: no more."""
        ...

    def heads(self) -> Sequence[Work]:
        """The first of each kind of workload of which none was refused in this walk, in queue order.

        Workloads are of one kind when they ask for the same in the same places, and belong to the same tenant if the
        policy keeps tenants apart.
        """
        ...

    def in_order(self) -> Iterator[Work]:
        """All that wait, in queue order, as it is when this is called."""
        ...

    def start(self, work: Work) -> bool:
        """Starts it now if any region has room, in the region of the best plan. False: nothing has changed."""
        ...

    def earliest_start(self, work: Work) -> Reservation | None:
        """When it could start if everything that runs ended when expected; None: never."""
        ...

    def start_beside(self, work: Work, kept_for: Work, reservation: Reservation) -> bool:
        """Starts it now if there is room and the other one can still start when and where it was reserved."""
        ...

    def use_of_tenant(self, tenant: int) -> int:
        """GPUs that the tenant's live attempts hold."""
        ...


class AllocationPolicy(Protocol):
    """Walks the queue, once."""

    @property
    def name(self) -> str: ...

    def allocate(self, walk: QueueWalk) -> None: ...


@dataclass(frozen=True, slots=True)
class FirstThatFits:
    """Rule: in queue order, everybody who finds room starts; who finds none is passed over (MAST §4.3)."""

    name: str = "first_that_fits"

    def allocate(self, walk: QueueWalk) -> None:
        while (work := walk.next()) is not None:
            walk.start(work)


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """Rule: in queue order, until one finds no room; nobody overtakes it (YARN-CS, Tiresias §5.3)."""

    name: str = "head_of_line"

    def allocate(self, walk: QueueWalk) -> None:
        while (work := walk.next()) is not None:
            if not walk.start(work):
                return
