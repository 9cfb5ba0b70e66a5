"""Arrays of workloads: stored as their elements are, given their turn, and looked at as a whole.

An element is active while it has its turn: it is in the queue, or live. What awaits its turn, and what is held while it is
pending, is not. Only `give_turns` makes elements active again, and it has the row of their array to itself meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from domain.events import Event, EventKind
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import ENDED, LIVE, QUEUED, State
from domain.workload_array import element_name, element_of, elements_due, parse_array
from services.database import event_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.state_guards import quoted

if TYPE_CHECKING:
    from services.database.workload_store import NewWorkload

AWAITS_TURN = "waits for its turn: so many of its array as may be at once are in the queue or running"
LIMIT_OF_ARRAY = "the limit of its array"
"""Who holds what awaits its turn, and releases it then, as the log has it."""

MOST_TURNS = 1_000
"""In one transaction."""

_SHOWN_FAILED = 20


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """What the row of an element says of its array."""

    array: WorkloadId | None
    beside_first: bool
    awaits_turn: bool


NO_ARRAY = ArrayPlace(None, beside_first=False, awaits_turn=False)


# ---------------------------------------------------------------- submission


async def insert_arrays(connection: AnyConnection, new: Iterable[NewWorkload]) -> None:
    """Those of which not all elements may be active at once."""
    for submission in new:
        specification = submission.specification
        if not specification.array:
            continue
        array = parse_array(specification.array)
        if array.at_most is not None:
            await connection.execute(
                "INSERT INTO workload_arrays (array_id, at_most, waiting) VALUES (%s, %s, %s)",
                (submission.workload, array.at_most, array.size > array.at_most and not specification.hold),
            )


def one_by_one(new: Iterable[NewWorkload]) -> Iterator[NewWorkload]:
    """Each workload, and each element of an array. The first element carries the idempotency key."""
    for submission in new:
        if not submission.specification.array:
            yield submission
            continue
        array = parse_array(submission.specification.array)
        names = [element_name(submission.workload, index) for index in array.indices]
        at_once = len(names) if array.at_most is None or submission.specification.hold else array.at_most
        active = set(elements_due(at_once, 0, names))
        key = submission.idempotency_key
        for name in names:
            place = ArrayPlace(submission.workload, beside_first=name != names[0], awaits_turn=name not in active)
            yield replace(submission, workload=name, idempotency_key=key, array=place)
            key = None


async def tell_awaiting(connection: AnyConnection, elements: Iterable[tuple[WorkloadId, TenantId]], now: float) -> None:
    """From now on these await their turn, and are in no queue."""
    await event_store.append(
        connection,
        [
            Event(now, EventKind.HELD, workload, tenant=tenant, details={"by": LIMIT_OF_ARRAY})
            for workload, tenant in elements
        ],
    )


# ---------------------------------------------------------------- turns


@dataclass(frozen=True, slots=True)
class DueElement:
    """An element that has its turn from now on."""

    workload: WorkloadId
    tenant: TenantId
    specification: bytes


# As the index says it that holds only these (workloads_active_of_array).
_ACTIVE = f"""NOT w.awaits_turn AND w.state NOT IN ({quoted(ENDED)})
              AND NOT (w.state = '{State.PENDING.value}' AND w.held_by IS NOT NULL)"""


async def arrays_with_room(connection: AnyConnection) -> list[WorkloadId]:
    """The arrays of which elements may wait for their turn, and another one may be active."""
    cursor = await connection.execute(
        f"""SELECT a.array_id FROM workload_arrays a
             WHERE a.waiting
               AND a.at_most > (SELECT count(*) FROM workloads w WHERE w.array_id = a.array_id AND {_ACTIVE})
             ORDER BY a.array_id"""
    )
    return [WorkloadId(row[0]) for row in await cursor.fetchall()]


async def take_turns(connection: AnyConnection, array: WorkloadId) -> list[DueElement]:
    """The elements that have their turn now; they await it no more, and have to enter the queue in this transaction."""
    cursor = await connection.execute(
        "SELECT at_most FROM workload_arrays WHERE array_id = %s AND waiting FOR UPDATE", (array,)
    )
    row = await cursor.fetchone()
    if row is None:
        return []
    at_most = int(row[0])
    cursor = await connection.execute(f"SELECT count(*) FROM workloads w WHERE w.array_id = %s AND {_ACTIVE}", (array,))
    counted = await cursor.fetchone()
    active = int(counted[0]) if counted is not None else 0
    # What is being held or cancelled at this moment is passed over: who does that may wait for the row of the array.
    cursor = await connection.execute(
        """SELECT workload, tenant, specification FROM workloads
            WHERE array_id = %s AND awaits_turn AND held_by IS NULL
            ORDER BY workload LIMIT %s FOR NO KEY UPDATE SKIP LOCKED""",
        (array, min(MOST_TURNS, max(0, at_most - active))),
    )
    waiting = {
        WorkloadId(name): DueElement(WorkloadId(name), TenantId(tenant), bytes(specification))
        for name, tenant, specification in await cursor.fetchall()
    }
    names = list(elements_due(at_most, active, list(waiting)))
    await connection.execute("UPDATE workloads SET awaits_turn = false, reason = '' WHERE workload = ANY(%s)", (names,))
    await connection.execute(
        """UPDATE workload_arrays a SET waiting = false WHERE array_id = %s AND NOT EXISTS (
               SELECT FROM workloads w WHERE w.array_id = a.array_id AND w.awaits_turn AND w.held_by IS NULL)""",
        (array,),
    )
    return [waiting[name] for name in names]


async def await_turns(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> list[WorkloadId]:
    """Of these, which nobody holds any more, those whose arrays have a limit await their turn; returns them."""
    cursor = await connection.execute(
        """UPDATE workloads w SET awaits_turn = true, reason = %s
             FROM workload_arrays a WHERE a.array_id = w.array_id AND w.workload = ANY(%s) AND w.state = %s
        RETURNING w.workload, w.array_id""",
        (AWAITS_TURN, list(workloads), State.PENDING.value),
    )
    rows = await cursor.fetchall()
    arrays = sorted({row[1] for row in rows})
    for array in arrays:
        await connection.execute("UPDATE workload_arrays SET waiting = true WHERE array_id = %s", (array,))
    if arrays:
        wake_after_commit(connection, SCAN_CHANNEL)
    return [WorkloadId(row[0]) for row in rows]


# ---------------------------------------------------------------- as a whole


@dataclass(frozen=True, slots=True)
class ArrayCounts:
    """How the elements of an array are; what is queued counts as pending."""

    states: Mapping[State, int]
    awaiting_turn: int
    failed: tuple[int, ...]
    """The indices of the first that failed."""
    ended_s: float | None
    """When the last one ended; None: not all have."""

    @property
    def state(self) -> State:
        """Of the array as a whole: what is most alive of it and, once all have ended, the worst end."""
        order = (State.RUNNING, State.PREEMPTING, State.DISPATCHED, State.PENDING, State.FAILED, State.CANCELLED)
        return next((state for state in order if self.states.get(state)), State.COMPLETED)


async def counts_of(connection: AnyConnection, arrays: Sequence[WorkloadId]) -> dict[WorkloadId, ArrayCounts]:
    """Those of them that there are."""
    if not arrays:
        return {}
    cursor = await connection.execute(
        "SELECT array_id, state, count(*) FROM workloads WHERE array_id = ANY(%s) GROUP BY array_id, state",
        (list(arrays),),
    )
    states: dict[WorkloadId, dict[State, int]] = {}
    for array, state, count in await cursor.fetchall():
        states.setdefault(WorkloadId(array), {})[State(state)] = count
    cursor = await connection.execute(
        "SELECT array_id, count(*) FROM workloads WHERE array_id = ANY(%s) AND awaits_turn GROUP BY array_id",
        (list(arrays),),
    )
    awaiting: dict[str, int] = dict(await cursor.fetchall())
    ended = [array for array, of_array in states.items() if of_array.keys() <= ENDED]
    cursor = await connection.execute(
        "SELECT array_id, max(ended_s) FROM workloads WHERE array_id = ANY(%s) GROUP BY array_id", (ended,)
    )
    ended_s: dict[str, float] = dict(await cursor.fetchall())
    failed = await _first_failed(connection, [array for array, of_array in states.items() if State.FAILED in of_array])
    return {
        array: ArrayCounts(of_array, awaiting.get(array, 0), failed.get(array, ()), ended_s.get(array))
        for array, of_array in states.items()
    }


@dataclass(frozen=True, slots=True)
class WholeArray:
    """An array among workloads: what it is called, whose it is, and how it is as a whole."""

    name: str
    tenant: TenantId
    submitted_s: float
    state: State
    """An end when all elements have ended."""


async def whole_arrays(connection: AnyConnection, names: Collection[str]) -> dict[str, WholeArray]:
    """Those of the names that are arrays."""
    if not names:
        return {}
    # Elements differ in none of these.
    cursor = await connection.execute(
        """SELECT u.name, one.name, one.tenant, one.submitted_s
             FROM unnest(%s::text[]) AS u (name)
             JOIN LATERAL (SELECT w.name, w.tenant, w.submitted_s FROM workloads w WHERE w.array_id = u.name LIMIT 1)
                  AS one ON true""",
        (sorted(names),),
    )
    rows = await cursor.fetchall()
    counts = await counts_of(connection, [WorkloadId(row[0]) for row in rows])
    return {row[0]: WholeArray(row[1], TenantId(row[2]), row[3], counts[WorkloadId(row[0])].state) for row in rows}


async def ended_arrays(connection: AnyConnection, names: Collection[str]) -> dict[str, State]:
    """Those of the names that are arrays of which all elements have ended, and how they have as a whole."""
    if not names:
        return {}
    cursor = await connection.execute(
        """SELECT u.name FROM unnest(%s::text[]) AS u (name)
            WHERE NOT EXISTS (SELECT FROM workloads w WHERE w.array_id = u.name AND w.state = ANY(%s))""",
        (sorted(names), sorted(LIVE | QUEUED)),
    )
    counts = await counts_of(connection, [WorkloadId(row[0]) for row in await cursor.fetchall()])
    return {str(array): one.state for array, one in counts.items()}


async def _first_failed(connection: AnyConnection, arrays: Sequence[WorkloadId]) -> dict[WorkloadId, tuple[int, ...]]:
    if not arrays:
        return {}
    cursor = await connection.execute(
        """SELECT u.name, failed.workload FROM unnest(%s::text[]) AS u (name)
             JOIN LATERAL (SELECT w.workload FROM workloads w WHERE w.array_id = u.name AND w.state = %s
                            ORDER BY w.workload LIMIT %s) AS failed ON true
            ORDER BY u.name, failed.workload""",
        (list(arrays), State.FAILED.value, _SHOWN_FAILED),
    )
    found: dict[WorkloadId, list[int]] = {}
    for array, workload in await cursor.fetchall():
        element = element_of(WorkloadId(workload))
        if element is not None:
            found.setdefault(WorkloadId(array), []).append(element[1])
    return {array: tuple(indices) for array, indices in found.items()}


async def first_element(connection: AnyConnection, array: WorkloadId) -> WorkloadId | None:
    """None: there is no such array."""
    return (await first_elements(connection, [array])).get(array)


async def first_elements(connection: AnyConnection, arrays: Sequence[WorkloadId]) -> dict[WorkloadId, WorkloadId]:
    """Of those of the names that are arrays."""
    cursor = await connection.execute(
        """SELECT array_id, min(workload) FROM workloads WHERE array_id = ANY(%s) AND NOT beside_first
            GROUP BY array_id""",
        (list(arrays),),
    )
    return {WorkloadId(array): WorkloadId(first) for array, first in await cursor.fetchall()}


async def unended_elements(
    connection: AnyConnection, names: Sequence[WorkloadId]
) -> dict[WorkloadId, list[WorkloadId]]:
    """By array, for those of the names that are arrays: their elements that have not ended."""
    cursor = await connection.execute(
        """SELECT DISTINCT array_id FROM workloads WHERE array_id = ANY(%s)""",
        (list(names),),
    )
    elements: dict[WorkloadId, list[WorkloadId]] = {WorkloadId(row[0]): [] for row in await cursor.fetchall()}
    cursor = await connection.execute(
        "SELECT array_id, workload FROM workloads WHERE array_id = ANY(%s) AND state <> ALL(%s) ORDER BY workload",
        (list(elements), sorted(ENDED)),
    )
    for array, workload in await cursor.fetchall():
        elements[WorkloadId(array)].append(WorkloadId(workload))
    return elements
