"""One moment of the whole service, read in one transaction: what a simulation may go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from psycopg.rows import TupleRow

from domain.fleet import MachineState
from domain.identifiers import RegionId, TenantId, WorkloadId
from domain.life_cycle import ENDED, State
from domain.rank import QueuePosition, Standing
from domain.snapshot import Leaving, QueuedWorkload, RunningAttempt, ServiceSoFar, Snapshot, UseStretch
from domain.workload import Workload, WorkloadSpecification
from services.database import attempt_store, catalog_store, fleet_store, tenant_store
from services.database.attempt_store import StoredAttempt
from services.database.connection import AnyConnection
from services.database.state_guards import quoted
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True)
class _Ended:
    """What the attempts that are over of a workload that is not came to."""

    attained_s: float
    attained_gpu_s: float
    last_ended_s: float


async def load_snapshot(connection: AnyConnection, now: float) -> Snapshot:
    """Everything that is decided on. The connection's transaction must see one state of the database throughout."""
    fleet, states = await fleet_store.load_fleet(connection)
    ended = await _load_ended(connection)
    running: list[RunningAttempt] = []
    for region in fleet.regions:
        stored = await attempt_store.load_live(connection, region.region)
        running += [_running(attempt, region.region, ended) for attempt in stored]
    running.sort(key=lambda attempt: (attempt.workload.submitted_s, attempt.workload.workload))
    return Snapshot(
        taken_s=now,
        fleet=fleet,
        tables=tuple(await catalog_store.load_catalog(connection)),
        tenants=await tenant_store.load_tenants(connection),
        machine_states={machine: states[machine] for machine in sorted(states) if states[machine] != MachineState.UP},
        queue=await _load_queue(connection, ended, now),
        running=tuple(running),
        use=await _load_use(connection, now),
    )


async def _load_ended(connection: AnyConnection) -> Mapping[WorkloadId, _Ended]:
    cursor = await connection.execute(
        f"""SELECT workload, w.attained_s, w.attained_gpu_s, max(a.ended_s)
             FROM attempts a JOIN workloads w USING (workload)
            WHERE a.ended_s IS NOT NULL AND w.state NOT IN ({quoted(ENDED)})
            GROUP BY workload, w.attained_s, w.attained_gpu_s"""
    )
    return {WorkloadId(row[0]): _Ended(row[1], row[2], row[3]) for row in await cursor.fetchall()}


async def _load_queue(
    connection: AnyConnection, ended: Mapping[WorkloadId, _Ended], now: float
) -> tuple[QueuedWorkload, ...]:
    cursor = await connection.execute(
        """SELECT w.workload, w.specification, w.submitted_s, q.state, q.not_before_s, q.priority, q.level, q.credit,
                  q.within_quota, w.attempts, w.failures, w.checkpoint_progress
             FROM queue_entries q JOIN workloads w USING (workload)
            ORDER BY w.submitted_s, w.workload"""
    )
    return tuple(_queued(row, ended, now) for row in await cursor.fetchall())


def _queued(row: TupleRow, ended: Mapping[WorkloadId, _Ended], now: float) -> QueuedWorkload:
    name, specification, submitted_s, state, not_before_s, priority, level, credit, within_quota, *so_far = row
    workload = Workload(WorkloadId(name), _specification(bytes(specification)), min(submitted_s, now))
    attempts, failures, checkpoint_progress = so_far
    before = ended.get(workload.workload, _Ended(0.0, 0.0, workload.submitted_s))
    position = None
    if priority is not None:
        position = QueuePosition(
            workload.workload, Standing(priority, level), credit, workload.submitted_s, within_quota
        )
    return QueuedWorkload(
        workload=workload,
        state=State(state),
        queued_since_s=before.last_ended_s,
        so_far=ServiceSoFar(attempts, failures, checkpoint_progress, before.attained_s, before.attained_gpu_s),
        position=position,
        not_before_s=not_before_s,
    )


def _running(stored: StoredAttempt, region: RegionId, ended: Mapping[WorkloadId, _Ended]) -> RunningAttempt:
    name = stored.key.workload
    workload = Workload(name, _specification(stored.specification), stored.submitted_s)
    before = ended.get(name, _Ended(0.0, 0.0, stored.submitted_s))
    so_far = ServiceSoFar(
        stored.key.attempt - 1, stored.failures, stored.progress_at_start, before.attained_s, before.attained_gpu_s
    )
    eviction = stored.eviction if stored.state is State.PREEMPTING else None
    return RunningAttempt(
        workload=workload,
        key=stored.key,
        region=region,
        state=stored.state,
        standing=stored.standing,
        within_quota=stored.within_quota,
        dispatched_s=stored.dispatched_s,
        started_s=stored.started_s,
        progress_at_start=stored.progress_at_start,
        progress=stored.progress,
        checkpoint_progress=stored.checkpoint_progress,
        placements=stored.placements,
        so_far=so_far,
        leaving=None if eviction is None else Leaving(eviction.cause, eviction.by, eviction.by_standing),
    )


def _specification(stored: bytes) -> WorkloadSpecification:
    """As submitted; labels and environment by key, as files have them."""
    specification = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(stored))
    jobs = tuple(replace(job, environment=tuple(sorted(job.environment))) for job in specification.jobs)
    return replace(specification, jobs=jobs, labels=tuple(sorted(specification.labels)))


async def _load_use(connection: AnyConnection, now: float) -> tuple[UseStretch, ...]:
    """Stretch by stretch, as it is counted; and what is not counted yet, attempt by attempt."""
    cursor = await connection.execute(
        """SELECT tenant, window_start_s AS start_s, least(window_end_s, %(now)s) AS end_s, gpu_seconds, cpu_seconds
             FROM usage_windows WHERE window_start_s < %(now)s
           UNION ALL
           SELECT tenant, lo, hi, gpus * (hi - lo), cpus * (hi - lo)
             FROM (SELECT tenant, gpus, cpus, coalesce(counted_s, dispatched_s) AS lo,
                          least(coalesce(ended_s, %(now)s), %(now)s) AS hi
                     FROM attempts WHERE ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s) AS uncounted
            WHERE lo < hi
            ORDER BY tenant, start_s, end_s, gpu_seconds, cpu_seconds""",
        {"now": now},
    )
    return tuple(
        UseStretch(TenantId(tenant), start_s, end_s, max(gpu_seconds, 0.0), max(cpu_seconds, 0.0))
        for tenant, start_s, end_s, gpu_seconds, cpu_seconds in await cursor.fetchall()
    )
