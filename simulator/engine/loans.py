"""Carries out what the lenders of a loan schedule decide (`regional_scheduler.loaning`). Without a schedule: nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.fleet import Fleet
from domain.identifiers import ClusterId, MachineId
from domain.machine_life_cycle import MACHINE_EVENTS
from domain.placement import AttemptKey
from domain.plan import ScaleIn
from regional_scheduler.loaning import Lender, LoanAction, MachineChange
from regional_scheduler.reclaiming.occupancy import machines_on_loan
from regional_scheduler.reclaiming.policy import MachineOnLoan
from regional_scheduler.region_capacity import RegionCapacity
from simulator.engine.attempts import Attempts
from simulator.engine.event_queue import Happens
from simulator.engine.loan_counts import LoanCounts
from simulator.engine.world import World
from simulator.inputs.loans import LoanSchedule


class Loans:
    """Drives the lenders: by the schedule, and by the attempts that are gone."""

    def __init__(self, world: World, attempts: Attempts, schedule: LoanSchedule | None) -> None:
        self._world = world
        self._attempts = attempts
        self._steps = schedule.steps if schedule is not None else ()
        self._lenders = _lenders(world.fleet, {step.cluster for step in self._steps})
        if not world.policy.uses_loans:
            self._steps = ()
        self.counts = LoanCounts()

    def machines(self) -> frozenset[MachineId]:
        """Those of the inference clusters, on loan or not."""
        return frozenset(machine for _, lender in self._lenders.values() for machine in lender.machines)

    def begin(self, now: float) -> None:
        """The run begins: what the schedule lends by then is on loan, the rest serves inference."""
        lent = dict.fromkeys(self._lenders, 0)
        for number, step in enumerate(self._steps):
            if step.t_s <= now:
                lent[step.cluster] = step.machines
            else:
                self._world.events.add(step.t_s, Happens.LOAN_CHANGE, number)
        for region, lender in self._lenders.values():
            self._carry_out(region, lender.begin(lent[lender.cluster]))

    def change(self, number: int) -> None:
        """The schedule's step of that number: lends more machines of a cluster, or takes some back."""
        step, world = self._steps[number], self._world
        region, lender = self._lenders[step.cluster]
        inventory = self._inventory(region)
        on_loan: list[MachineOnLoan] = []

        def occupancy(machines: Sequence[MachineId]) -> Sequence[MachineOnLoan]:
            on_loan.extend(machines_on_loan(inventory, machines))
            return on_loan

        actions = lender.lend(step.machines, inventory.machine_state, occupancy, world.policy.reclaiming, world.rng)
        self.counts.add(actions, on_loan, {machine: inventory.gpus_of(machine) for machine in lender.machines})
        if step.short:
            self.counts.short_machines += step.short
            if world.log is not None:
                world.log.loan_short(inventory.region, step.cluster, step.short, world.clock.now())
        self._carry_out(region, actions)

    def attempts_gone(self, keys: Iterable[AttemptKey]) -> None:
        """Machines that only waited for these attempts to leave are handed back."""
        gone = tuple(keys)
        for region, lender in self._lenders.values():
            self._carry_out(region, lender.attempts_gone(gone, self._inventory(region).machine_state))

    def _carry_out(self, region: int, actions: Iterable[LoanAction]) -> None:
        world = self._world
        scaled_in: list[AttemptKey] = []
        for action in actions:
            if isinstance(action, MachineChange):
                event = MACHINE_EVENTS.get(action.happening)
                world.put_machine(region, action.machine, action.state, event, action.reason)
                world.news |= action.state.takes_work
                continue
            if isinstance(action, ScaleIn):
                self._attempts.carry_out(region, (action,))
                scaled_in.append(action.attempt)
                continue
            places = [key for key in action.victims if self._attempts.workload_of(key).key != key]
            self._attempts.carry_out(region, (action,))
            # Places that were kept for a next attempt are given up at once.
            self.attempts_gone(places)
        if scaled_in:
            # What a running attempt gives up is free at once here: no process has to be asked.
            for position, lender in self._lenders.values():
                self._carry_out(position, lender.scaled_in(scaled_in, self._inventory(position).machine_state))

    def _inventory(self, region: int) -> RegionCapacity:
        return self._world.regions.members[region].inventory


def _lenders(fleet: Fleet, named: set[ClusterId]) -> dict[ClusterId, tuple[int, Lender]]:
    """Of the clusters of these names, in the order of the fleet: the position of the region, and the lender."""
    return {
        cluster.cluster: (position, Lender(cluster.cluster, [machine.machine for machine in cluster.machines()]))
        for position, region in enumerate(fleet.regions)
        for cluster in region.clusters
        if cluster.cluster in named
    }
