"""Looking at workloads: one with its attempts, a page of many, how many there are in each state."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from psycopg.rows import TupleRow
from sqlalchemy import ColumnElement, Float, Select, Table, and_, func, or_, select, tuple_, union_all

from domain.cells import CellsOfJobs
from domain.dependencies import waiting_sentence
from domain.diagnosis import Diagnosis
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RegionId, TenantId, WorkloadId
from domain.life_cycle import ENDED, QUEUED, State
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import QueuePosition, Standing
from services.database import dependency_store
from services.database.cell_store import cells_of_workloads
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute
from services.database.dependency_store import HELD_BY_DEPENDENCIES, AwaitedWorkload
from services.database.diagnosis_documents import diagnosis_from_document
from services.database.label_store import LabelCondition, meets
from services.database.large_results import ROWS_AT_ONCE
from services.database.state_guards import in_states
from services.database.tables.attempts import ATTEMPTS, PLACEMENTS
from services.database.tables.definition import NAME
from services.database.tables.queue import QUEUE_ENTRIES
from services.database.tables.workloads import WORKLOADS

PAGE_BYTES = 3 * 2**20
"""A page ends early when its specifications are larger than that together: gRPC clients take 4 MiB by default."""


class BadPageToken(Exception):
    """The token does not come from a page of this very list."""


@dataclass(frozen=True, slots=True)
class StoredWorkload:
    """A workload as the database knows it."""

    workload: WorkloadId
    tenant: TenantId
    specification: bytes
    """As it was submitted, or changed by its user since: a serialised topmast.v1.WorkloadSpecification."""
    state: State
    submitted_s: float
    ended_s: float | None
    attempt: AttemptNumber
    """The newest one; 0: there was none."""
    failures: int
    region: RegionId | None
    """Of the newest attempt."""
    progress: float
    checkpoint_progress: float
    throughput: float
    reason: str
    cancel_requested: bool
    position: QueuePosition | None
    """While it is queued and a scan pass has ranked it."""
    diagnosis: Diagnosis | None
    """Why the last auction refused it, while it is queued; the reason is the sentence."""
    not_before_s: float = 0.0
    """While it is queued: when it may be tried at the earliest, after a failure."""
    held_by: str | None = None
    requeue_by: str | None = None
    """Who sends it back to the queue, until it is there."""
    revision: int = 0
    """0: what was submitted has not been changed."""
    waits_for: tuple[AwaitedWorkload, ...] = ()
    """Other workloads, as they are at present."""
    array: WorkloadId | None = None
    """That it is an element of."""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The workload for which an attempt had to leave."""

    workload: WorkloadId
    name: str
    tenant: TenantId
    standing: Standing


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One run of a workload, over or not."""

    key: AttemptKey
    region: RegionId
    state: str
    """DISPATCHED, RUNNING, PREEMPTING, or ENDED."""
    standing: Standing
    within_quota: bool
    guaranteed: bool
    """Whether it was within quota when it was dispatched."""
    dispatched_s: float
    started_s: float | None
    ended_s: float | None
    end: str | None
    end_reason: str
    progress_at_start: float
    progress: float
    checkpoint_progress: float
    profiles_revision: int
    """Of the sensitivity profiles when it began; 0: it knows none."""
    placements: tuple[TaskPlacement, ...]
    cells: CellsOfJobs
    preempted_by: Preemptor | None = None
    """For what it had to leave; None: it was not preempted."""
    exit_code: int | None = None
    """Of the task that is to blame where it failed; None: there is none."""


@dataclass(frozen=True, slots=True)
class StoredWorkloadFilter:
    """Which workloads to list; what is None or empty excludes nothing."""

    tenant: TenantId | None = None
    states: tuple[State, ...] = ()
    region: RegionId | None = None
    name_contains: str = ""
    submitted_after_s: float | None = None
    submitted_before_s: float | None = None
    labels: tuple[LabelCondition, ...] = ()
    array: WorkloadId | None = None
    """Only its elements."""
    owners: tuple[str, ...] | None = None
    """Only what belongs to these tenants; sorted, since it is part of page tokens."""
    first_elements: bool = False
    """Of arrays only the first elements, which stand for all."""


@dataclass(frozen=True, slots=True)
class StoredWorkloadPage:
    """Some workloads, the newest first; `next_page_token` is empty on the last page."""

    workloads: tuple[StoredWorkload, ...]
    next_page_token: str


_WORKLOADS = WORKLOADS.outerjoin(QUEUE_ENTRIES, WORKLOADS.c.workload == QUEUE_ENTRIES.c.workload)

_WITH_LIVE_ATTEMPTS = _WORKLOADS.outerjoin(
    ATTEMPTS,
    and_(
        ATTEMPTS.c.workload == WORKLOADS.c.workload,
        ATTEMPTS.c.attempt == WORKLOADS.c.attempts,
        ATTEMPTS.c.ended_s.is_(None),
    ),
)

# The state and the reason of a queued workload stand in its queue entry, the progress of a live attempt in its row.
_SELECT = select(
    WORKLOADS.c.workload,
    WORKLOADS.c.tenant,
    WORKLOADS.c.specification,
    func.coalesce(QUEUE_ENTRIES.c.state, WORKLOADS.c.state),
    WORKLOADS.c.submitted_s,
    WORKLOADS.c.ended_s,
    WORKLOADS.c.attempts,
    WORKLOADS.c.failures,
    WORKLOADS.c.region,
    func.coalesce(ATTEMPTS.c.progress, WORKLOADS.c.progress),
    func.coalesce(ATTEMPTS.c.checkpoint_progress, WORKLOADS.c.checkpoint_progress),
    func.coalesce(ATTEMPTS.c.throughput, 0.0),
    func.coalesce(QUEUE_ENTRIES.c.reason, WORKLOADS.c.reason),
    WORKLOADS.c.cancel_requested,
    QUEUE_ENTRIES.c.priority,
    QUEUE_ENTRIES.c.level,
    QUEUE_ENTRIES.c.credit,
    QUEUE_ENTRIES.c.within_quota,
    QUEUE_ENTRIES.c.diagnosis,
    func.coalesce(QUEUE_ENTRIES.c.not_before_s, 0.0),
    WORKLOADS.c.held_by,
    WORKLOADS.c.requeue_by,
    WORKLOADS.c.revision,
    WORKLOADS.c.array_id,
).select_from(_WITH_LIVE_ATTEMPTS)

_PREEMPTORS = WORKLOADS.alias("preemptors")

_NEWEST_FIRST = (WORKLOADS.c.submitted_s.desc(), WORKLOADS.c.workload.desc())


# What is held has no entry in the queue, nor has what awaits its turn in an array.
_WAITS_OUTSIDE = in_states(WORKLOADS.c.state, {State.PENDING}) & (
    WORKLOADS.c.held_by.is_not(None) | WORKLOADS.c.awaits_turn
)


async def get(connection: AnyConnection, workload: WorkloadId) -> StoredWorkload | None:
    """One workload; None when there is none of that name."""
    return (await get_all(connection, [workload])).get(workload)


async def get_all(connection: AnyConnection, workloads: Iterable[WorkloadId]) -> dict[WorkloadId, StoredWorkload]:
    """Those of these names that there are."""
    cursor = await execute(connection, _SELECT.where(any_of(WORKLOADS.c.workload, workloads)))
    found = await _with_awaited(connection, [_stored_workload(row) for row in await cursor.fetchall()])
    return {one.workload: one for one in found}


async def _with_awaited(connection: AnyConnection, found: Sequence[StoredWorkload]) -> tuple[StoredWorkload, ...]:
    """With the others that they wait for; what is held by these alone says so in its reason, and is held by nobody."""
    held = [one.workload for one in found if one.held_by is not None and one.state in QUEUED]
    waiting = await dependency_store.awaited(connection, held)
    return tuple(_waiting(one, waiting[one.workload]) if one.workload in waiting else one for one in found)


def _waiting(stored: StoredWorkload, waits_for: tuple[AwaitedWorkload, ...]) -> StoredWorkload:
    if stored.held_by != HELD_BY_DEPENDENCIES:
        return replace(stored, waits_for=waits_for)
    reason = waiting_sentence([(one.dependency, one.state) for one in waits_for])
    return replace(stored, waits_for=waits_for, held_by=None, reason=reason)


def _stored_workload(row: TupleRow) -> StoredWorkload:
    priority, level, credit, within_quota, diagnosis, not_before_s, held_by, requeue_by, revision, array = row[14:]
    workload = WorkloadId(row[0])
    return StoredWorkload(
        workload=workload,
        tenant=TenantId(row[1]),
        specification=bytes(row[2]),
        state=State(row[3]),
        submitted_s=row[4],
        ended_s=row[5],
        attempt=AttemptNumber(row[6]),
        failures=row[7],
        region=None if row[8] is None else RegionId(row[8]),
        progress=row[9],
        checkpoint_progress=row[10],
        throughput=row[11],
        reason=row[12],
        cancel_requested=row[13],
        position=None
        if priority is None
        else QueuePosition(workload, Standing(priority, level), credit, row[4], within_quota),
        diagnosis=None if diagnosis is None else diagnosis_from_document(diagnosis),
        not_before_s=not_before_s,
        held_by=held_by,
        requeue_by=requeue_by,
        revision=revision or 0,
        array=None if array is None else WorkloadId(array),
    )


# ---------------------------------------------------------------- pages


async def list_page(
    connection: AnyConnection, wanted: StoredWorkloadFilter, page_size: int, page_token: str = ""
) -> StoredWorkloadPage:
    """A page of the workloads that pass the filter, the newest first.

    Pages show each workload once, also while others are submitted between them. Raises BadPageToken when the token
    is damaged or belongs to another filter.
    """
    conditions = _conditions(wanted)
    if page_token:
        place = tuple_(*_read_token(page_token, wanted), types=[Float(), NAME])
        conditions.append(tuple_(WORKLOADS.c.submitted_s, WORKLOADS.c.workload) < place)
    cursor = await execute(
        connection,
        select(WORKLOADS.c.workload, func.octet_length(WORKLOADS.c.specification))
        .select_from(_WORKLOADS)
        .where(*conditions)
        .order_by(*_NEWEST_FIRST)
        .limit(page_size + 1),
    )
    listed = await cursor.fetchall()
    names = _that_fit(listed[:page_size])
    cursor = await execute(connection, _SELECT.where(any_of(WORKLOADS.c.workload, names)).order_by(*_NEWEST_FIRST))
    page = await _with_awaited(connection, [_stored_workload(row) for row in await cursor.fetchall()])
    return StoredWorkloadPage(page, _make_token(page[-1], wanted) if len(listed) > len(names) else "")


def _that_fit(listed: Sequence[TupleRow]) -> list[str]:
    """The first ones, as many as there is room for on a page, and at least one."""
    names: list[str] = []
    room = PAGE_BYTES
    for workload, specification_bytes in listed:
        room -= specification_bytes
        if names and room < 0:
            break
        names.append(workload)
    return names


def _conditions(wanted: StoredWorkloadFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.tenant is not None:
        conditions.append(WORKLOADS.c.tenant == wanted.tenant)
    if wanted.owners is not None:
        conditions.append(any_of(WORKLOADS.c.tenant, wanted.owners))
    if wanted.states:
        queued = sorted(state.value for state in wanted.states if state in QUEUED)
        others = sorted(state.value for state in wanted.states if state not in QUEUED)
        # Apart where only one is asked for: an index serves it then.
        parts = [any_of(WORKLOADS.c.state, others)] if others else []
        if queued:
            parts.append(in_states(WORKLOADS.c.state, {State.PENDING}) & any_of(QUEUE_ENTRIES.c.state, queued))
        if State.PENDING in wanted.states:
            parts.append(_WAITS_OUTSIDE)
        conditions.append(or_(*parts))
    if wanted.region is not None:
        conditions.append(WORKLOADS.c.region == wanted.region)
    if wanted.name_contains:
        conditions.append(func.strpos(WORKLOADS.c.name, wanted.name_contains) > 0)
    if wanted.submitted_after_s is not None:
        conditions.append(WORKLOADS.c.submitted_s > wanted.submitted_after_s)
    if wanted.submitted_before_s is not None:
        conditions.append(WORKLOADS.c.submitted_s < wanted.submitted_before_s)
    if wanted.array is not None:
        conditions.append(WORKLOADS.c.array_id == wanted.array)
    if wanted.first_elements:
        conditions.append(~WORKLOADS.c.beside_first)
    return conditions + meets(WORKLOADS.c.workload, wanted.labels)


def _fingerprint(wanted: StoredWorkloadFilter) -> str:
    return hashlib.blake2b(repr(astuple(wanted)).encode(), digest_size=6).hexdigest()


def _make_token(last: StoredWorkload, wanted: StoredWorkloadFilter) -> str:
    content = json.dumps([last.submitted_s, last.workload, _fingerprint(wanted)])
    return base64.urlsafe_b64encode(content.encode()).decode()


def _read_token(token: str, wanted: StoredWorkloadFilter) -> tuple[float, str]:
    try:
        submitted_s, workload, fingerprint = json.loads(base64.urlsafe_b64decode(token.encode()))
        place = float(submitted_s), str(workload)
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadPageToken("the page token is damaged: start again without one") from error
    if fingerprint != _fingerprint(wanted) or not place[1].isprintable():
        raise BadPageToken("the page token belongs to another list: start again without one")
    return place


# ---------------------------------------------------------------- attempts


async def load_attempts(
    connection: AnyConnection, workloads: Sequence[WorkloadId]
) -> dict[WorkloadId, tuple[AttemptRecord, ...]]:
    """Every attempt of these workloads with its placements and cells, by workload, oldest first; those without any are left out."""
    cells = await cells_of_workloads(connection, workloads)
    placements = await _load_placements(connection, workloads)
    cursor = await execute(
        connection,
        select(
            ATTEMPTS.c.workload,
            ATTEMPTS.c.attempt,
            ATTEMPTS.c.region,
            ATTEMPTS.c.state,
            ATTEMPTS.c.priority,
            ATTEMPTS.c.level,
            ATTEMPTS.c.within_quota,
            ATTEMPTS.c.guaranteed,
            ATTEMPTS.c.dispatched_s,
            ATTEMPTS.c.started_s,
            ATTEMPTS.c.ended_s,
            ATTEMPTS.c.end,
            ATTEMPTS.c.end_reason,
            ATTEMPTS.c.progress_at_start,
            ATTEMPTS.c.progress,
            ATTEMPTS.c.checkpoint_progress,
            ATTEMPTS.c.profiles_revision,
            ATTEMPTS.c.eviction,
            _PREEMPTORS.c.name,
            _PREEMPTORS.c.tenant,
            ATTEMPTS.c.exit_code,
        )
        .select_from(
            ATTEMPTS.outerjoin(_PREEMPTORS, _PREEMPTORS.c.workload == ATTEMPTS.c.eviction["by"].astext),
        )
        .where(any_of(ATTEMPTS.c.workload, workloads))
        .order_by(ATTEMPTS.c.workload, ATTEMPTS.c.attempt),
    )
    attempts: dict[WorkloadId, list[AttemptRecord]] = {}
    for row in await cursor.fetchall():
        key = AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1]))
        attempts.setdefault(key.workload, []).append(
            _attempt_record(key, row[2:], tuple(placements.get(key, ())), cells.get(key, ()))
        )
    return {workload: tuple(records) for workload, records in attempts.items()}


def _attempt_record(
    key: AttemptKey, row: TupleRow, placements: tuple[TaskPlacement, ...], cells: CellsOfJobs
) -> AttemptRecord:
    return AttemptRecord(
        key=key,
        region=RegionId(row[0]),
        state=row[1],
        standing=Standing(row[2], row[3]),
        within_quota=row[4],
        guaranteed=row[5],
        dispatched_s=row[6],
        started_s=row[7],
        ended_s=row[8],
        end=row[9],
        end_reason=row[10],
        progress_at_start=row[11],
        progress=row[12],
        checkpoint_progress=row[13],
        profiles_revision=row[14],
        placements=placements,
        cells=cells,
        preempted_by=_preemptor(row[15], row[16], row[17]),
        exit_code=row[18],
    )


def _preemptor(eviction: Mapping[str, Any] | None, name: str | None, tenant: str | None) -> Preemptor | None:
    """None: it did not leave for another workload, or that one is not known any more."""
    if eviction is None or name is None or tenant is None:
        return None
    standing = Standing(eviction["by_priority"], eviction["by_level"])
    return Preemptor(WorkloadId(eviction["by"]), name, TenantId(tenant), standing)


async def _load_placements(
    connection: AnyConnection, workloads: Sequence[WorkloadId]
) -> dict[AttemptKey, list[TaskPlacement]]:
    """What each attempt of the workloads holds or held."""
    placed = PLACEMENTS.c
    cursor = await execute(
        connection,
        select(
            placed.workload,
            placed.attempt,
            placed.job,
            placed.task,
            placed.cluster,
            placed.machine,
            placed.gpu_indices,
            placed.millicpus,
            placed.mebibytes,
        )
        .where(any_of(placed.workload, workloads))
        .order_by(placed.workload, placed.attempt, placed.job, placed.task),
    )
    found: dict[AttemptKey, list[TaskPlacement]] = {}
    while rows := await cursor.fetchmany(ROWS_AT_ONCE):
        for workload, attempt, job, task, cluster, machine, gpus, millicpus, mebibytes in rows:
            found.setdefault(AttemptKey(WorkloadId(workload), AttemptNumber(attempt)), []).append(
                TaskPlacement(
                    JobName(job), task, ClusterId(cluster), MachineId(machine), tuple(gpus), millicpus, mebibytes
                )
            )
        if len(rows) == ROWS_AT_ONCE:
            await asyncio.sleep(0)  # gangs have very many: others have their turn in between
    return found


# ---------------------------------------------------------------- counts


async def count_by_state(connection: AnyConnection, owners: Sequence[str] | None = None) -> dict[State, int]:
    """How many workloads (of these tenants, None: of all) are in each state, states without any left out.

    Reads indexes and small tables only: the queue, the live attempts, and one index entry per ended or held workload.
    """

    def of_owners(table: Table) -> Select[tuple[str, int]]:
        counted = _counted(table)
        return counted if owners is None else counted.where(any_of(table.c.tenant, owners))

    cursor = await execute(
        connection,
        union_all(
            of_owners(QUEUE_ENTRIES),
            of_owners(ATTEMPTS).where(ATTEMPTS.c.ended_s.is_(None)),
            of_owners(WORKLOADS).where(in_states(WORKLOADS.c.state, ENDED)),
            of_owners(WORKLOADS).where(_WAITS_OUTSIDE),
        ),
    )
    counts: Counter[State] = Counter()
    for state, count in await cursor.fetchall():
        counts[State(state)] += int(count)
    return {state: counts[state] for state in State if state in counts}


def _counted(table: Table) -> Select[tuple[str, int]]:
    """How many rows of the table are in each state."""
    return select(table.c.state, func.count()).group_by(table.c.state)
