"""Machines fail and are repaired: what that does to the regions, and to the attempts on the machines."""

from __future__ import annotations

from domain.identifiers import MachineId, WorkloadId
from domain.machine_life_cycle import MachineHappening
from domain.placement import AttemptKey
from simulator.engine.attempts import Attempts
from simulator.engine.event_queue import Happens
from simulator.engine.failures import Failures
from simulator.engine.loans import Loans
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


class MachineFailures:
    """Carries out what `Failures` draws, one failure domain at a time."""

    def __init__(self, world: World, attempts: Attempts, loans: Loans, failures: Failures) -> None:
        self._world = world
        self._attempts = attempts
        self._loans = loans
        self._failures = failures

    @property
    def domains(self) -> int:
        """How many failure domains there are; each always has one event to come."""
        return len(self._failures.domains)

    @property
    def any_failed(self) -> bool:
        """Whether any machine is down."""
        return self._failures.any_failed

    def begin(self, now: float) -> None:
        """Everything is in service from now on, and has its first failure before it."""
        for domain in range(self.domains):
            self._world.events.add(self._failures.next_failure_s(domain, now), Happens.MACHINE_DOWN, domain)

    def fail(self, domain: int, now: float) -> None:
        """The machines of the domain go down; attempts on them are lost."""
        world = self._world
        what = self._failures.domains[domain].what
        world.events.add(self._failures.next_repair_s(domain, now), Happens.MACHINE_UP, domain)
        there: dict[WorkloadId, SimulatedWorkload] = {}
        down: list[MachineId] = []
        places: list[AttemptKey] = []
        for region, place in self._failures.fail(domain):
            if (region, place) in world.down_at_first:
                continue
            machine = world.regions.members[region].inventory.machine_ids[place]
            down.append(machine)
            for key in world.machine_happens(region, machine, MachineHappening.FAILED, f"{what} failed"):
                work = world.by_name[key.workload]
                if key == work.key:
                    there[key.workload] = work
                else:
                    self._attempts.lose_place(work)
                    places.append(key)
        keys = {name: (work.key, work.key.successor) for name, work in there.items()}
        lost = self._attempts.lose(there.values(), down, f"{what} failed")
        # Lenders wait for places that were kept for a next attempt, too.
        gone = [key for work in lost for key in keys[work.workload.workload]]
        self._loans.attempts_gone((*gone, *places))
        world.news = True

    def repair(self, domain: int, now: float) -> None:
        """The machines of the domain work again, unless something else keeps them down."""
        world = self._world
        what = self._failures.domains[domain].what
        world.events.add(self._failures.next_failure_s(domain, now), Happens.MACHINE_DOWN, domain)
        for region, place in self._failures.repair(domain):
            if (region, place) in world.down_at_first:
                continue
            machine = world.regions.members[region].inventory.machine_ids[place]
            world.machine_happens(region, machine, MachineHappening.REPAIRED, f"{what} is repaired")
        world.news = True
