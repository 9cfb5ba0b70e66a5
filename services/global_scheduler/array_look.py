"""Arrays as people see them: one workload that stands for all its elements, with how many are in which state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from domain.identifiers import WorkloadId
from domain.life_cycle import State
from domain.notification import shown_url
from domain.workload_array import parse_array
from services.database import array_store, workload_reader
from services.database.array_store import ArrayCounts
from services.database.connection import AnyConnection
from services.database.workload_reader import StoredWorkload
from services.grpc_errors import PreconditionFailed
from services.wire.workloads import state_to_proto
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True)
class SeenArray:
    """What an array's message says."""

    array: WorkloadId
    first: StoredWorkload
    counts: ArrayCounts


async def load_arrays(connection: AnyConnection, names: Sequence[WorkloadId]) -> dict[WorkloadId, SeenArray]:
    """Those of the names that are arrays."""
    if not names:
        return {}
    firsts = await array_store.first_elements(connection, names)
    stored = await workload_reader.get_all(connection, firsts.values())
    counts = await array_store.counts_of(connection, list(firsts))
    return {array: SeenArray(array, stored[first], counts[array]) for array, first in firsts.items()}


async def refuse_array(connection: AnyConnection, name: WorkloadId) -> None:
    """Raises PreconditionFailed for an array, where only one workload can be meant."""
    if await array_store.first_element(connection, name) is not None:
        sentence = f"{name} is an array: name one element of it, {name}[INDEX]"
        raise PreconditionFailed("WORKLOAD_STATE", name, sentence)


async def counts_of_first_elements(
    connection: AnyConnection, page: Iterable[StoredWorkload]
) -> dict[WorkloadId, ArrayCounts]:
    """Of the arrays for which elements stand in a list."""
    return await array_store.counts_of(connection, [one.array for one in page if one.array is not None])


def array_message(first: StoredWorkload, array: WorkloadId, counts: ArrayCounts) -> workload_pb2.Workload:
    """The first element says what was submitted."""
    message = workload_pb2.Workload(
        workload=array,
        array=array,
        state=state_to_proto(counts.state),
        submitted_s=first.submitted_s,
        ended_s=counts.ended_s or 0.0,
        reason=_in_words(counts),
    )
    message.specification.ParseFromString(first.specification)
    if message.specification.HasField("notify"):
        message.specification.notify.url = shown_url(message.specification.notify.url)
    at_most = parse_array(message.specification.array).at_most
    message.elements.size = sum(counts.states.values())
    message.elements.at_most = at_most or 0
    message.elements.awaiting_turn = counts.awaiting_turn
    message.elements.failed.extend(counts.failed)
    for state in State:
        if counts.states.get(state):
            message.elements.states.add(state=state_to_proto(state), elements=counts.states[state])
    return message


def _in_words(counts: ArrayCounts) -> str:
    """10,000 elements: 50 running, 9,200 pending, 750 completed."""
    said = [
        f"{counts.states[state]:,} {state.value.lower().replace('_', ' ')}"
        for state in (State.RUNNING, *(each for each in State if each is not State.RUNNING))
        if counts.states.get(state)
    ]
    size = sum(counts.states.values())
    return f"{size:,} {'element' if size == 1 else 'elements'}: {', '.join(said)}"
