"""Plug-in point: allocation. Which of the waiting start now, given the order of the queue and the room that there is.

An allocation policy passes along the queue. What it may do is in `QueuePass`: look at the queue in order, try to start a
workload (the auction and the planner decide where, and what it evicts), and plan for later times. It changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from domain.placement import Score
from simulator.policies.work import Work


@dataclass(frozen=True, slots=True)
class Reservation:
    """When and where a workload that finds no room now could start at the latest, if attempts end when expected."""

    region: int
    start_s: float


class ExpectedRelease(NamedTuple):
    """When an attempt will be over if nothing comes between: an oracle's knowledge."""

    end_s: float
    workload: int
    """Its index."""
    gpus: int


class QueuePass(Protocol):
    """The queue at one moment, and what can be done about it.

    Within a pass room is only ever taken: what was refused would be refused again.
    """

    @property
    def now(self) -> float: ...

    def next(self) -> Work | None:
        """The first of the queue that was not tried in this pass and is not known to find no room; None: no more."""
        ...

    def heads(self) -> Sequence[Work]:
        """The first of each kind of workload of which none was refused in this pass, in queue order.

        Workloads are of one kind when they ask for the same in the same places, and belong to the same tenant if the
        policy keeps tenants apart.
        """
        ...

    def in_order(self) -> Iterator[Work]:
        """All that wait, in queue order, as it is when this is called."""
        ...

    # Starting.

    def pass_over_hopeless(self) -> None:
        """Takes out of this pass, at little cost, every kind of workload that is known to find no room.

        Only for policies that would pass them over anyway: one that stops at the first that finds no room must meet it.
        """
        ...

    def start(self, work: Work) -> bool:
        """Starts it now if any region has room, in the region of the best plan. False: nothing has changed."""
        ...

    def start_in(self, work: Work, region: int) -> bool:
        """Starts it now if that region, one of the eligible ones, has room."""
        ...

    # What tenants and regions have.

    def use_of_tenant(self, tenant: int) -> int:
        """GPUs that the tenant's live attempts hold."""
        ...

    def cpus_of_tenant(self, tenant: int) -> float:
        """CPUs that they hold, proportional shares included."""
        ...

    def weight_of_tenant(self, tenant: int) -> float:
        """Its weight in fair shares, more than 0."""
        ...

    @property
    def fleet_gpus(self) -> int:
        """Of all machines, whatever state they are in."""
        ...

    @property
    def fleet_cpus(self) -> float: ...

    def dominant_share(self, work: Work) -> float:
        """The largest part that it asks for of all GPUs, CPUs or memory of the fleet."""
        ...

    def size(self, work: Work) -> float:
        """What it asks for in parts of the largest machine, GPUs, CPUs and memory added up."""
        ...

    def alignment(self, work: Work) -> float | None:
        """The greatest inner product of what one task of it asks for and what is free on a machine that has it, both in parts
        of the largest machine; None: no machine has it."""
        ...

    def idle_gpus(self, region: int) -> int:
        """GPUs that no attempt holds on machines that take work."""
        ...

    # With an oracle.

    def expected_ends(self, region: int) -> Sequence[ExpectedRelease]:
        """Of the attempts that hold something there, the first to end first."""
        ...

    def run_time_s(self, work: Work) -> float:
        """How long an attempt would take that were dispatched now and met with no trouble: set-up and work."""
        ...

    def earliest_start(self, work: Work) -> Reservation | None:
        """When it could start if everything that runs ended when expected; None: never."""
        ...

    def start_beside(self, work: Work, kept_for: Work, reservation: Reservation) -> bool:
        """Starts it now if there is room and the other one can still start when and where it was reserved."""
        ...

    # Trying out.

    def regions_with_room(self, work: Work) -> Sequence[int]:
        """The regions that could start it now, ascending. Not to be asked while anything is tentative."""
        ...

    def tentatively(self) -> AbstractContextManager[None]:
        """What `try_in` places inside is undone at exit. May be nested."""
        ...

    def try_in(self, work: Work, region: int) -> Score | None:
        """Places it in that region for the time being; the score of the plan, the smaller the better. None: no room."""
        ...


class AllocationPolicy(Protocol):
    """Passes along the queue, once."""

    @property
    def name(self) -> str: ...

    def allocate(self, queue_pass: QueuePass) -> None: ...


@dataclass(frozen=True, slots=True)
class FirstThatFits:
    """Rule: in queue order, every workload that finds room starts; one that finds none is passed over (MAST §4.3)."""

    name: str = "first_that_fits"

    def allocate(self, queue_pass: QueuePass) -> None:
        queue_pass.pass_over_hopeless()
        while (work := queue_pass.next()) is not None:
            queue_pass.start(work)


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """Rule: in queue order, until one finds no room; none overtakes it (YARN-CS, Tiresias §5.3)."""

    name: str = "head_of_line"

    def allocate(self, queue_pass: QueuePass) -> None:
        while (work := queue_pass.next()) is not None:
            if not queue_pass.start(work):
                return
