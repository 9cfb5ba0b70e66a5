"""What all parts of a running simulation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from data_placement.catalog import Catalog
from domain.clock import ManualClock
from domain.events import EventKind
from domain.eviction import EvictionRule
from domain.fleet import Fleet, MachineState
from domain.identifiers import MachineId, RegionId
from domain.machine_life_cycle import MACHINE_EVENTS, MachineHappening, next_machine_state
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.snapshot import CompletedService
from domain.tenant import Tenant
from global_scheduler.service_history import ServiceHistory
from regional_scheduler.needless_victims import needless_eviction, needless_victims
from regional_scheduler.region_capacity import RegionCapacity
from simulator.engine.attempt_observer import AttemptObserver
from simulator.engine.columns import WorkloadColumns
from simulator.engine.event_log import SimulatedEvents
from simulator.engine.event_queue import EventQueue
from simulator.engine.one_workload import OneWorkload
from simulator.engine.packlimit import SimulatedPacklimit
from simulator.engine.queues import WorkloadQueue
from simulator.engine.recorder import Recorder
from simulator.engine.regions import SimulatedRegions
from simulator.engine.settings import SimulationSettings
from simulator.engine.tenant_use import TenantUse
from simulator.engine.work_speed import WorkSpeed
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.policy import Policy

EVENTS_PER_LOOK_BACK = 250
"""Of `check_every_events`: so many of them stand for one plan that evicts."""


@dataclass(slots=True)
class World:
    """Everything that there is, at the time of the clock."""

    fleet: Fleet
    catalog: Catalog
    tenants: Sequence[Tenant]
    policy: Policy
    settings: SimulationSettings
    rng: np.random.Generator
    clock: ManualClock
    events: EventQueue
    one: OneWorkload
    """Asks the policy's orderings and levels."""
    queue: WorkloadQueue
    regions: SimulatedRegions
    recorder: Recorder
    log: SimulatedEvents | None
    speed: WorkSpeed
    tenant_use: TenantUse
    packlimit: SimulatedPacklimit
    service: ServiceHistory
    """Of workloads that have completed."""
    eviction_rule: EvictionRule
    tenant_gpus: list[int]
    """GPUs that live attempts of each tenant hold."""
    observers: tuple[AttemptObserver, ...] = ()
    completed_service: list[CompletedService] = field(default_factory=list)
    """What workloads that have completed received, in that order; only where the policy goes by it."""
    columns: WorkloadColumns | None = None
    """For scan passes; None when the policy makes none."""
    workloads: list[SimulatedWorkload] = field(default_factory=list)
    """All that were submitted so far, by index."""
    live: dict[int, SimulatedWorkload] = field(default_factory=dict)
    """Those with an attempt that holds something, by index."""
    by_name: dict[str, SimulatedWorkload] = field(default_factory=dict)
    refused: list[bool] = field(default_factory=list)
    """By workload index: no region could ever host it."""
    without_data: int = 0
    """Accepted, but no region that could run them has their tables."""
    down_at_first: set[tuple[int, int]] = field(default_factory=set)
    """Machines (position of the region, place in it) that were down when the run began: they stay so."""
    ended: int = 0
    """How many have ended, those included that were refused."""
    evicting_plans: int = 0
    """How many evicted anything so far."""
    needless: list[tuple[RegionId, str]] = field(default_factory=list)
    """Evictions that were found needless and are not in the log yet: where, and a sentence."""
    news: bool = False
    """Whether anything happened since the last decision that could lead to another one."""

    def look_back(self, inventory: RegionCapacity, newcomer: AttemptKey, plan: Plan) -> None:
        """Samples whether plans that evict, and were just applied, could have done without any of their victims."""
        self.evicting_plans += 1
        every = self.settings.check_every_events
        if every and self.evicting_plans % max(1, every // EVENTS_PER_LOOK_BACK) == 0:
            found = needless_victims(inventory, newcomer, plan)
            if found:
                self.needless.append((inventory.region, needless_eviction(newcomer, found)))

    def machine_happens(
        self, region: int, machine: MachineId, happening: MachineHappening, reason: str
    ) -> tuple[AttemptKey, ...]:
        """Moves a machine of the region at that position by the table of its life; returns which attempts are on it."""
        state = next_machine_state(machine, self.regions.members[region].inventory.machine_state(machine), happening)
        return self.put_machine(region, machine, state, MACHINE_EVENTS.get(happening), reason)

    def put_machine(
        self, region: int, machine: MachineId, state: MachineState, event: EventKind | None, reason: str
    ) -> tuple[AttemptKey, ...]:
        """The machine is in that state from now on, as inventory, tables and log learn; returns what is on it."""
        now, inventory = self.clock.now(), self.regions.members[region].inventory
        number = inventory.number_of_machine[machine]
        if self.log is not None and event is not None:
            self.log.machine(event, inventory.region, inventory.cluster_of(machine), machine, reason, now)
        self.recorder.machine_changed(region, number, state, now)
        return inventory.set_machine_state(machine, state)
