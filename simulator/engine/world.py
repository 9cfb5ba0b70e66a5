"""What all parts of a running simulation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from domain.clock import ManualClock
from domain.events import EventKind
from domain.fleet import Fleet
from domain.tenant import Tenant
from simulator.engine.columns import WorkloadColumns
from simulator.engine.event_log import SimulatedEvents
from simulator.engine.event_queue import EventQueue
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
    tenants: Sequence[Tenant]
    policy: Policy
    settings: SimulationSettings
    rng: np.random.Generator
    clock: ManualClock
    events: EventQueue
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
    ended: int = 0
    """How many have ended, those included that were refused."""
    news: bool = False
    """Whether anything happened since the last decision that could lead to another one."""

    def tell_of_machine(self, kind: EventKind, region: int, place: int, reason: str) -> None:
        """The log, if there is one, learns what happened just now to the machine at that place of the region."""
        if self.log is not None:
            layout = self.room.desks[region].inventory.layout
            machine, cluster = layout.machine_ids[place], layout.cluster_of_machine[place]
            self.log.machine(kind, layout.region, cluster, machine, reason, self.clock.now())
