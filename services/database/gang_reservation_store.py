"""Machines that are kept for gangs that wait (decision 073). Inside the caller's transaction.

A row is written by the region of its machines, under its lease. One workload has one row at most: another region takes it
over where it is as that region has read it, else not. Transactions that write come one after the other (`lock`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg.rows import TupleRow

from domain.identifiers import ClusterId, MachineId, RegionId, TenantId, WorkloadId
from domain.rank import Standing
from domain.reservation import Reservation, ReservationRule
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from services.database.connection import AnyConnection

_LOCK_KEY = 0x6B65_7074

_COLUMNS = """r.workload, r.region, r.clusters, r.machines, r.gpus, coalesce(q.priority, r.priority),
              coalesce(q.level, r.level), r.made_s, r.expected_start_s, r.expires_s"""


@dataclass(frozen=True, slots=True)
class StoredReservation:
    """A reservation, at the standing that its gang has now."""

    reservation: Reservation
    waits: bool
    """Its gang is queued, and has been since before it was made."""


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A large gang that has waited for so long that it may get a reservation."""

    workload: WorkloadId
    standing: Standing
    within_quota: bool
    queued_since_s: float


@dataclass(frozen=True, slots=True)
class ShownReservation:
    """A reservation as people see it."""

    reservation: Reservation
    name: str
    tenant: TenantId


@dataclass(frozen=True, slots=True)
class DeletedReservation:
    """What is left to say of a reservation that is no more."""

    tenant: TenantId
    dispatched: bool
    """Its gang was dispatched after it was made."""


async def lock(connection: AnyConnection) -> None:
    """No other transaction writes reservations until this one ends."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))


async def load_all(connection: AnyConnection) -> list[StoredReservation]:
    """Those of all regions, sorted by workload."""
    cursor = await connection.execute(
        f"""SELECT {_COLUMNS}, coalesce(coalesce(q.queued_since_s, q.submitted_s) <= r.made_s, false)
              FROM gang_reservations r LEFT JOIN queue_entries q USING (workload) ORDER BY r.workload"""
    )
    return [StoredReservation(_reservation(row), row[10]) for row in await cursor.fetchall()]


async def in_region(connection: AnyConnection, region: RegionId) -> list[StoredReservation]:
    """Those of the region, sorted by workload."""
    cursor = await connection.execute(
        f"""SELECT {_COLUMNS}, coalesce(coalesce(q.queued_since_s, q.submitted_s) <= r.made_s, false)
              FROM gang_reservations r LEFT JOIN queue_entries q USING (workload)
             WHERE r.region = %s ORDER BY r.workload""",
        (region,),
    )
    return [StoredReservation(_reservation(row), row[10]) for row in await cursor.fetchall()]


async def load_patient(connection: AnyConnection, rule: ReservationRule, now: float, limit: int) -> list[QueuedGang]:
    """Ranked gangs that the rule entitles by their size and wait, in queue order, so many at most; none that has been won."""
    priorities = range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1)
    after_s = [rule.limits_of(priority).entitled_after_s for priority in priorities]
    cursor = await connection.execute(
        """SELECT q.workload, q.priority, q.level, q.within_quota, coalesce(q.queued_since_s, q.submitted_s)
             FROM queue_entries q
            WHERE q.priority IS NOT NULL AND q.not_before_s <= %s
              AND q.gpus + coalesce((SELECT sum(value::int) FROM jsonb_each_text(q.more_gpus)), 0) >= %s
              AND coalesce(q.queued_since_s, q.submitted_s) + (%s::float8[])[q.priority + 1] <= %s
              AND NOT EXISTS (SELECT FROM awards a WHERE a.workload = q.workload)
            ORDER BY q.priority, q.level, (-q.credit), q.submitted_s, q.workload LIMIT %s""",
        (now, rule.least_gpus, after_s, now, limit),
    )
    return [
        QueuedGang(WorkloadId(name), Standing(priority, level), within_quota, since_s)
        for name, priority, level, within_quota, since_s in await cursor.fetchall()
    ]


async def make(connection: AnyConnection, reservation: Reservation, instead_of: Reservation | None) -> bool:
    """Keeps the machines for the gang; False, and nothing is changed, where it does not wait any more, or is being dispatched or
    ranked at this moment, or has another reservation than `instead_of`, which this one takes the place of.
    """
    region, made_s = ("", 0.0) if instead_of is None else (instead_of.region, instead_of.made_s)
    cursor = await connection.execute(
        """WITH waits AS MATERIALIZED (SELECT workload FROM queue_entries WHERE workload = %s FOR UPDATE SKIP LOCKED)
           INSERT INTO gang_reservations AS r (workload, region, clusters, machines, gpus, priority, level, made_s,
                                               expected_start_s, expires_s)
           SELECT workload, %s, %s::text[], %s::text[], %s, %s, %s, %s, %s, %s FROM waits
               ON CONFLICT (workload) DO UPDATE
              SET region = excluded.region, clusters = excluded.clusters, machines = excluded.machines, gpus = excluded.gpus,
                  priority = excluded.priority, level = excluded.level, made_s = excluded.made_s,
                  expected_start_s = excluded.expected_start_s, expires_s = excluded.expires_s
            WHERE (r.region, r.made_s) = (%s, %s)
        RETURNING r.workload""",
        (
            reservation.workload,
            reservation.region,
            list(reservation.clusters),
            list(reservation.machines),
            reservation.gpus,
            reservation.standing.priority,
            reservation.standing.level,
            reservation.made_s,
            reservation.expected_start_s,
            reservation.expires_s,
            region,
            made_s,
        ),
    )
    return await cursor.fetchone() is not None


async def delete(
    connection: AnyConnection, region: RegionId, workloads: Sequence[WorkloadId]
) -> Mapping[WorkloadId, DeletedReservation]:
    """Ends those of the region; one that another region has taken over is left out."""
    cursor = await connection.execute(
        """DELETE FROM gang_reservations r USING workloads w
            WHERE w.workload = r.workload AND r.region = %s AND r.workload = ANY(%s)
        RETURNING r.workload, w.tenant,
                  EXISTS (SELECT FROM attempts a WHERE a.workload = r.workload AND a.dispatched_s >= r.made_s)""",
        (region, list(workloads)),
    )
    return {
        WorkloadId(name): DeletedReservation(TenantId(tenant), dispatched)
        for name, tenant, dispatched in await cursor.fetchall()
    }


async def list_waiting(connection: AnyConnection, tenants: Sequence[str] | None = None) -> list[ShownReservation]:
    """Those of regions of the fleet whose gangs are queued, of these tenants (None: of all), by the time at which they are expected to start."""
    cursor = await connection.execute(
        f"""SELECT {_COLUMNS}, w.name, w.tenant
              FROM gang_reservations r JOIN queue_entries q USING (workload) JOIN workloads w USING (workload)
              JOIN regions f ON f.region = r.region
             WHERE %(tenants)s::text[] IS NULL OR w.tenant = ANY(%(tenants)s) ORDER BY r.expected_start_s, r.workload""",
        {"tenants": None if tenants is None else list(tenants)},
    )
    return [ShownReservation(_reservation(row), row[10], TenantId(row[11])) for row in await cursor.fetchall()]


def _reservation(row: TupleRow) -> Reservation:
    return Reservation(
        WorkloadId(row[0]),
        RegionId(row[1]),
        tuple([ClusterId(name) for name in row[2]]),
        tuple([MachineId(name) for name in row[3]]),
        row[4],
        Standing(row[5], row[6]),
        made_s=row[7],
        expected_start_s=row[8],
        expires_s=row[9],
    )
