"""A second placement mechanism: the first machines with free capacity, from the first on; it evicts nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from cluster_manager.capacity.charging import ENTRY_COLUMNS, GPU_BITS, MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, NO_WORK, RESOURCES, WORKS_AS
from cluster_manager.capacity.task_kinds import TIER, UNFIT
from cluster_manager.mechanism import Place, Query, Shortfall
from cluster_manager.mechanisms import MECHANISMS, MakeMechanism
from domain.placement import AttemptKey


class FirstFit:
    """It has no hard affinity. Guaranteed jobs get the highest free GPUs, opportunistic ones the lowest: so both can be told apart."""

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        if query.affinity.hard:
            return Shortfall(0)
        tasks: list[tuple[int, int, int, int]] = []
        entries: list[list[int]] = []
        arrays, table = view.arrays, query.kind.needs.table
        for machine in range(len(arrays.state)):
            shape = int(arrays.state[machine, WORKS_AS])
            if shape == NO_WORK or table[shape, TIER] == UNFIT:
                continue
            need = table[shape, :RESOURCES]
            free = arrays.state[machine, :RESOURCES].copy()
            gpus = [gpu for gpu in range(62) if int(arrays.free_gpus[machine]) >> gpu & 1]
            entry = [0] * ENTRY_COLUMNS
            entry[MACHINE] = machine
            while len(tasks) < query.tasks and all(free[need > 0] >= need[need > 0]):
                chosen = gpus[len(gpus) - need[GPUS] :] if query.guaranteed else gpus[: need[GPUS]]
                gpus = [gpu for gpu in gpus if gpu not in chosen]
                bits = sum(1 << gpu for gpu in chosen)
                tasks.append((machine, int(need[MILLICPUS]), int(need[MEBIBYTES]), bits))
                entry[GPU_BITS] |= bits
                for resource in range(RESOURCES):
                    entry[resource] += int(need[resource])
                free -= need
            if entry[:RESOURCES] != [0] * RESOURCES or (tasks and tasks[-1][0] == machine):
                entries.append(entry)
            if len(tasks) == query.tasks:
                return Place(np.array(tasks, np.int64), np.array(entries, np.int64), (), 0, 0.0)
        return Shortfall(len(tasks))

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        return query.kind.number, query.tasks, query.guaranteed, query.affinity.hard

    def refusal_scope(self, query: Query, view: ClusterCapacity) -> Hashable:
        return query.affinity.hard

    def required_victims(self, query: Query, victims: Sequence[AttemptKey], view: ClusterCapacity) -> tuple[bool, ...]:
        return tuple(False for _ in victims)

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        """It keeps no count: any release may have been enough."""
        return query.tasks


WITH_FIRST_FIT: Mapping[str, MakeMechanism] = {**MECHANISMS, "first_fit": lambda _view: FirstFit()}
