"""The machines of one cluster: which name stands for which row of the tables.

Machines stand in the order (rack, machine) of the fleet file; the machines of a rack are contiguous. CPUs are in
thousandths and memory in MiB, as 64-bit integers. Beside the machines stand summaries per rack and of the cluster, so
that most racks are passed over without a look at their machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cluster_manager.capacity.machine_shapes import MachineShapes
from cluster_manager.capacity.tables import (
    GPUS,
    MIXED,
    NO_WORK,
    ClusterArrays,
    Integers,
    summarise_racks,
    summarise_totals,
)
from domain.fleet import Cluster, MachineState
from domain.identifiers import ClusterId, MachineId


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The tables of one cluster, and which name stands for which row."""

    cluster: ClusterId
    machine_ids: tuple[MachineId, ...]
    number_of_machine: Mapping[MachineId, int]
    shape_count: Integers  # [shape] machines of each shape, whatever their state
    arrays: ClusterArrays

    @staticmethod
    def of(
        cluster: Cluster, states: Mapping[MachineId, MachineState], shapes: MachineShapes, totals: Integers
    ) -> ClusterLayout:
        """An empty cluster, which keeps its totals in the row that it is given.

        Machines that `states` does not name are up. Raises ValueError when two machines have the same name.
        """
        machines = tuple(cluster.machines())
        numbers = {machine.machine: number for number, machine in enumerate(machines)}
        if len(numbers) != len(machines):
            raise ValueError(f"cluster {cluster.cluster}: two machines have the same name")
        shape_of = np.array([shapes.number_of(machine) for machine in machines], np.int64)
        takes_work = np.array([states.get(m.machine, MachineState.UP).takes_work for m in machines], np.bool_)
        works_as = np.where(takes_work, shape_of, NO_WORK)
        return ClusterLayout(
            cluster=cluster.cluster,
            machine_ids=tuple(machine.machine for machine in machines),
            number_of_machine=numbers,
            shape_count=np.bincount(shape_of, minlength=len(shapes.shapes)).astype(np.int64),
            arrays=_empty_arrays(cluster, shapes.amounts, shape_of, works_as, totals),
        )


def _starts(lengths: list[int]) -> Integers:
    """Where each of consecutive groups begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(np.array(lengths, np.int64)))).astype(np.int64)


def _empty_arrays(
    cluster: Cluster, shapes: Integers, shape_of: Integers, works_as: Integers, totals: Integers
) -> ClusterArrays:
    """Tables in which nothing is charged, summaries included."""
    rack_sizes = [len(rack.machines) for rack in cluster.racks]
    rack_of = np.repeat(np.arange(len(rack_sizes)), rack_sizes)
    capacity = shapes[shape_of]
    first_gpu = _starts(capacity[:, GPUS].tolist())
    first_machine = _starts(rack_sizes)
    rack_shape = np.full(len(first_machine), MIXED, np.int64)
    for rack, (first, end) in enumerate(pairwise(first_machine.tolist())):
        if first < end and np.all(shape_of[first:end] == shape_of[first]):
            rack_shape[rack] = shape_of[first]
    state = np.column_stack((capacity, works_as))
    fixed = np.column_stack((shape_of, rack_of, first_gpu[:-1])).astype(np.int64)
    totals[:] = summarise_totals(state, fixed, shapes)
    return ClusterArrays(
        shapes=shapes,
        state=state,
        fixed=fixed,
        leaving=np.zeros_like(capacity),
        free_gpus=(np.left_shift(np.int64(1), capacity[:, GPUS]) - 1).astype(np.int64),
        holders=np.zeros((first_gpu[-1], 2), np.int64),
        racks=np.column_stack((first_machine, rack_shape)),
        rack_free=summarise_racks(state, fixed, shapes, len(rack_sizes)),
        totals=totals,
        largest_rack=max(rack_sizes, default=0),
    )
