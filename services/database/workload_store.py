"""Workloads enter: accepted by the hundred in one transaction; and users cancel them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import psycopg
from psycopg.errors import UniqueViolation
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from domain.dependencies import Dependency, waiting_sentence
from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ANY_GPU_MODEL, TenantId, WorkloadId
from domain.life_cycle import State
from domain.workload import WorkloadSpecification, emulated_work_s
from formats.event_details import submitted_details
from global_scheduler.user_requests import HELD_AS_SUBMITTED
from regional_scheduler.refusals.kinds import WorkloadKind, kind_of
from services.database import array_store, dependency_store, event_store, package_store
from services.database.array_store import NO_ARRAY, ArrayPlace
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.dependency_store import HELD_BY_DEPENDENCIES
from services.database.errors import RepeatTransaction
from services.database.label_store import copy_labels
from services.database.notification_store import insert_notified
from services.database.requeue_store import set_importance
from services.database.tenant_store import keep_tenants
from services.wire.workloads import with_dependencies

_IDEMPOTENCY_INDEX = "workloads_idempotency"

_ROWS_AT_ONCE = 1_000

_WORKLOAD_TYPES = [
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
    "text",
    "bool",
    "bool",
    "text",
]


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


class UnknownPackages(Exception):
    """Packages that workloads name are not stored (any more)."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages
        super().__init__(f"package {packages[0]} is not stored here")


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
    array: ArrayPlace | None = None
    """Of an element of an array, which is stored one by one."""


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
        UnknownPackages: a package that one of them names is not stored (any more).
        DependencyRefused: one of them would wait for what there is not, or for what can never be.
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
        new = _with_known_names(new, submissions, results)
        waits = await dependency_store.open_dependencies(connection, _specified(new))
        await array_store.insert_arrays(connection, new)
        rows = array_store.one_by_one(new)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            await _insert_rows(connection, some, waits)
            # Large arrays take a while: everything else in this process goes on meanwhile.
            await asyncio.sleep(0)
        # When all are there: they may wait for each other.
        await dependency_store.insert(connection, _specified(new), waits)
        wake_after_commit(connection, SCAN_CHANNEL)
    return results


async def _insert_rows(
    connection: AnyConnection, new: Sequence[NewWorkload], waits: Mapping[WorkloadId, Sequence[Dependency]]
) -> None:
    """Workloads and elements of arrays, with all that belongs to them but the others for which they wait."""
    kinds = _kinds(new)
    try:
        await _copy_workloads(connection, new, kinds)
    except UniqueViolation as error:
        if error.diag.constraint_name == _IDEMPOTENCY_INDEX:
            raise RepeatTransaction("an idempotency key was used at the same time") from error
        raise
    await _copy_jobs(connection, new)
    await _copy_tables(connection, new)
    await _insert_packages(connection, new)
    await copy_labels(
        connection,
        [(submission.workload, key, value) for submission in new for key, value in submission.specification.labels],
    )
    await insert_notified(
        connection, [(one.workload, one.specification.notify) for one in new if one.specification.notify is not None]
    )
    held = [submission for submission in new if submission.specification.hold or submission.workload in waits]
    awaiting = [submission for submission in new if submission.array is not None and submission.array.awaits_turn]
    outside = {submission.workload for submission in (*held, *awaiting)}
    queued = [submission for submission in new if submission.workload not in outside] if outside else new
    await _copy_queue_entries(connection, queued, kinds)
    await set_importance(connection, {one.workload: one.specification for one in queued})
    await _copy_events(connection, new)
    if held:
        await _hold(connection, held, waits)
    if awaiting:
        await array_store.tell_awaiting(
            connection, [(one.workload, one.specification.tenant) for one in awaiting], awaiting[0].submitted_s
        )


def _kinds(new: Iterable[NewWorkload]) -> dict[WorkloadId, WorkloadKind]:
    """Elements of an array share their specification, and so their kind."""
    known: dict[int, WorkloadKind] = {}
    kinds: dict[WorkloadId, WorkloadKind] = {}
    for submission in new:
        same = id(submission.specification)
        if same not in known:
            known[same] = kind_of(submission.specification)
        kinds[submission.workload] = known[same]
    return kinds


async def _find_tenants(connection: AnyConnection, tenants: Sequence[TenantId]) -> psycopg.AsyncCursor[TupleRow]:
    return await connection.execute(
        "SELECT tenant, priority, further_quotas FROM tenants WHERE tenant = ANY(%s)", (list(tenants),)
    )


_Key = tuple[TenantId, str]
_Known = dict[_Key, tuple[WorkloadId, bytes | None]]


async def _find_keys(connection: AnyConnection, submissions: Iterable[NewWorkload]) -> psycopg.AsyncCursor[TupleRow]:
    keys = [(s.specification.tenant, s.idempotency_key) for s in submissions if s.idempotency_key is not None]
    return await connection.execute(
        """SELECT w.tenant, w.idempotency_key, coalesce(w.array_id, w.workload), w.body_digest
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


def _with_known_names(
    new: Sequence[NewWorkload], submissions: Sequence[NewWorkload], results: Sequence[SubmissionResult]
) -> list[NewWorkload]:
    """Those that wait for others of their call which had been accepted before wait for these."""
    earlier = {
        str(one.workload): result.workload for one, result in zip(submissions, results, strict=True) if result.existed
    }
    if not earlier:
        return list(new)
    found = []
    for one in new:
        specification = dependency_store.renamed(one.specification, earlier)
        if specification == one.specification:
            found.append(one)
        else:
            serialized = with_dependencies(one.serialized, specification.after)
            found.append(replace(one, specification=specification, serialized=serialized))
    return found


def _specified(new: Sequence[NewWorkload]) -> list[tuple[WorkloadId, WorkloadSpecification]]:
    return [(one.workload, one.specification) for one in new]


async def _copy_workloads(
    connection: AnyConnection, new: Sequence[NewWorkload], kinds: Mapping[WorkloadId, WorkloadKind]
) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            """COPY workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s,
                               idempotency_key, body_digest, declared_s, kind, asked_priority,
                               array_id, beside_first, awaits_turn, reason) FROM STDIN (FORMAT BINARY)"""
        ) as copy,
    ):
        copy.set_types(_WORKLOAD_TYPES)
        for submission in new:
            specification = submission.specification
            array = submission.array or NO_ARRAY
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
                    array.array,
                    array.beside_first,
                    array.awaits_turn,
                    array_store.AWAITS_TURN if array.awaits_turn else "",
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


async def _insert_packages(connection: AnyConnection, new: Sequence[NewWorkload]) -> None:
    """Which package each of them names, if any do. Raises UnknownPackages."""
    uses = [(submission.workload, submission.specification.package) for submission in new]
    named = {package for _, package in uses if package}
    if not named:
        return
    unknown = named - await package_store.keep_packages(connection, named)
    if unknown:
        raise UnknownPackages(tuple(sorted(unknown)))
    await package_store.insert_uses(connection, [(workload, package) for workload, package in uses if package])


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


async def _hold(
    connection: AnyConnection, held: Sequence[NewWorkload], waits: Mapping[WorkloadId, Sequence[Dependency]]
) -> None:
    """They wait outside the queue: they have no entry there."""
    holders = [HELD_AS_SUBMITTED if one.specification.hold else HELD_BY_DEPENDENCIES for one in held]
    reasons = [
        f"held by {HELD_AS_SUBMITTED}"
        if one.specification.hold
        else waiting_sentence([(each, None) for each in waits[one.workload]])
        for one in held
    ]
    await connection.execute(
        """UPDATE workloads w SET held_by = u.held_by, reason = u.reason
             FROM unnest(%s::text[], %s::text[], %s::text[]) AS u (workload, held_by, reason)
            WHERE w.workload = u.workload""",
        ([one.workload for one in held], holders, reasons),
    )
    events = [
        Event(
            one.submitted_s,
            EventKind.HELD,
            one.workload,
            tenant=one.specification.tenant,
            details=_held_details(by, why),
        )
        for one, by, why in zip(held, holders, reasons, strict=True)
    ]
    await event_store.append(connection, events)


def _held_details(by: str, why: str) -> dict[str, JsonValue]:
    """What waits says for what."""
    return {"by": by, "reason": why} if by == HELD_BY_DEPENDENCIES else {"by": by}


def _dump(details: Mapping[str, JsonValue]) -> str:
    return json.dumps(details, allow_nan=False)
