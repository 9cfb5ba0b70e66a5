"""Workloads enter: accepted by the hundred in one transaction; and users cancel them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.errors import UniqueViolation
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ANY_GPU_MODEL, TenantId, WorkloadId
from domain.life_cycle import ENDED, LIVE, Happening, State, state_after
from domain.workload import WorkloadSpecification, emulated_work_s
from formats.event_details import submitted_details
from regional_scheduler.refusals.kinds import WorkloadKind, kind_of
from services.database import event_store
from services.database.channels import REGION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.errors import RepeatTransaction
from services.database.state_guards import StateChangeRefused, before
from services.database.tenant_store import keep_tenants

_IDEMPOTENCY_INDEX = "workloads_idempotency"


class IdempotencyConflict(Exception):
    """The tenant used this idempotency key before, for something else: for `workload`."""

    def __init__(self, workload: WorkloadId, tenant: TenantId, idempotency_key: str) -> None:
        self.workload = workload
        self.tenant = tenant
        self.idempotency_key = idempotency_key
        super().__init__(
            f"tenant {tenant} has used the idempotency key {idempotency_key!r} for another workload, {workload}"
        )


class UnknownTenants(Exception):
    """There are no such tenants (any more)."""

    def __init__(self, tenants: tuple[TenantId, ...]) -> None:
        self.tenants = tenants
        super().__init__(f"there is no tenant named {', '.join(tenants)}")


class NoQuotaAtPriority(Exception):
    """The tenant has no quota at the priority that a workload asks for (any more)."""

    def __init__(self, tenant: TenantId, priority: int) -> None:
        self.tenant = tenant
        super().__init__(f"is {priority}, at which tenant {tenant} has no quota")


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A workload to be accepted, already judged."""

    workload: WorkloadId
    specification: WorkloadSpecification
    serialized: bytes
    """The specification as it came over the wire."""
    submitted_s: float
    idempotency_key: str | None = None
    body_digest: bytes | None = None
    """Of what came with the key: distinguishes a repetition from another submission."""


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """By which name a submission is known from now on; `existed` when it was accepted before."""

    workload: WorkloadId
    existed: bool


# ---------------------------------------------------------------- submission


async def insert_submissions(connection: AnyConnection, submissions: Sequence[NewWorkload]) -> list[SubmissionResult]:
    """Accepts all of them or none: workloads, jobs, input tables, queue entries and `submitted` events.

    A submission whose idempotency key its tenant has used before, with the same digest, changes nothing and gets the
    name of the first one; so does a repetition within `submissions`.

    Raises:
        IdempotencyConflict: a key was used before with another digest.
        UnknownTenants: a tenant does not exist (any more).
        RepeatTransaction: another transaction has just used one of the keys; Database.run does it again.
    """
    tenants = sorted({submission.specification.tenant for submission in submissions})
    # One round trip for all that must be known; each statement sees what was committed before it began.
    async with connection.pipeline():
        await keep_tenants(connection)
        known_tenants = await _find_tenants(connection, tenants)
        known_keys = await _find_keys(connection, submissions)
        await event_store.prepare_to_append(connection)
    found = {TenantId(row[0]): row for row in await known_tenants.fetchall()}
    unknown = set(tenants) - found.keys()
    if unknown:
        raise UnknownTenants(tuple(sorted(unknown)))
    for submission in submissions:
        asked, owner = submission.specification.priority, submission.specification.tenant
        if asked is not None and asked != found[owner][1] and str(asked) not in found[owner][2]["quotas"]:
            raise NoQuotaAtPriority(owner, asked)
    results, new = _sort_out(submissions, _keys(await known_keys.fetchall()))
    if new:
        kinds = {submission.workload: kind_of(submission.specification) for submission in new}
        try:
            await _copy_workloads(connection, new, kinds)
        except UniqueViolation as error:
            if error.diag.constraint_name == _IDEMPOTENCY_INDEX:
                raise RepeatTransaction("an idempotency key was used at the same time") from error
            raise
        await _copy_jobs(connection, new)
        await _copy_tables(connection, new)
        await _copy_queue_entries(connection, new, kinds)
        await _copy_events(connection, new)
        wake_after_commit(connection, SCAN_CHANNEL)
    return results


async def _find_tenants(connection: AnyConnection, tenants: Sequence[TenantId]) -> psycopg.AsyncCursor[TupleRow]:
    return await connection.execute(
        "SELECT tenant, priority, further_quotas FROM tenants WHERE tenant = ANY(%s)", (list(tenants),)
    )


_Key = tuple[TenantId, str]
_Known = dict[_Key, tuple[WorkloadId, bytes | None]]


async def _find_keys(connection: AnyConnection, submissions: Iterable[NewWorkload]) -> psycopg.AsyncCursor[TupleRow]:
    keys = [(s.specification.tenant, s.idempotency_key) for s in submissions if s.idempotency_key is not None]
    return await connection.execute(
        """SELECT w.tenant, w.idempotency_key, w.workload, w.body_digest
             FROM unnest(%s::text[], %s::text[]) AS u (tenant, idempotency_key)
             JOIN workloads w ON w.tenant = u.tenant AND w.idempotency_key = u.idempotency_key""",
        ([tenant for tenant, _ in keys], [key for _, key in keys]),
    )


def _keys(rows: Iterable[TupleRow]) -> _Known:
    return {(TenantId(row[0]), row[1]): (WorkloadId(row[2]), None if row[3] is None else bytes(row[3])) for row in rows}


def _sort_out(submissions: Sequence[NewWorkload], known: _Known) -> tuple[list[SubmissionResult], list[NewWorkload]]:
    """What each submission comes to, and which are new."""
    results: list[SubmissionResult] = []
    new: list[NewWorkload] = []
    for submission in submissions:
        if submission.idempotency_key is None:
            earlier = None
        else:
            key = (submission.specification.tenant, submission.idempotency_key)
            earlier = known.get(key)
            if earlier is None:
                known[key] = (submission.workload, submission.body_digest)
            elif earlier[1] != submission.body_digest:
                raise IdempotencyConflict(earlier[0], *key)
        if earlier is None:
            new.append(submission)
            results.append(SubmissionResult(submission.workload, existed=False))
        else:
            results.append(SubmissionResult(earlier[0], existed=True))
    return results, new


async def _copy_workloads(
    connection: AnyConnection, new: Sequence[NewWorkload], kinds: Mapping[WorkloadId, WorkloadKind]
) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            """COPY workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s,
                               idempotency_key, body_digest, declared_s, kind, asked_priority) FROM STDIN (FORMAT BINARY)"""
        ) as copy,
    ):
        copy.set_types(
            [
                "text",
                "text",
                "text",
                "bytea",
                "int4",
                "bool",
                "text",
                "float8",
                "text",
                "bytea",
                "float8",
                "text",
                "int2",
            ]
        )
        for submission in new:
            specification = submission.specification
            await copy.write_row(
                (
                    submission.workload,
                    specification.tenant,
                    specification.name,
                    submission.serialized,
                    sum(job.resources.gpus * job.tasks for job in specification.jobs),
                    specification.emulated,
                    State.PENDING.value,
                    submission.submitted_s,
                    submission.idempotency_key,
                    submission.body_digest,
                    emulated_work_s(specification),
                    kinds[submission.workload],
                    specification.priority,
                )
            )


async def _copy_jobs(connection: AnyConnection, new: Sequence[NewWorkload]) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            """COPY jobs (workload, job, position, tasks, max_tasks, gpus, gpu_model, cpus, memory_gib)
               FROM STDIN (FORMAT BINARY)"""
        ) as copy,
    ):
        copy.set_types(["text", "text", "int2", "int4", "int4", "int2", "text", "float8", "float8"])
        for submission in new:
            for position, job in enumerate(submission.specification.jobs):
                wanted = job.resources
                await copy.write_row(
                    (
                        submission.workload,
                        job.name,
                        position,
                        job.tasks,
                        job.max_tasks,
                        wanted.gpus,
                        wanted.gpu_model,
                        wanted.cpus,
                        wanted.memory_gib,
                    )
                )


async def _copy_tables(connection: AnyConnection, new: Sequence[NewWorkload]) -> None:
    """Which tables each of them reads, if any do."""
    reads = [
        (submission.workload, table)
        for submission in new
        for table in sorted({each.table for each in submission.specification.tables})
    ]
    if not reads:
        return
    async with (
        connection.cursor() as cursor,
        cursor.copy("COPY workload_tables (workload, data_table) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["text", "text"])
        for read in reads:
            await copy.write_row(read)


async def _copy_queue_entries(
    connection: AnyConnection, new: Sequence[NewWorkload], kinds: Mapping[WorkloadId, WorkloadKind]
) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            """COPY queue_entries (workload, tenant, submitted_s, gpu_model, gpus, cpus, more_gpus, kind, asked_priority)
               FROM STDIN (FORMAT BINARY)"""
        ) as copy,
    ):
        copy.set_types(["text", "text", "float8", "text", "int4", "float8", "jsonb", "text", "int2"])
        for submission in new:
            demand = submission.specification.demand
            (model, gpus), *more = demand.gpus or ((ANY_GPU_MODEL, 0),)
            await copy.write_row(
                (
                    submission.workload,
                    submission.specification.tenant,
                    submission.submitted_s,
                    model,
                    gpus,
                    float(demand.cpus),
                    Jsonb(dict(more)) if more else None,
                    kinds[submission.workload],
                    submission.specification.priority,
                )
            )


async def _copy_events(connection: AnyConnection, new: Sequence[NewWorkload]) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy("COPY events (t, event, workload, tenant, details) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["float8", "text", "text", "text", "jsonb"])
        for submission in new:
            await copy.write_row(
                (
                    submission.submitted_s,
                    EventKind.SUBMITTED.value,
                    submission.workload,
                    submission.specification.tenant,
                    Jsonb(submitted_details(submission.specification), dumps=_dump),
                )
            )


def _dump(details: Mapping[str, JsonValue]) -> str:
    return json.dumps(details, allow_nan=False)


# ---------------------------------------------------------------- cancellation


async def cancel(connection: AnyConnection, workload: WorkloadId, reason: str, now: float) -> State | None:
    """Cancels a queued workload at once, has a live one stopped, leaves an ended one as it is.

    Returns its state from now on (that of a live one does not change yet); None when there is no such workload.
    Raises RepeatTransaction when it moves between queue and machines at this moment; Database.run does it again.
    """
    # The queue entry first, as a dispatch does: the two never block each other for good.
    cursor = await connection.execute("DELETE FROM queue_entries WHERE workload = %s RETURNING tenant", (workload,))
    queued = await cursor.fetchone()
    if queued is not None:
        await _end_cancelled(connection, workload, TenantId(queued[0]), reason, now)
        return State.CANCELLED
    cursor = await connection.execute(
        """UPDATE workloads SET cancel_requested = true, reason = CASE WHEN cancel_requested THEN reason ELSE %s END
            WHERE workload = %s AND state = ANY(%s) RETURNING state""",
        (reason, workload, sorted(LIVE)),
    )
    live = await cursor.fetchone()
    if live is not None:
        wake_after_commit(connection, REGION_CHANNEL)
        return State(live[0])
    cursor = await connection.execute("SELECT state FROM workloads WHERE workload = %s", (workload,))
    row = await cursor.fetchone()
    if row is None:
        return None
    if State(row[0]) not in ENDED:
        raise RepeatTransaction(f"workload {workload} has just returned to the queue")
    return State(row[0])


async def _end_cancelled(
    connection: AnyConnection, workload: WorkloadId, tenant: TenantId, reason: str, now: float
) -> None:
    cursor = await connection.execute(
        """UPDATE workloads SET state = %s, ended_s = %s, reason = %s, cancel_requested = true
            WHERE workload = %s AND state = ANY(%s)""",
        (state_after(Happening.CANCELLED).value, now, reason, workload, before(Happening.CANCELLED)),
    )
    if cursor.rowcount != 1:
        raise StateChangeRefused(Happening.CANCELLED, 1, cursor.rowcount)
    event = Event(now, EventKind.CANCELLED, workload, tenant=tenant, details={"reason": reason})
    await event_store.append(connection, [event])
    wake_after_commit(connection, SCAN_CHANNEL)
