"""What a request about several workloads is about: workloads, and arrays that stand for their elements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from domain.identifiers import WorkloadId
from domain.life_cycle import LIVE, State
from services.database import array_store
from services.database.connection import AnyConnection
from services.wire.workloads import state_to_proto
from topmast.v1 import global_scheduler_pb2 as messages


@dataclass(frozen=True, slots=True)
class AskedFor:
    """The names of a request, and what they stand for."""

    names: Sequence[WorkloadId]
    """In the order of the request."""
    arrays: Mapping[WorkloadId, Sequence[WorkloadId]]
    """Of those that are arrays: their elements that have not ended, by index."""
    elements: frozenset[WorkloadId]
    """Of all these arrays; but for those that are named as well."""

    @property
    def single(self) -> list[WorkloadId]:
        """The names that are no arrays."""
        return [name for name in self.names if name not in self.arrays]

    @property
    def everything(self) -> list[WorkloadId]:
        """Each workload once."""
        return [*self.single, *sorted(self.elements)]

    def elements_of(self, array: WorkloadId) -> list[WorkloadId]:
        """Those that the array stands for here, by index."""
        return [element for element in self.arrays[array] if element in self.elements]

    def states(self, states: Mapping[WorkloadId, State], done: Collection[WorkloadId]) -> messages.WorkloadStates:
        """The answer: of an array also to how many of its elements it was done."""
        happened = frozenset(done)
        told = []
        for name in self.names:
            if name not in self.arrays:
                told.append(messages.WorkloadNow(workload=name, state=state_to_proto(states[name])))
                continue
            touched = [element for element in self.elements_of(name) if element in happened]
            live = [states[element] for element in touched if element in states and states[element] in LIVE]
            state = states.get(name) or (live[0] if live else State.PENDING)
            told.append(messages.WorkloadNow(workload=name, state=state_to_proto(state), elements=len(touched)))
        return messages.WorkloadStates(workloads=told)


async def asked_for(connection: AnyConnection, names: Sequence[WorkloadId]) -> AskedFor:
    """Names that are not known at all stand for themselves."""
    arrays = await array_store.unended_elements(connection, names)
    named = frozenset(names)
    elements = frozenset(one for of_array in arrays.values() for one in of_array if one not in named)
    return AskedFor(names, arrays, elements)
