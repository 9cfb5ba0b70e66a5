"""How many tasks of a job the CPUs and memory of machines allow, where these are scarcer than the GPUs.

Cells are of GPUs. A search that knew of nothing else would put tasks that ask for more than the share of their GPUs side by side,
on the fullest machine, where they cannot run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import MEBIBYTES, MILLICPUS, SHAPE, Integers
from cluster_manager.capacity.task_kinds import WHEN_EMPTY, TaskKind
from cluster_manager.cells.gang import FreeGpus
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.nodes import Nodes
from domain.identifiers import MachineId


@dataclass(frozen=True, slots=True, eq=False)
class TaskLimits:
    """For tasks of so many GPUs."""

    gpus: int
    """Of one task; 0 for tasks that use none."""
    tasks: tuple[Integers, ...]
    """[chain][machine] the most of them that CPUs and memory allow."""

    @staticmethod
    def when_empty(kind: TaskKind, view: ClusterCapacity, rows: Sequence[Integers]) -> TaskLimits:
        """With nothing on the machines, which stand in these rows of the tables, chain by chain."""
        of_shapes = kind.needs.table[:, WHEN_EMPTY]
        return TaskLimits(kind.gpus, tuple(of_shapes[view.arrays.fixed[of_chain, SHAPE]] for of_chain in rows))

    @staticmethod
    def now(kind: TaskKind, view: ClusterCapacity, rows: Sequence[Integers]) -> TaskLimits:
        """With what is there."""
        arrays, amounts = view.arrays, slice(MILLICPUS, MEBIBYTES + 1)
        tasks: list[Integers] = []
        for of_chain in rows:
            needs = kind.needs.table[arrays.fixed[of_chain, SHAPE], amounts]
            available = np.maximum(arrays.state[of_chain, amounts], 0)
            each = np.where(needs > 0, available // np.maximum(needs, 1), np.iinfo(np.int32).max)
            tasks.append(each.min(axis=1))
        return TaskLimits(kind.gpus, tuple(tasks))

    def on_machines(self, chain: int, free: FreeGpus) -> FreeGpus:
        """Of the free GPUs of machines, as many as the tasks may use."""
        return free.at_most(self._gpus_of(self.tasks[chain]))

    def on_nodes(self, chain: int, free: FreeGpus, taken: Mapping[int, int] = MappingProxyType({})) -> FreeGpus:
        """Of the free GPUs of virtual nodes, as many as the tasks may use whatever machines the nodes are bound to; on those of
        `taken` only so many tasks."""
        tasks = self._tasks_on(free.nodes, chain)
        for node, most in taken.items():
            tasks[node] = min(int(tasks[node]), most)
        return free.at_most(self._gpus_of(tasks))

    def bind(self, chains: Sequence[Chain]) -> bool:
        """Whether the GPUs of some machine would do for more tasks, where any fit."""
        return any(
            bool(((of_chain > 0) & (of_chain < chain.gpus_per_machine // max(self.gpus, 1))).any())
            for chain, of_chain in zip(chains, self.tasks, strict=True)
        )

    def _tasks_on(self, nodes: Nodes, chain: int) -> Integers:
        """Of a part of a machine, the part of what the machine allows, rounded down: several parts may be on one machine."""
        machine = nodes.chain.gpus_per_machine
        most = int(self.tasks[chain].max(initial=0))
        tasks: Integers = np.where(
            most >= machine // max(self.gpus, 1), nodes.sizes // max(self.gpus, 1), most * nodes.sizes // machine
        )
        return tasks

    def _gpus_of(self, tasks: Integers) -> Integers:
        """The most GPUs that are too few for one task more."""
        gpus: Integers = (tasks + 1) * self.gpus - 1
        return gpus


class Fits(NamedTuple):
    """Where tasks of one kind fit on empty machines."""

    chains: tuple[str, ...]
    unfit: tuple[MachineId, ...]
    """The machines of these chains on which they do not."""
    limits: TaskLimits
    scarce: bool
    """Whether the CPUs or the memory of some machine are enough for fewer of them than its GPUs."""
