"""Machines of inference clusters that training may use for a while (Lyra §2.1, §4).

Rule: a schedule says how many machines of each inference cluster are lent. When more are, the first by place that work
come; when fewer, the reclaiming policy chooses who goes back among those on loan. What runs there is told to leave
and saves its work, as when it is preempted; the machine takes nothing new meanwhile and is back when all have gone.
Whether a machine is on loan and whether it has failed are two things: it takes work when it is on loan and works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.machines import GPUS
from domain.events import EventKind, EvictionCause
from domain.fleet import Fleet, MachineState
from domain.identifiers import ClusterId
from domain.life_cycle import State
from simulator.engine.attempts import Attempts
from simulator.engine.event_queue import Happens
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World
from simulator.inputs.loans import LoanSchedule
from simulator.policies.reclaiming import LoanedMachine

Member: TypeAlias = tuple[int, int]
"""(position of the region, place of the machine in it)."""


class LoanState(Enum):
    """Where a machine of an inference cluster is."""

    SERVES_INFERENCE = "serves inference"
    ON_LOAN = "on loan"
    LEAVING = "leaving"
    """Still on loan, but it goes back as soon as nothing runs on it."""


_STATE_OF_WORKING = MappingProxyType(
    {
        LoanState.SERVES_INFERENCE: MachineState.DOWN,
        LoanState.ON_LOAN: MachineState.UP,
        LoanState.LEAVING: MachineState.DRAINING,
    }
)


@dataclass(frozen=True, slots=True)
class _Lender:
    """An inference cluster: its machines in the order of the fleet, which are numbered from `first_place` on there."""

    cluster: ClusterId
    members: tuple[Member, ...]
    first_place: int


class Loans:
    """Lends machines and takes them back. Without a schedule it does nothing."""

    def __init__(
        self, world: World, attempts: Attempts, has_failed: Callable[[Member], bool], schedule: LoanSchedule | None
    ) -> None:
        self._world = world
        self._attempts = attempts
        self._has_failed = has_failed
        self._steps = schedule.steps if schedule is not None else ()
        named = {step.cluster for step in self._steps}
        self._lenders = {lender.cluster: lender for lender in _clusters_of(world.fleet) if lender.cluster in named}
        self._state: dict[Member, LoanState] = {}
        """Of every machine of an inference cluster."""
        self._still_there: dict[Member, list[int]] = {}
        """On each machine that is leaving: the workloads, by index, whose attempts have yet to go."""

    def begin(self, now: float) -> None:
        """The run begins: what the schedule lends by then is on loan, the rest serves inference."""
        lent = dict.fromkeys(self._lenders, 0)
        for number, step in enumerate(self._steps):
            if step.t_s <= now:
                lent[step.cluster] = step.machines
            else:
                self._world.events.add(step.t_s, Happens.LOAN_CHANGE, number)
        for lender in self._lenders.values():
            count = lent[lender.cluster]
            for member in lender.members[:count]:
                self._state[member] = LoanState.ON_LOAN
                self._world.tell_of_machine(
                    EventKind.LOANED, *member, f"{lender.cluster} begins with {count} machines on loan"
                )
            for member in lender.members[count:]:
                self._give_back(member, f"{lender.cluster} begins with {count} machines on loan", now)

    def state_of_working(self, member: Member) -> MachineState:
        """How the machine is to be used if it has not failed."""
        state = self._state.get(member)
        return MachineState.UP if state is None else _STATE_OF_WORKING[state]

    def change(self, number: int, now: float) -> None:
        """The schedule's step of that number: lends more machines of a cluster, or takes some back."""
        step = self._steps[number]
        lender = self._lenders[step.cluster]
        on_loan = [member for member in lender.members if self._state[member] is LoanState.ON_LOAN]
        if step.machines > len(on_loan):
            self._lend(lender, step.machines - len(on_loan), now)
        elif step.machines < len(on_loan):
            self._take_back(lender, on_loan, len(on_loan) - step.machines)
            self.let_go(now)

    def let_go(self, now: float) -> None:
        """Machines that are leaving go back when nothing is on them any more: to be asked whenever an attempt is gone."""
        for member in sorted(self._still_there):
            # Who has gone is struck off at once: it may live again, elsewhere.
            there = [index for index in self._still_there[member] if index in self._world.live]
            self._still_there[member] = there
            if not there:
                del self._still_there[member]
                self._give_back(member, "inference wants it back, and all work has left it", now)

    def _lend(self, lender: _Lender, count: int, now: float) -> None:
        """So many more: those that work before those that do not, and only then those that are just leaving."""
        world = self._world
        idle = [member for member in lender.members if self._state[member] is LoanState.SERVES_INFERENCE]
        leaving = [member for member in lender.members if self._state[member] is LoanState.LEAVING]
        coming = sorted(idle, key=lambda member: (self._has_failed(member), member))[:count]
        for member in sorted(coming):
            self._state[member] = LoanState.ON_LOAN
            world.recorder.machine_up(*member, now)
            self._world.tell_of_machine(
                EventKind.LOANED, *member, f"inference does not need it: {lender.cluster} lends {count} more"
            )
            self._put(member)
        for member in leaving[: count - len(coming)]:
            self._state[member] = LoanState.ON_LOAN
            del self._still_there[member]
            self._put(member)
        world.news = True

    def _take_back(self, lender: _Lender, on_loan: Sequence[Member], count: int) -> None:
        """Chooses so many machines, and tells what runs on them to leave."""
        chosen = self._chosen(lender, on_loan, count)
        leaving: dict[int, SimulatedWorkload] = {}
        for member in chosen:
            self._state[member] = LoanState.LEAVING
            self._still_there[member] = []
            self._put(member)
        for work, machines in self._attempts_by_machine(chosen):
            for member in machines:
                self._still_there[member].append(work.index)
            if work.state is not State.PREEMPTING:
                leaving[work.index] = work
        for index in sorted(leaving):
            self._attempts.tell_to_leave(leaving[index], EvictionCause.RECLAIMED)

    def _chosen(self, lender: _Lender, on_loan: Sequence[Member], count: int) -> list[Member]:
        """What the policy chooses, in the order of the fleet. Raises ValueError when that is no choice."""
        first_member_place = lender.first_place - lender.members[0][1]
        held: dict[Member, dict[int, tuple[int, int]]] = {member: {} for member in on_loan}
        for work, machines in self._attempts_by_machine(on_loan):
            if work.state is not State.PREEMPTING:
                spread = len(self._world.room.desks[work.region].inventory.entries_of(work.key))
                for member, gpus in machines.items():
                    held[member][work.index] = gpus, spread
        loaned = [
            LoanedMachine(
                first_member_place + member[1],
                tuple(sorted(works)),
                sum(gpus for gpus, _ in works.values()),
                tuple(works[index][1] for index in sorted(works)),
            )
            for member, works in held.items()
        ]
        policy = self._world.policy.reclaiming
        places = policy.choose(loaned, count, self._world.rng)
        by_place = {machine.machine: member for machine, member in zip(loaned, on_loan, strict=True)}
        if len(set(places)) != count or len(places) != count or not set(places) <= set(by_place):
            told = f"{policy.name} is asked for {count} of the machines {sorted(by_place)}"
            raise ValueError(f"{told} and chooses {list(places)}")
        return sorted(by_place[place] for place in places)

    def _attempts_by_machine(self, members: Sequence[Member]) -> list[tuple[SimulatedWorkload, dict[Member, int]]]:
        """Every live attempt on these machines, by index, with the GPUs that it holds on each of them."""
        wanted = frozenset(members)
        regions = {region for region, _ in wanted}
        found = []
        for index in sorted(self._world.live):
            work = self._world.live[index]
            if work.region not in regions:
                continue
            entries = self._world.room.desks[work.region].inventory.entries_of(work.key)
            held = {(work.region, machine): gpus for machine, gpus in entries[:, (MACHINE, GPUS)].tolist()}
            here = {member: gpus for member, gpus in held.items() if member in wanted}
            if here:
                found.append((work, here))
        return found

    def _give_back(self, member: Member, reason: str, now: float) -> None:
        self._state[member] = LoanState.SERVES_INFERENCE
        self._put(member)
        self._world.recorder.machine_down(*member, now)
        self._world.tell_of_machine(EventKind.RECLAIMED, *member, reason)

    def _put(self, member: Member) -> None:
        """The inventory learns how the machine is to be used."""
        region, place = member
        inventory = self._world.room.desks[region].inventory
        state = MachineState.DOWN if self._has_failed(member) else self.state_of_working(member)
        inventory.set_machine_state(inventory.layout.machine_ids[place], state)


def _clusters_of(fleet: Fleet) -> list[_Lender]:
    lenders = []
    place_in_fleet = 0
    for position, region in enumerate(fleet.regions):
        place = 0
        for cluster in region.clusters:
            count = sum(1 for _ in cluster.machines())
            members = tuple((position, place + offset) for offset in range(count))
            lenders.append(_Lender(cluster.cluster, members, place_in_fleet))
            place += count
            place_in_fleet += count
    return lenders
