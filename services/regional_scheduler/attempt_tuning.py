"""What a region needs to tune its attempts: with how much they start, what of it they give back, what they hold later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cluster_manager.cells.declared import declarations_of, matched
from cluster_manager.tuning.mechanism import TuningMechanism
from domain.fleet import Fleet, Region
from domain.identifiers import JobName
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Plan
from domain.proportional_shares import ProportionalShares
from domain.tenant import Tenant
from domain.tuned_speed import ProfilesOfJobs
from domain.workload import Workload, WorkloadSpecification
from regional_scheduler.asked_amounts import AskedAmounts
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Lot
from regional_scheduler.static_asks import StaticAsks, asking_what_is_held, has_static_demands
from regional_scheduler.tuned_start import tuned_start
from regional_scheduler.tuning import TunedInPlace, is_tunable
from regional_scheduler.tuning_reverts import AboveProportionalShare
from services.tuned_work import TunedWorks


class AttemptTuning:
    """One session's. Attempts are made known before the inventory holds them."""

    def __init__(self, mechanism: TuningMechanism, region: Region, works: TunedWorks) -> None:
        """With static demands it is to be told of the whole fleet before anything is asked: see `fleet_changed`."""
        self.in_place = TunedInPlace(mechanism)
        self._mechanism = mechanism
        self._works = works
        self._asked = AskedAmounts(mechanism, Fleet((region,)))
        self._static_asks: StaticAsks | None = None
        self._tunable: dict[AttemptKey, tuple[JobName, ...]] = {}

    def machines_changed(self, region: Region) -> None:
        self._asked = AskedAmounts(self._mechanism, Fleet((region,)))

    @property
    def heeds_fleet(self) -> bool:
        """Whether it matters what machines other regions have: with static demands a workload asks for the same everywhere."""
        return has_static_demands(self._mechanism)

    def fleet_changed(self, fleet: Fleet, tenants: Sequence[Tenant]) -> None:
        """These are the machines of all regions, and the tenants that own cells of them."""
        if self.heeds_fleet:
            self._static_asks = StaticAsks(self._mechanism, matched(fleet, declarations_of(tenants)).fleet)

    def asked(self, workload: Workload) -> Workload:
        """The workload with what it asks for in auctions, and starts with where nothing is shared out later."""
        if self._static_asks is None:
            return workload
        specification = workload.specification
        asked = self._static_asks.of(specification, self._works.beginning(specification).profiles)
        return workload if asked is specification else replace(workload, specification=asked)

    def asked_again(
        self, specification: WorkloadSpecification, profiles: ProfilesOfJobs, placements: Sequence[TaskPlacement]
    ) -> WorkloadSpecification:
        """What an attempt with these tasks asks for when it gets more, or goes on elsewhere."""
        if self._static_asks is None:
            return specification
        return asking_what_is_held(specification, profiles, placements)

    def knows(self, key: AttemptKey, specification: WorkloadSpecification, profiles: ProfilesOfJobs) -> None:
        """The attempt is, or may soon be, held."""
        tunable = tuple([job.name for job in specification.jobs if is_tunable(job, profiles)]) if profiles else ()
        if tunable:
            self._tunable[key] = tunable

    def keep_only(self, keys: Collection[AttemptKey]) -> None:
        """Others are not held any more."""
        for key in [key for key in self._tunable if key not in keys]:
            del self._tunable[key]

    def sources(self, region: Region) -> tuple[AboveProportionalShare, ...]:
        """What attempts on these machines can do without, where the mechanism takes it back from them."""
        if not self._mechanism.reverts_others:
            return ()
        shares = ProportionalShares(region.machines())
        return (AboveProportionalShare(shares, lambda key: self._tunable.get(key, ())),)

    def start(self, inventory: RegionCapacity, plan: Plan, lot: Lot, now: float) -> Plan:
        """The plan for the lot with the amounts with which it starts: see `tuned_start`."""
        specification = lot.workload.specification
        profiles = self._works.beginning(specification).profiles
        self.knows(lot.key, specification, profiles)
        if not self._mechanism.reverts_others:
            return plan
        inventory.voluntary.will_begin(lot.key)
        return tuned_start(inventory, plan, lot, profiles, self._asked, now)
