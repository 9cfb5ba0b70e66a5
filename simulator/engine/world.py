"""What all parts of a running simulation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from data_placement.catalog import Catalog
from domain.clock import ManualClock
from domain.events import EventKind
from domain.fleet import Fleet, MachineState
from domain.identifiers import MachineId
from domain.machine_life_cycle import MACHINE_EVENTS, MachineHappening, next_machine_state
from domain.placement import AttemptKey
from domain.tenant import Tenant
from simulator.engine.columns import WorkloadColumns
from simulator.engine.event_log import SimulatedEvents
from simulator.engine.event_queue import EventQueue
from simulator.engine.one_workload import OneWorkload
from simulator.engine.queues import Queue
from simulator.engine.recorder import Recorder
from simulator.engine.regions import RegionRoom
from simulator.engine.settings import SimulationSettings
from simulator.engine.tenant_use import TenantUse
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.policy import Policy


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
    queue: Queue
    room: RegionRoom
    recorder: Recorder
    log: SimulatedEvents | None
    tenant_use: TenantUse
    tenant_gpus: list[int]
    """GPUs that live attempts of each tenant hold."""
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
    """Accepted, but no region that could run them has their tables; tables do not move in a simulation."""
    down_at_first: set[tuple[int, int]] = field(default_factory=set)
    """Machines (position of the region, place in it) that were down when the run began: they stay so."""
    ended: int = 0
    """How many have ended, those included that were refused."""
    news: bool = False
    """Whether anything happened since the last decision that could lead to another one."""

    def machine_happens(
        self, region: int, machine: MachineId, happening: MachineHappening, reason: str
    ) -> tuple[AttemptKey, ...]:
        """Moves a machine of the region at that position by the table of its life; returns which attempts are on it."""
        state = next_machine_state(machine, self.room.desks[region].inventory.machine_state(machine), happening)
        return self.put_machine(region, machine, state, MACHINE_EVENTS.get(happening), reason)

    def put_machine(
        self, region: int, machine: MachineId, state: MachineState, event: EventKind | None, reason: str
    ) -> tuple[AttemptKey, ...]:
        """The machine is in that state from now on, as inventory, tables and log learn; returns what is on it."""
        now, inventory = self.clock.now(), self.room.desks[region].inventory
        number = inventory.number_of_machine[machine]
        if self.log is not None and event is not None:
            self.log.machine(event, inventory.region, inventory.cluster_of(machine), machine, reason, now)
        self.recorder.machine_changed(region, number, state, now)
        return inventory.set_machine_state(machine, state)
