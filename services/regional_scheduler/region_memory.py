"""What one session of a region knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_placement.catalog import Catalog
from domain.fleet import MachineState, Region
from domain.identifiers import ClusterId, MachineId, TenantId
from domain.placement import AttemptKey, TaskPlacement
from domain.tenant import Tenant
from domain.tuned_speed import ProfilesOfJobs
from domain.workload import Workload, WorkloadSpecification
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.region_capacity import RegionCapacity
from services.database.reservation_store import ReservedPlace
from services.database.revision_store import Revisions
from services.regional_scheduler.attempt_tuning import AttemptTuning
from services.regional_scheduler.live_attempts import RegionAttempts
from services.regional_scheduler.specifications import SpecificationCache
from services.regional_scheduler.visits import Visits
from services.tuned_work import TunedWorks


@dataclass(slots=True)
class RegionMemory:
    """Made from one snapshot of the database; from then on what is committed is done to it too."""

    revisions: Revisions
    region: Region
    inventory: RegionCapacity
    bidder: RegionBidder
    catalog: Catalog
    tenants: dict[TenantId, Tenant]
    live: RegionAttempts
    specifications: SpecificationCache
    works: TunedWorks
    """How fast attempts work by the CPUs and memory that they hold."""
    tuning: AttemptTuning | None = None
    """Tunes what runs; None: nothing does."""
    steady: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a thread plans on the inventory or reads it, and while a call reads it beside the session's loop: a plan for
    several jobs charges one after the other while it looks for the next."""
    visits: Visits = field(init=False)
    """How calls plan on the inventory beside the session's loop."""
    closed: dict[ClusterId, dict[MachineId, MachineState]] = field(default_factory=dict)
    """The machines of clusters whose manager cannot be reached that would take work, and their true state: in the
    inventory they are draining meanwhile."""
    newly_reported: list[AttemptKey] = field(default_factory=list)
    """Attempts whose models have been reported and written down since trials were looked at."""
    machines_lost: int = 0
    """How often machines were lost in this session."""
    reserved: dict[AttemptKey, ReservedPlace] = field(default_factory=dict)
    """Places that the region keeps for attempts that migrate here; the inventory holds them too."""

    def __post_init__(self) -> None:
        self.visits = Visits(self.steady)

    def machine_state(self, machine: MachineId) -> MachineState:
        """The machine's true state, also while its cluster manager cannot be reached. Raises UnknownMachine."""
        for closed in self.closed.values():
            if machine in closed:
                return closed[machine]
        return self.inventory.machine_state(machine)

    @property
    def passes_over_kinds(self) -> bool:
        """Whether auctions may pass over a workload for what another one that asks for the same was told.

        Not under static demands: there amounts and order follow from profiles and from what is free at each pass.
        """
        return self.tuning is None or not self.tuning.heeds_fleet

    def asked(self, workload: Workload) -> Workload:
        """The workload with what it asks for, where a mechanism says that instead of its user."""
        return workload if self.tuning is None else self.tuning.asked(workload)

    def asked_again(
        self, specification: WorkloadSpecification, profiles: ProfilesOfJobs, placements: Sequence[TaskPlacement]
    ) -> WorkloadSpecification:
        """What an attempt with these tasks asks for when it gets more, or goes on elsewhere."""
        return specification if self.tuning is None else self.tuning.asked_again(specification, profiles, placements)

    def exchange_machines(self, region: Region, inventory: RegionCapacity, bidder: RegionBidder) -> None:
        """The region has these machines from now on, and `inventory` what is held on them."""
        self.region, self.inventory, self.bidder = region, inventory, bidder
        self.specifications.machines_changed(region)
        self.works.machines_changed(region.machines())
        if self.tuning is not None:
            self.tuning.machines_changed(region)
        for attempt in self.live:
            # They may come to hold something on machines that are new.
            attempt.tuned = self.works.on_present_machines(attempt.tuned)
