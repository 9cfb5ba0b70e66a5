"""Equal machines, counted instead of named: what a program decides is how many of a group each cluster gets.

Machines are equal that have as many GPUs in the same rack, or in the same power domain where no request asks about racks.
Of a group a cluster keeps those on which most is running; names come back only when the numbers are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from data_placement.machine_assignment.problem import AssignableMachine, ModelProblem
from domain.identifiers import ClusterId, MachineId, RackId

NO_RACK = RackId("")


class Group(NamedTuple):
    """Machines between which no request can tell a difference."""

    power_domain: str
    rack: RackId
    """NO_RACK: of any rack."""
    gpus: int


Numbers: TypeAlias = Mapping[tuple[ClusterId, Group], int]
"""How many machines of each group each cluster has; those that are missing are none."""


class GroupedMachines:
    """The machines of a problem by cluster and group, in the order in which they would leave: the idlest first."""

    def __init__(self, problem: ModelProblem) -> None:
        by_rack = any(request.needs_racks for request in problem.requests)
        self.present: dict[tuple[ClusterId, Group], list[AssignableMachine]] = {}
        for machine in sorted(problem.machines, key=lambda one: (one.running, one.machine)):
            group = Group(machine.power_domain, machine.rack if by_rack else NO_RACK, machine.gpus)
            self.present.setdefault((machine.cluster, group), []).append(machine)
        self.groups = tuple(sorted({group for _, group in self.present}))
        asking = {request.cluster for request in problem.requests}
        self.clusters = tuple(sorted(asking | {cluster for cluster, _ in self.present}))

    def numbers(self, cluster_of: Mapping[MachineId, ClusterId]) -> dict[tuple[ClusterId, Group], int]:
        """What an assignment of names is in numbers."""
        numbers: dict[tuple[ClusterId, Group], int] = {}
        for (_, group), machines in self.present.items():
            for machine in machines:
                key = (cluster_of[machine.machine], group)
                numbers[key] = numbers.get(key, 0) + 1
        return numbers

    def named(self, numbers: Numbers) -> dict[MachineId, ClusterId]:
        """The cluster of each machine. Of each group as many come as go: raises ValueError otherwise."""
        cluster_of: dict[MachineId, ClusterId] = {}
        for group in self.groups:
            leaving: list[AssignableMachine] = []
            wanting: list[ClusterId] = []
            for cluster in self.clusters:
                machines = self.present.get((cluster, group), [])
                wanted = numbers.get((cluster, group), 0)
                go = max(0, len(machines) - wanted)
                leaving += machines[:go]
                cluster_of |= {machine.machine: cluster for machine in machines[go:]}
                wanting += [cluster] * max(0, wanted - len(machines))
            leaving.sort(key=lambda one: (one.running, one.machine))
            cluster_of |= {machine.machine: to for machine, to in zip(leaving, wanting, strict=True)}
        return cluster_of
