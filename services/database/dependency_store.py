"""Which workloads wait for which others: written with a submission, settled as others end (global_scheduler.dependencies).

A workload that waits is held, and has no entry in the queue. What is settled stays, to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from domain.dependencies import Dependency, is_met, never_met
from domain.events import Event, EventKind
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import Happening, State, state_after
from domain.workload import WorkloadSpecification
from domain.workload_array import element_of
from services.database import array_store, event_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.state_guards import StateChangeRefused, before

HELD_BY_DEPENDENCIES = "its dependencies"
"""Who holds a workload that waits for others, and that nobody else holds."""

GREATEST_GRAPH = 1_000
"""Workloads of a graph that are told at once."""


class DependencyRefused(Exception):
    """A new workload would wait for what there is not, or for what can never be. `position`: in its list."""

    def __init__(self, workload: WorkloadId, position: int, sentence: str, *, never: bool = False) -> None:
        self.workload = workload
        self.position = position
        self.sentence = sentence
        self.never = never
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class AwaitedWorkload:
    """What a workload waits for, as it is at present."""

    dependency: Dependency
    name: str
    state: State


@dataclass(frozen=True, slots=True)
class Waiting:
    """Some workloads that wait, all for which they do, and what of that has ended."""

    waits: Mapping[WorkloadId, Sequence[Dependency]]
    states: Mapping[str, State]


# ---------------------------------------------------------------- submission


async def open_dependencies(
    connection: AnyConnection, new: Sequence[tuple[WorkloadId, WorkloadSpecification]]
) -> dict[WorkloadId, tuple[Dependency, ...]]:
    """What each of these new ones has to wait for yet; those that need not wait are left out.

    Raises DependencyRefused where another one does not exist, is of another tenant, or has ended otherwise.
    """
    together = {workload: (specification.tenant, State.PENDING) for workload, specification in new}
    named = {one.workload for _, specification in new for one in specification.after} - together.keys()
    if not any(specification.after for _, specification in new):
        return {}
    cursor = await connection.execute(
        "SELECT workload, tenant, state FROM workloads WHERE workload = ANY(%s)", (sorted(named),)
    )
    known: dict[str, tuple[TenantId, State]] = {
        **{str(workload): found for workload, found in together.items()},
        **{str(row[0]): (TenantId(row[1]), State(row[2])) for row in await cursor.fetchall()},
    }
    arrays = await array_store.whole_arrays(connection, named - known.keys())
    known |= {array: (one.tenant, one.state) for array, one in arrays.items()}
    waits: dict[WorkloadId, tuple[Dependency, ...]] = {}
    for workload, specification in new:
        left = []
        for position, dependency in enumerate(specification.after):
            found = known.get(dependency.workload)
            if found is None or found[0] != specification.tenant:
                raise DependencyRefused(
                    workload,
                    position,
                    f"is {dependency}, but tenant {specification.tenant} has no workload {dependency.workload},"
                    " and none of that name is submitted with it",
                )
            met = is_met(dependency, found[1])
            if met is False:
                raise DependencyRefused(workload, position, never_met(dependency, found[1]), never=True)
            if met is None:
                left.append(dependency)
        if left:
            waits[workload] = tuple(left)
    return waits


async def insert(
    connection: AnyConnection,
    new: Sequence[tuple[WorkloadId, WorkloadSpecification]],
    waits: Mapping[WorkloadId, Sequence[Dependency]],
) -> None:
    """All that these new ones said, and what of it is not so yet."""
    rows = [
        (workload, one, position, one not in waits.get(workload, ()))
        for workload, specification in new
        for position, one in enumerate(dict.fromkeys(specification.after))
    ]
    if not rows:
        return
    await connection.execute(
        """INSERT INTO workload_dependencies (workload, needs, condition, position, settled)
           SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::smallint[], %s::bool[])""",
        (
            [workload for workload, _, _, _ in rows],
            [one.workload for _, one, _, _ in rows],
            [one.condition for _, one, _, _ in rows],
            [position for _, _, position, _ in rows],
            [settled for _, _, _, settled in rows],
        ),
    )


def renamed(specification: WorkloadSpecification, names: Mapping[str, WorkloadId]) -> WorkloadSpecification:
    """The same, waiting for those that these ids have become."""
    after = tuple(replace(one, workload=names.get(one.workload, one.workload)) for one in specification.after)
    return replace(specification, after=after)


# ---------------------------------------------------------------- when others end


_DIRECT = """
    SELECT DISTINCT d.workload FROM workload_dependencies d JOIN workloads n ON n.workload = d.needs
     WHERE NOT d.settled AND n.ended_s IS NOT NULL"""

_ON_ARRAYS = """
    SELECT d.workload, d.needs FROM workload_dependencies d
     WHERE NOT d.settled AND NOT EXISTS (SELECT FROM workloads n WHERE n.workload = d.needs)"""

_BELOW = """
    WITH RECURSIVE below AS (
        SELECT unnest(%s::text[]) COLLATE "C" AS workload
        UNION
        SELECT d.workload FROM below b JOIN workload_dependencies d ON d.needs = b.workload WHERE NOT d.settled)
    SELECT workload FROM below"""


async def affected(connection: AnyConnection, names: Sequence[str] | None) -> list[str]:
    """Workloads that wait for anything that has ended: of these (either they, or what they wait for); None: all."""
    if names is None:
        cursor = await connection.execute(_DIRECT)
    else:
        cursor = await connection.execute(
            f"{_DIRECT} AND d.needs = ANY(%(names)s) UNION {_DIRECT} AND d.workload = ANY(%(names)s)",
            {"names": list(names)},
        )
    return sorted({*[row[0] for row in await cursor.fetchall()], *await _affected_by_arrays(connection, names)})


async def _affected_by_arrays(connection: AnyConnection, names: Sequence[str] | None) -> list[str]:
    """The same, of those that wait for an array: it ends with the last of its elements."""
    if names is None:
        cursor = await connection.execute(_ON_ARRAYS)
    else:
        elements = map(element_of, map(WorkloadId, names))
        arrays = sorted({element[0] for element in elements if element is not None})
        cursor = await connection.execute(
            f"{_ON_ARRAYS} AND d.needs = ANY(%(arrays)s) UNION {_ON_ARRAYS} AND d.workload = ANY(%(names)s)",
            {"arrays": arrays, "names": list(names)},
        )
    waits = [(row[0], row[1]) for row in await cursor.fetchall()]
    ended = await array_store.ended_arrays(connection, {needs for _, needs in waits})
    return [workload for workload, needs in waits if needs in ended]


async def below(connection: AnyConnection, workloads: Sequence[str]) -> list[str]:
    """These, and all that wait for them however far."""
    cursor = await connection.execute(_BELOW, (list(workloads),))
    return [row[0] for row in await cursor.fetchall()]


async def load_waiting(connection: AnyConnection, workloads: Sequence[str]) -> Waiting:
    """For what these wait; those that wait for nothing are left out."""
    cursor = await connection.execute(
        """SELECT d.workload, d.condition, d.needs, n.state, n.ended_s IS NOT NULL
             FROM workload_dependencies d LEFT JOIN workloads n ON n.workload = d.needs
            WHERE d.workload = ANY(%s) AND NOT d.settled ORDER BY d.workload, d.position""",
        (list(workloads),),
    )
    arrays: set[str] = set()
    waits: dict[WorkloadId, list[Dependency]] = {}
    states: dict[str, State] = {}
    for workload, condition, needs, state, ended in await cursor.fetchall():
        waits.setdefault(WorkloadId(workload), []).append(Dependency(condition, needs))
        if state is None:
            arrays.add(needs)
        elif ended:
            states[needs] = State(state)
    return Waiting(waits, states | await array_store.ended_arrays(connection, arrays))


async def mark_met(connection: AnyConnection, met: Sequence[tuple[WorkloadId, Dependency]]) -> None:
    """These are so."""
    await connection.execute(
        """UPDATE workload_dependencies d SET settled = true
             FROM unnest(%s::text[], %s::text[], %s::text[]) AS u (workload, needs, condition)
            WHERE d.workload = u.workload AND d.needs = u.needs AND d.condition = u.condition""",
        (
            [workload for workload, _ in met],
            [one.workload for _, one in met],
            [one.condition for _, one in met],
        ),
    )


async def stop_waiting(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> None:
    """They wait for no other any more, whatever has become of those."""
    await connection.execute(
        "UPDATE workload_dependencies SET settled = true WHERE workload = ANY(%s) AND NOT settled", (list(workloads),)
    )


async def end_cancelled(
    connection: AnyConnection, workloads: Sequence[tuple[WorkloadId, TenantId, str]], now: float
) -> None:
    """Workloads that wait end as cancelled, each for its reason; they are locked. Raises StateChangeRefused."""
    names = [workload for workload, _, _ in workloads]
    await stop_waiting(connection, names)
    cursor = await connection.execute(
        """UPDATE workloads w SET state = %s, ended_s = %s, reason = u.reason, cancel_requested = true, held_by = NULL,
                  requeue_by = NULL, awaits_turn = false
             FROM unnest(%s::text[], %s::text[]) AS u (workload, reason)
            WHERE w.workload = u.workload AND w.state = ANY(%s)""",
        (
            state_after(Happening.CANCELLED).value,
            now,
            names,
            [reason for _, _, reason in workloads],
            before(Happening.CANCELLED),
        ),
    )
    if cursor.rowcount != len(names):
        raise StateChangeRefused(Happening.CANCELLED, len(names), cursor.rowcount)
    events = [
        Event(now, EventKind.CANCELLED, workload, tenant=tenant, details={"reason": reason})
        for workload, tenant, reason in workloads
    ]
    await event_store.append(connection, events)
    wake_after_commit(connection, SCAN_CHANNEL)


# ---------------------------------------------------------------- looks


async def awaited(
    connection: AnyConnection, workloads: Sequence[WorkloadId]
) -> dict[WorkloadId, tuple[AwaitedWorkload, ...]]:
    """For what these wait, as they said it; those that wait for nothing are left out."""
    if not workloads:
        return {}
    cursor = await connection.execute(
        """SELECT d.workload, d.condition, d.needs, n.name, n.state
             FROM workload_dependencies d LEFT JOIN workloads n ON n.workload = d.needs
            WHERE d.workload = ANY(%s) AND NOT d.settled ORDER BY d.workload, d.position""",
        (list(workloads),),
    )
    rows = await cursor.fetchall()
    arrays = await array_store.whole_arrays(connection, {row[2] for row in rows if row[4] is None})
    found: dict[WorkloadId, list[AwaitedWorkload]] = {}
    for workload, condition, needs, name, state in rows:
        array = arrays.get(needs)
        dependency = Dependency(condition, needs)
        one = (
            AwaitedWorkload(dependency, name, State(state))
            if array is None
            else AwaitedWorkload(dependency, array.name, array.state)
        )
        found.setdefault(WorkloadId(workload), []).append(one)
    return {workload: tuple(each) for workload, each in found.items()}


@dataclass(frozen=True, slots=True)
class GraphWorkload:
    """A workload among those that wait, or waited, for each other."""

    workload: WorkloadId
    name: str
    state: State
    after: tuple[Dependency, ...]


_NEIGHBOURS = """
    SELECT d.needs FROM workload_dependencies d WHERE d.workload = ANY(%(names)s)
    UNION SELECT d.workload FROM workload_dependencies d WHERE d.needs = ANY(%(names)s) LIMIT %(most)s"""


async def graph_of(connection: AnyConnection, workload: str) -> tuple[tuple[GraphWorkload, ...], bool]:
    """All that is connected with this workload, by the time of submission, and whether that is all; empty: there is none.

    Step by step, the nearest first, until there are too many.
    """
    found, edge = {workload}, [workload]
    while edge and len(found) <= GREATEST_GRAPH:
        cursor = await connection.execute(_NEIGHBOURS, {"names": edge, "most": 2 * GREATEST_GRAPH})
        edge = sorted({row[0] for row in await cursor.fetchall()} - found)[: GREATEST_GRAPH + 1 - len(found)]
        found.update(edge)
    told = [workload, *sorted(found - {workload})][:GREATEST_GRAPH]
    after: dict[str, list[Dependency]] = {}
    cursor = await connection.execute(
        "SELECT workload, condition, needs FROM workload_dependencies WHERE workload = ANY(%s) ORDER BY workload, position",
        (told,),
    )
    for name, condition, needs in await cursor.fetchall():
        after.setdefault(name, []).append(Dependency(condition, needs))
    cursor = await connection.execute(
        """SELECT w.submitted_s, w.workload, w.name, coalesce(q.state, w.state)
             FROM workloads w LEFT JOIN queue_entries q USING (workload) WHERE w.workload = ANY(%s)""",
        (told,),
    )
    rows = [(row[0], row[1], row[2], State(row[3])) for row in await cursor.fetchall()]
    arrays = await array_store.whole_arrays(connection, {*told} - {row[1] for row in rows})
    rows += [(one.submitted_s, array, one.name, one.state) for array, one in arrays.items()]
    workloads = [
        GraphWorkload(WorkloadId(one), name, state, tuple(after.get(one, ()))) for _, one, name, state in sorted(rows)
    ]
    return tuple(workloads), len(found) <= GREATEST_GRAPH
