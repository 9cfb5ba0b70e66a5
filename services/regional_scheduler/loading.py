"""A region's memory, made from the database: at the start of every session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cluster_manager.attempt_run.run import facts_of, run_from_record
from cluster_manager.cells.declared import region_with_virtual_clusters
from cluster_manager.tuning.mechanism import TuningMechanism
from data_placement.catalog import Catalog
from domain.eviction import DEFAULT_RULE, EvictionRule, evictable_from_s, is_spared
from domain.fleet import Fleet, MachineState, Region
from domain.identifiers import MachineId, RegionId
from domain.life_cycle import State
from domain.placement import AttemptKey, Holding, order_of_holding
from domain.reservation import Reservation, ReservationRule
from domain.tenant import Tenant
from formats.scheduler_file import PlacementSection
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.plan_application import RESERVED
from regional_scheduler.region_capacity import RegionCapacity
from services.database import (
    attempt_store,
    catalog_store,
    fleet_store,
    gang_reservation_store,
    placement_change_store,
    reservation_store,
    tenant_store,
)
from services.database.attempt_store import StoredAttempt
from services.database.connection import AnyConnection
from services.database.eviction_guard import preemptions
from services.database.placement_change_store import StoredRevision
from services.database.reservation_store import ReservedPlace
from services.database.revision_store import Revisions, load_revisions
from services.database.sensitivity_store import StoredProfile, load_since
from services.regional_scheduler.attempt_tuning import AttemptTuning
from services.regional_scheduler.live_attempts import LiveAttempt, RegionAttempts
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.specifications import SpecificationCache
from services.tuned_work import TunedWorks
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

NO_PREEMPTIONS: Mapping[str, tuple[float, ...]] = MappingProxyType({})


async def load_memory(
    connection: AnyConnection,
    region: RegionId,
    rule: EvictionRule = DEFAULT_RULE,
    now: float = 0.0,
    placement: PlacementSection | None = None,
    mechanism: TuningMechanism | None = None,
    reservations: ReservationRule | None = None,
) -> RegionMemory | None:
    """Everything a session starts from, as one snapshot; None while the fleet has no such region.

    `reservations` None: no machines are kept for gangs.
    """
    revisions = await load_revisions(connection)
    fleet, states = await fleet_store.load_fleet(connection)
    tenants = await tenant_store.load_tenants(connection)
    stored = await attempt_store.load_live(connection, region)
    catalog = await catalog_store.load_catalog(connection)
    workloads = [str(attempt.key.workload) for attempt in stored]
    preempted_s = await preemptions(connection, rule, workloads, now)
    profiles = await load_since(connection, -1)
    kept = [] if reservations is None else await gang_reservation_store.in_region(connection, region)
    # In a thread: the lease is kept while many thousands of machines are laid out.
    memory = await asyncio.to_thread(
        make_memory,
        revisions,
        fleet,
        states,
        tenants,
        catalog,
        stored,
        region,
        rule,
        preempted_s,
        placement,
        profiles,
        mechanism,
        reservations,
        [one.reservation for one in kept],
    )
    if memory is not None:
        restore_changes(memory, await placement_change_store.load_revisions(connection, region))
        for key, kills in (await placement_change_store.load_task_kills(connection, region)).items():
            attempt = memory.live.get(key)
            if attempt is not None:
                attempt.task_kills = kills
        for place in await reservation_store.in_region(connection, region):
            hold_reserved(memory, place)
    return memory


def restore_changes(memory: RegionMemory, revisions: Mapping[AttemptKey, StoredRevision]) -> None:
    """Attempts whose placements were changed are as far with that as the database says."""
    for key, stored in revisions.items():
        attempt = memory.live.get(key)
        if attempt is not None:
            memory.live.restore_change(key, stored.revision, stored.change, stored.changed)
            if stored.change is not None:
                memory.inventory.voluntary.begins_change(key)


def hold_reserved(memory: RegionMemory, place: ReservedPlace) -> None:
    """The place of a migrating attempt's successor is kept: nothing is better than it, so nothing takes it away."""
    memory.reserved[place.key] = place
    memory.inventory.hold(Holding(place.key, RESERVED, place.reserved_s, place.placements))


def make_memory(
    revisions: Revisions,
    fleet: Fleet,
    states: dict[MachineId, MachineState],
    tenants: tuple[Tenant, ...],
    catalog: Catalog,
    stored: list[StoredAttempt],
    region_id: RegionId,
    rule: EvictionRule = DEFAULT_RULE,
    preempted_s: Mapping[str, tuple[float, ...]] = NO_PREEMPTIONS,
    placement: PlacementSection | None = None,
    profiles: Sequence[StoredProfile] = (),
    mechanism: TuningMechanism | None = None,
    reservations: ReservationRule | None = None,
    kept: Sequence[Reservation] = (),
) -> RegionMemory | None:
    """The memory that belongs to these rows; None when the fleet has no such region.

    Raises FormatError where the tenants' virtual clusters do not match the region: what was applied does.
    """
    if all(region.region != region_id for region in fleet.regions):
        return None
    region = region_with_virtual_clusters(fleet.region(region_id), tenants)
    inventory = _inventory(region, states, rule, reservations, kept)
    by_order = sorted(
        stored, key=lambda one: order_of_holding(one.key, one.dispatched_s, one.state is State.PREEMPTING)
    )
    works = TunedWorks(region.machines(), profiles, revisions.profiles)
    live = {attempt.key: live_attempt_of(attempt, works) for attempt in stored}
    tuning = None
    if mechanism is not None:
        tuning = AttemptTuning(mechanism, region, works)
        tuning.fleet_changed(fleet, tenants)
        for source in tuning.sources(region):
            inventory.voluntary.add_source(source)
    for attempt in by_order:
        if tuning is not None:
            one = live[attempt.key]
            tuning.knows(one.key, one.specification, one.tuned.profiles)
            if one.state is State.DISPATCHED:
                inventory.voluntary.will_begin(one.key)
        inventory.hold(holding_of(live[attempt.key], rule, preempted_s))
        if attempt.state is State.PREEMPTING:
            inventory.begin_eviction(attempt.key)
    bidder = RegionBidder(region, inventory, catalog)
    specifications = SpecificationCache(placement)
    specifications.machines_changed(region)
    return RegionMemory(
        revisions=revisions,
        region=region,
        inventory=inventory,
        bidder=bidder,
        catalog=catalog,
        tenants={tenant.tenant: tenant for tenant in tenants},
        live=RegionAttempts(live.values()),
        specifications=specifications,
        works=works,
        tuning=tuning,
    )


def _inventory(
    region: Region,
    states: Mapping[MachineId, MachineState],
    rule: EvictionRule,
    reservations: ReservationRule | None,
    kept: Sequence[Reservation],
) -> RegionCapacity:
    """Of the region, in which nothing is held yet."""
    own = {machine.machine for machine in region.machines()}
    inventory = RegionCapacity(
        region, {machine: state for machine, state in states.items() if machine in own}, rule=rule
    )
    inventory.voluntary.changes_take_time = True
    # One workload whose planning fails must not keep all others of the region from being planned.
    inventory.faults.contained = True
    if reservations is not None:
        # Before anything is held: a gang that has started since is kept nothing any more.
        inventory.reserved.begin_use(reservations.start_up_s)
        inventory.reserved.replace(kept)
    return inventory


def holding_of(attempt: LiveAttempt, rule: EvictionRule, preempted_s: Mapping[str, tuple[float, ...]]) -> Holding:
    """What the attempt holds, and from when on it may be evicted; `preempted_s` as from `preemptions`."""
    past_s = preempted_s.get(attempt.key.workload, ())
    from_s = evictable_from_s(rule, attempt.dispatched_s, attempt.started_s, past_s)
    spared = is_spared(rule, guaranteed=attempt.guaranteed)
    return Holding(
        attempt.key,
        attempt.standing,
        attempt.dispatched_s,
        attempt.placements,
        from_s,
        spared,
        attempt.cells,
        attempt.specification.base_tasks,
        attempt.tenant,
        saved_s_of(attempt),
        attempt.specification.checkpoint_interval_s,
    )


def saved_s_of(attempt: LiveAttempt) -> float | None:
    """When the attempt last saved its work, or else when it started; None while it has not started."""
    started_s = attempt.started_s
    return None if started_s is None else max(started_s, attempt.run.checkpoint_s)


def live_attempt_of(stored: StoredAttempt, works: TunedWorks) -> LiveAttempt:
    """The attempt as a session knows it that has not heard of it from any cluster."""
    specification = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(stored.specification))
    run = run_from_record(
        facts_of(stored.key, specification, stored.progress_at_start, stored.failures),
        stored.state,
        progress=stored.progress,
        checkpoint_progress=stored.checkpoint_progress,
        checkpoint_s=stored.checkpoint_s or 0.0,
        started_s=stored.started_s,
        eviction=stored.eviction,
    )
    attempt = LiveAttempt(
        run=run,
        tenant=stored.tenant,
        specification=specification,
        standing=stored.standing,
        within_quota=stored.within_quota,
        guaranteed=stored.guaranteed,
        dispatched_s=stored.dispatched_s,
        charges=stored.charges,
        placements=stored.placements,
        cells=stored.cells,
        tuned=works.of(specification, stored.profiles_revision),
    )
    attempt.perhaps_known.update(attempt.clusters)
    return attempt
