"""The order of the queue by what workloads ask for beside what is free, where `tuning` in scheduler.yaml is a packing.

What workloads ask for depends on the fleet, on the virtual clusters of tenants and on the sensitivity profiles; it is kept
for each of those that wait until one of these changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from sqlalchemy import select

from cluster_manager.cells.declared import declarations_of, matched
from cluster_manager.tuning.mechanism import TuningMechanism
from cluster_manager.tuning.packing_demands import PackingDemands
from cluster_manager.tuning.packing_order import PACKING_ORDERS, PackedWorkload, PackingOrder
from cluster_manager.tuning.predicted_room import FreeMachine, PackedJob, PackedKind, PredictedRoom
from domain.fleet import Fleet
from domain.identifiers import RegionId, WorkloadId
from domain.tenant import Tenant
from domain.workload import WorkloadSpecification
from global_scheduler.knowledge import OracleNeeded
from global_scheduler.view_builder import PendingRows
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.static_asks import StaticAsks
from services.database import changed_workload_store, fleet_store, idle_store, tenant_store
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute
from services.database.engine import Database
from services.database.revision_store import Revisions, load_revisions
from services.database.sensitivity_store import StoredProfile, load_since
from services.database.tables.workloads import WORKLOADS
from services.tuned_work import ProfileBook
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


def live_packing_order(mechanism: TuningMechanism | None, database: Database) -> LivePackingOrder | None:
    """None: the ordering policies of the priorities order the queue."""
    if mechanism is None or mechanism.name not in PACKING_ORDERS:
        return None
    return LivePackingOrder(mechanism, PACKING_ORDERS[mechanism.name], database)


@dataclass(slots=True)
class _Known:
    """What holds for as long as nothing else is applied."""

    revisions: Revisions
    asks: StaticAsks
    demands: PackingDemands
    regions: tuple[EmptyRegion, ...]
    gpus: Mapping[RegionId, int]
    """Of all machines of each region."""
    profiles: ProfileBook
    kinds: dict[Hashable, PackedKind] = field(default_factory=dict)
    workloads: dict[WorkloadId, PackedWorkload] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Applied:
    """What was applied, as the database has it."""

    revisions: Revisions
    fleet: Fleet
    tenants: tuple[Tenant, ...]
    profiles: tuple[StoredProfile, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """What is new, at one moment."""

    applied: _Applied | None
    """None: nothing."""
    specifications: Sequence[tuple[WorkloadId, bytes]]
    """Of workloads that wait and were not known, or were changed."""
    revision: int
    """Of the newest change that was seen."""
    free: tuple[FreeMachine, ...]


class LivePackingOrder:
    """Of one global tier."""

    def __init__(self, mechanism: TuningMechanism, order: PackingOrder, database: Database) -> None:
        self._mechanism = mechanism
        self._order = order
        self._database = database
        self._known: _Known | None = None
        self._revision = 0
        """Of the newest change of a workload that it has heard of."""

    async def numbers(self, pending: PendingRows) -> Mapping[WorkloadId, float]:
        """Of all that wait; the greatest goes first. Raises OracleNeeded without the estimates that it needs."""
        if self._order.needs_run_times and pending.estimates is None:
            raise OracleNeeded(self._mechanism.name)
        look = await self._database.run(partial(self._look, waiting=pending.workloads), snapshot=True)
        # In a thread: calls are answered while many thousands of workloads are looked at.
        return await asyncio.to_thread(self._take_in, look, pending)

    async def _look(self, connection: AnyConnection, waiting: Sequence[WorkloadId]) -> _Look:
        revisions, known, applied = await load_revisions(connection), self._known, None
        if known is None or _of_asks(known.revisions) != _of_asks(revisions):
            fleet, _ = await fleet_store.load_fleet(connection)
            tenants = await tenant_store.load_tenants(connection)
            applied = _Applied(revisions, fleet, tenants, await load_since(connection, -1))
        there = known.workloads if known is not None and applied is None else {}
        changed = await changed_workload_store.changed_workloads(connection, self._revision)
        anew = {one.newest.workload for one in changed}
        missing = [workload for workload in waiting if workload not in there or workload in anew]
        specifications: Sequence[tuple[WorkloadId, bytes]] = ()
        if missing:
            query = select(WORKLOADS.c.workload, WORKLOADS.c.specification).where(any_of(WORKLOADS.c.workload, missing))
            rows = await (await execute(connection, query)).fetchall()
            specifications = [(WorkloadId(workload), bytes(specification)) for workload, specification in rows]
        free = await idle_store.free_machines(connection) if self._order.looks_at_idle else ()
        return _Look(applied, specifications, changed[-1].revision if changed else self._revision, free)

    def _take_in(self, look: _Look, pending: PendingRows) -> Mapping[WorkloadId, float]:
        if look.applied is not None:
            self._known = _known_of(look.applied, self._mechanism)
        known = self._known
        if known is None:
            raise RuntimeError("nothing was applied, but something waits")
        self._revision = look.revision
        _take_workloads(known, look.specifications)
        waiting = [known.workloads[workload] for workload in pending.workloads]
        known.workloads = dict(zip(pending.workloads, waiting, strict=True))
        remaining_s = np.zeros(len(waiting)) if pending.estimates is None else pending.estimates.remaining_s
        room = PredictedRoom(known.demands, known.kinds, look.free, known.gpus)
        numbers = self._order.credits(waiting, remaining_s, room)
        return dict(zip(pending.workloads, numbers.tolist(), strict=True))


def _of_asks(revisions: Revisions) -> tuple[int, ...]:
    """What workloads ask for depends on these."""
    return revisions.fleet, revisions.tenants, revisions.profiles


def _known_of(applied: _Applied, mechanism: TuningMechanism) -> _Known:
    fleet = matched(applied.fleet, declarations_of(applied.tenants)).fleet
    return _Known(
        applied.revisions,
        StaticAsks(mechanism, fleet),
        PackingDemands(machine for region in fleet.regions for machine in region.machines()),
        tuple([EmptyRegion(region) for region in fleet.regions]),
        {region.region: sum(machine.gpus for machine in region.machines()) for region in fleet.regions},
        ProfileBook(applied.profiles),
    )


def _take_workloads(known: _Known, specifications: Sequence[tuple[WorkloadId, bytes]]) -> None:
    """Works out what these ask for."""
    for workload, message in specifications:
        submitted = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(message))
        asked = known.asks.of(submitted, known.profiles.of_jobs(submitted, known.revisions.profiles))
        regions = _hosts(known.regions, asked)
        shape = tuple([(job.tasks, job.resources, job.affinity) for job in asked.jobs])
        kind = (shape, regions)
        if kind not in known.kinds:
            jobs = [PackedJob(known.demands.asked(job), job.tasks, job.resources.gpu_model) for job in asked.jobs]
            known.kinds[kind] = PackedKind(tuple(jobs), regions)
        share, size = known.demands.dominant_share(asked), known.demands.size(asked)
        known.workloads[workload] = PackedWorkload(kind, share, size)


def _hosts(regions: Sequence[EmptyRegion], specification: WorkloadSpecification) -> frozenset[RegionId]:
    """The regions that it allows and that could host it, whatever tables they have."""
    allowed = [one for one in regions if not specification.regions or one.region in specification.regions]
    return frozenset([one.region for one in allowed if one.refusal(specification) is None])
