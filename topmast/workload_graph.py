"""Workloads that wait, or waited, for each other."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2
from topmast.workloads import WorkloadState, state_from_proto


@dataclass(frozen=True, slots=True)
class GraphWorkload:
    """One of them; `after` is what it waits, or waited, for: "ok:ID", "failed:ID", "any:ID"."""

    workload: str
    name: str
    state: WorkloadState
    after: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """The ids of those that it names."""
        return tuple(one.partition(":")[2] for one in self.after)


@dataclass(frozen=True, slots=True)
class WorkloadGraph:
    """All that are connected with one, by the time of their submission; `incomplete`: there are more than are told at once."""

    workloads: tuple[GraphWorkload, ...]
    incomplete: bool = False


def graph_from_proto(message: global_scheduler_pb2.WorkloadGraph) -> WorkloadGraph:
    return WorkloadGraph(
        tuple(
            GraphWorkload(one.workload, one.name, state_from_proto(one.state), tuple(one.after))
            for one in message.workloads
        ),
        message.incomplete,
    )
