"""One moment of the whole service, read in one transaction: what a simulation may go on from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg.rows import TupleRow
from sqlalchemy import select

from domain.attained_service import AttainedService
from domain.events import EvictionCause
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, MachineId, RegionId, TenantId, WorkloadId
from domain.life_cycle import ENDED, State
from domain.placement import AttemptKey
from domain.placement_changes import PlacementChange
from domain.rank import QueuePosition, Standing
from domain.snapshot import (
    AttemptSoFar,
    CompletedService,
    Leaving,
    NextPlace,
    QueuedWorkload,
    RunningAttempt,
    ServiceSoFar,
    Snapshot,
    UseStretch,
)
from domain.workload import Workload, WorkloadSpecification, emulated_work_s
from services.database import (
    attempt_store,
    catalog_store,
    fleet_store,
    placement_change_store,
    reservation_store,
    tenant_store,
)
from services.database.attempt_store import StoredAttempt
from services.database.completed_store import load_samples
from services.database.connection import AnyConnection
from services.database.eviction_guard import preempted_within_the_hour
from services.database.large_results import all_rows
from services.database.packlimit_store import load_changed_times
from services.database.placement_change_store import StoredRevision
from services.database.sensitivity_store import load_since
from services.database.snapshot_skews import with_known_skews
from services.database.state_guards import quoted
from services.database.tables.queue import QUEUE_ENTRIES
from services.database.tables.workloads import WORKLOADS
from services.database.usage_store import UNCOUNTED_USE
from services.tuned_work import TunedWork, TunedWorks
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True)
class _Ended:
    """What the attempts that are over of a workload that is not came to."""

    attained_s: float
    attained_gpu_s: float
    before_promotion_s: float
    before_promotion_gpu_s: float
    first_started_s: float | None
    last_ended_s: float

    def so_far(self, attempts: int, failures: int, checkpoint_progress: float) -> ServiceSoFar:
        """With what is known of the workload besides."""
        return ServiceSoFar(
            attempts,
            failures,
            checkpoint_progress,
            self.attained_s,
            self.attained_gpu_s,
            self.before_promotion_s,
            self.before_promotion_gpu_s,
            self.first_started_s,
        )


@dataclass(frozen=True, slots=True)
class _Received:
    """What a live attempt has received, and when it was asked to leave."""

    service: AttainedService
    leaving_s: float | None


async def load_snapshot(connection: AnyConnection, now: float) -> Snapshot:
    """Everything that is decided on. The connection's transaction must see one state of the database throughout."""
    fleet, states = await fleet_store.load_fleet(connection)
    ended = await _load_ended(connection)
    next_places = {
        place.key.predecessor: NextPlace(place.region, place.placements)
        for region in fleet.regions
        for place in await reservation_store.in_region(connection, region.region)
    }
    preempted_s = await preempted_within_the_hour(connection, now)
    received = await _load_received(connection)
    profiles = await load_since(connection, -1)
    stored: list[tuple[RegionId, StoredAttempt, StoredRevision | None, TunedWorks]] = []
    for region in fleet.regions:
        works = TunedWorks(region.machines(), profiles)
        revisions = await placement_change_store.load_revisions(connection, region.region)
        live = await attempt_store.load_live(connection, region.region)
        stored += [(region.region, attempt, revisions.get(attempt.key), works) for attempt in live]

    def running() -> tuple[RunningAttempt, ...]:
        found = [
            _as_now(
                _leaving_lost_machines(_running(attempt, region, ended, preempted_s, now), states),
                received[attempt.key],
                revision,
                next_places.get(attempt.key),
                works.of(_specification(attempt.specification), attempt.profiles_revision),
                now,
            )
            for region, attempt, revision, works in stored
        ]
        return tuple(sorted(found, key=lambda one: (one.workload.submitted_s, one.workload.workload)))

    snapshot = Snapshot(
        taken_s=now,
        fleet=fleet,
        tables=tuple(await catalog_store.load_catalog(connection)),
        tenants=await tenant_store.load_tenants(connection),
        machine_states={machine: states[machine] for machine in sorted(states) if states[machine] != MachineState.UP},
        queue=await _load_queue(connection, ended, preempted_s, now),
        # In a thread, as the queue is: who reads this holds a lease, and answers calls.
        running=await asyncio.to_thread(running),
        use=await _load_use(connection, now),
        completed_service=await _load_completed_service(connection),
        iteration_times=(await load_changed_times(connection, 0)).sums,
    )
    return await with_known_skews(connection, snapshot)


async def _load_ended(connection: AnyConnection) -> Mapping[WorkloadId, _Ended]:
    cursor = await connection.execute(
        f"""SELECT workload, w.attained_s, w.attained_gpu_s, w.before_promotion_s, w.before_promotion_gpu_s,
                  w.first_started_s, max(a.ended_s)
             FROM attempts a JOIN workloads w USING (workload)
            WHERE a.ended_s IS NOT NULL AND w.state NOT IN ({quoted(ENDED)})
            GROUP BY w.workload, workload"""
    )
    return {WorkloadId(row[0]): _Ended(*row[1:]) for row in await cursor.fetchall()}


async def _load_received(connection: AnyConnection) -> Mapping[AttemptKey, _Received]:
    cursor = await connection.execute(
        """SELECT workload, attempt, received_gpu_s, gpus, coalesce(received_to_s, started_s), leaving_s FROM attempts
            WHERE ended_s IS NULL"""
    )
    rows = await cursor.fetchall()
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): _Received(AttainedService(*row[2:5]), row[5])
        for row in rows
    }


def _as_now(
    attempt: RunningAttempt,
    received: _Received,
    revision: StoredRevision | None,
    next_place: NextPlace | None,
    tuned: TunedWork,
    now: float,
) -> RunningAttempt:
    return replace(attempt, changed=_changed(attempt, received, revision, tuned, now), next_place=next_place)


def _changed(
    attempt: RunningAttempt, received: _Received, revision: StoredRevision | None, tuned: TunedWork, now: float
) -> AttemptSoFar | None:
    """What it had come to at its last change; one that is still being carried out counts as done now."""
    if attempt.started_s is None:
        return None
    since = tuple(revision.changed.values()) if revision is not None else ()
    if attempt.leaving is not None and received.leaving_s is not None:
        to_s, progress = received.leaving_s, attempt.progress
    elif revision is not None and revision.change is not None:
        to_s, progress = now, _progress_at(attempt, since, revision.change, tuned, now)
    elif since:
        to_s, progress = max(at_s for at_s, _ in since), min(reached for _, reached in since)
    else:
        return None
    to_s = min(max(to_s, attempt.started_s), now)
    return AttemptSoFar(to_s, progress, received.service.at(to_s))


def _progress_at(
    attempt: RunningAttempt, since: Sequence[tuple[float, float]], change: PlacementChange, tuned: TunedWork, now: float
) -> float:
    """Emulated work goes on, until the change is carried out, as fast as what it held before makes it."""
    specification = attempt.workload.specification
    if emulated_work_s(specification) is None or attempt.started_s is None:
        return attempt.progress
    at_s = max((at_s for at_s, _ in since), default=attempt.started_s)
    reached = min((reached for _, reached in since), default=attempt.progress_at_start)
    return max(attempt.progress, reached + max(0.0, now - at_s) * tuned.rate(specification, change.before))


async def _load_queue(
    connection: AnyConnection,
    ended: Mapping[WorkloadId, _Ended],
    preempted_s: Mapping[str, tuple[float, ...]],
    now: float,
) -> tuple[QueuedWorkload, ...]:
    workload, entry = WORKLOADS.c, QUEUE_ENTRIES.c
    query = (
        select(
            workload.workload,
            workload.specification,
            workload.submitted_s,
            entry.state,
            entry.not_before_s,
            entry.priority,
            entry.level,
            entry.credit,
            entry.within_quota,
            workload.attempts,
            workload.failures,
            workload.checkpoint_progress,
        )
        .select_from(QUEUE_ENTRIES.join(WORKLOADS, entry.workload == workload.workload))
        .order_by(workload.submitted_s, workload.workload)
    )
    rows = await all_rows(connection, query)
    return await asyncio.to_thread(lambda: tuple(_queued(row, ended, preempted_s, now) for row in rows))


def _queued(
    row: TupleRow, ended: Mapping[WorkloadId, _Ended], preempted_s: Mapping[str, tuple[float, ...]], now: float
) -> QueuedWorkload:
    name, specification, submitted_s, state, not_before_s, priority, level, credit, within_quota, *so_far = row
    workload = Workload(WorkloadId(name), _specification(bytes(specification)), min(submitted_s, now))
    attempts, failures, checkpoint_progress = so_far
    before = ended.get(workload.workload, _Ended(0.0, 0.0, 0.0, 0.0, None, workload.submitted_s))
    position = None
    if priority is not None:
        position = QueuePosition(
            workload.workload, Standing(priority, level), credit, workload.submitted_s, within_quota
        )
    return QueuedWorkload(
        workload=workload,
        state=State(state),
        queued_since_s=min(before.last_ended_s, now),
        so_far=before.so_far(attempts, failures, checkpoint_progress),
        position=position,
        not_before_s=not_before_s,
        preempted_s=preempted_s.get(workload.workload, ()),
    )


def _running(
    stored: StoredAttempt,
    region: RegionId,
    ended: Mapping[WorkloadId, _Ended],
    preempted_s: Mapping[str, tuple[float, ...]],
    now: float,
) -> RunningAttempt:
    """Whose clock was a moment ahead when it wrote a time, does not let things happen in another order, or later than now."""
    name = stored.key.workload
    dispatched_s = min(stored.dispatched_s, now)
    started_s = None if stored.started_s is None else min(max(stored.started_s, dispatched_s), now)
    workload = Workload(name, _specification(stored.specification), min(stored.submitted_s, now))
    before = ended.get(name, _Ended(0.0, 0.0, 0.0, 0.0, None, stored.submitted_s))
    so_far = before.so_far(stored.key.attempt - 1, stored.failures, stored.progress_at_start)
    eviction = stored.eviction if stored.state is State.PREEMPTING else None
    return RunningAttempt(
        workload=workload,
        key=stored.key,
        region=region,
        state=stored.state,
        standing=stored.standing,
        within_quota=stored.within_quota,
        dispatched_s=dispatched_s,
        started_s=started_s,
        progress_at_start=stored.progress_at_start,
        progress=stored.progress,
        checkpoint_progress=stored.checkpoint_progress,
        placements=stored.placements,
        so_far=so_far,
        leaving=None if eviction is None else Leaving(eviction.cause, eviction.by, eviction.by_standing),
        guaranteed=stored.guaranteed,
        preempted_s=preempted_s.get(name, ()),
        cells=stored.cells,
    )


def _leaving_lost_machines(attempt: RunningAttempt, states: Mapping[MachineId, MachineState]) -> RunningAttempt:
    """One that came a moment ago to a machine that is down leaves it, though it was not asked to yet."""
    if attempt.state is State.PREEMPTING or not any(states[p.machine].is_down for p in attempt.placements):
        return attempt
    return replace(attempt, state=State.PREEMPTING, leaving=Leaving(EvictionCause.MACHINE_LOST))


def _specification(stored: bytes) -> WorkloadSpecification:
    """As submitted; labels and environment by key, as files have them."""
    specification = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(stored))
    jobs = tuple(replace(job, environment=tuple(sorted(job.environment))) for job in specification.jobs)
    # A simulation tells nobody, and a file is the wrong place for what may be a secret.
    return replace(specification, jobs=jobs, labels=tuple(sorted(specification.labels)), notify=None)


async def _load_completed_service(connection: AnyConnection) -> tuple[CompletedService, ...]:
    found: list[CompletedService] = []
    last = 0
    while True:
        samples = await load_samples(connection, last)
        if not samples.tenants:
            return tuple(found)
        found += map(CompletedService, samples.tenants, samples.gpu_s.tolist())
        last = samples.last


async def _load_use(connection: AnyConnection, now: float) -> tuple[UseStretch, ...]:
    """Stretch by stretch, as it is counted; and what is not counted yet, attempt by attempt."""
    cursor = await connection.execute(
        f"""SELECT tenant, window_start_s AS start_s, least(window_end_s, %(now)s) AS end_s, gpu_seconds, cpu_seconds
             FROM usage_windows WHERE window_start_s < %(now)s
           UNION ALL
           SELECT tenant, since_s, until_s, gpus * (until_s - since_s), cpus * (until_s - since_s)
             FROM ({UNCOUNTED_USE}) AS uncounted WHERE since_s < until_s
            ORDER BY tenant, start_s, end_s, gpu_seconds, cpu_seconds""",
        {"now": now},
    )
    return tuple(
        UseStretch(TenantId(tenant), start_s, end_s, max(gpu_seconds, 0.0), max(cpu_seconds, 0.0))
        for tenant, start_s, end_s, gpu_seconds, cpu_seconds in await cursor.fetchall()
    )
