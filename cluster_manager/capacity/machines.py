"""The machines of a region in arrays: the layout that every kernel of this package works on.

Machines stand in the order (cluster, rack, machine) of the fleet file; the machines of a rack and the racks of a
cluster are contiguous. CPUs are in thousandths and memory in MiB, as 64-bit integers. Beside the machines stand
summaries per rack and per cluster, so that most racks are passed over without a look at their machines.

Tables have a row per thing and named columns. They are few and wide because every array costs each kernel call a
fifth of a microsecond, and because what is read together then lies together in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from domain.fleet import Machine, MachineState, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RegionId
from domain.resources import TaskResources, capacity_mebibytes, capacity_millicpus

if TYPE_CHECKING:
    from cluster_manager.capacity.requests import Request

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

# The first columns of most tables: an amount of each resource.
GPUS = 0
MILLICPUS = 1
MEBIBYTES = 2
RESOURCES = 3
RESOURCE_NAMES = ("GPUs", "thousandths of a CPU", "MiB of memory")

# More columns of `shapes`.
MODEL = 3

# More columns of `state`.
WORKS_AS = 3
"""The machine's shape while it takes work, else NO_WORK."""
NO_WORK = -1

# Columns of `fixed`.
SHAPE = 0
RACK = 1
CLUSTER = 2
FIRST_GPU = 3

# Columns of `racks` and `clusters`, which have one row more, for where the last one ends.
FIRST_MACHINE = 0
RACK_SHAPE = 1
FIRST_RACK = 0
MIXED = -1
"""In place of a shape: the machines of the rack have different ones."""

# More columns of `rack_room`: the most that any one machine of the rack has free, per resource; and a count.
GREATEST = 3
UNTOUCHED = 6

# More columns of `cluster_room`: the sum of the capacities, per resource.
IN_SERVICE = 3

# Columns of `holders`.
ALL_HOLDERS = 0
LEAVING_HOLDERS = 1

MOST_GPUS = 62
"""Of one machine: their indices are the bits of a signed 64-bit integer."""
GREATEST_AMOUNT = 1 << 40
"""Of any resource of a machine, so that sums and products stay within 64 bits and quotients in floating point,
rounded down, are exact."""


class FleetArrays(NamedTuple):
    """The first argument of every kernel. Summaries are over machines that take work; what is negative counts as 0."""

    shapes: Integers  # [shape, amounts | MODEL] the distinct kinds of machine; a fleet has few
    state: Integers  # [machine, amounts | WORKS_AS] capacity less all charges; negative while victims have yet to leave
    fixed: Integers  # [machine, SHAPE | RACK | CLUSTER | FIRST_GPU] FIRST_GPU is a row of `holders`
    leaving: Integers  # [machine, amounts] the part of the charges that belongs to attempts being evicted
    free_gpus: Integers  # [machine] bit i: GPU i is held by nobody
    holders: (
        Integers  # [gpu, ALL_HOLDERS | LEAVING_HOLDERS] how many attempts hold it (two while a victim has to leave)
    )
    racks: Integers  # [rack + 1, FIRST_MACHINE | RACK_SHAPE]
    rack_room: Integers  # [rack, amounts | GREATEST, GREATEST + 1, ... | UNTOUCHED] what is free; untouched machines
    clusters: Integers  # [cluster + 1, FIRST_RACK]
    cluster_room: Integers  # [cluster, amounts | IN_SERVICE, IN_SERVICE + 1, ...] what is free; what there is
    shape_count: Integers  # [cluster, shape] machines of each shape, whatever their state
    largest_rack: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of one region, and which name stands for which row."""

    region: RegionId
    machine_ids: tuple[MachineId, ...]
    cluster_ids: tuple[ClusterId, ...]
    cluster_of_machine: tuple[ClusterId, ...]
    number_of_machine: Mapping[MachineId, int]
    number_of_model: Mapping[GpuModel, int]
    arrays: FleetArrays
    requests: dict[tuple[int, TaskResources, bool], Request] = field(default_factory=dict)
    """What was worked out before, by tasks, resources and whether to consolidate (`cluster_manager.capacity.requests`)."""
    tables: dict[Request, Integers] = field(default_factory=dict)
    """Requests as kernels take them (`cluster_manager.packing.placing`)."""
    empty_rooms: dict[Request, tuple[int, ...]] = field(default_factory=dict)
    """How many tasks each cluster holds when empty (`cluster_manager.capacity.needs`)."""

    @staticmethod
    def of(region: Region, states: Mapping[MachineId, MachineState]) -> Layout:
        """An empty region. Machines that `states` does not name are up; raises ValueError on an impossible machine."""
        machines = tuple(region.machines())
        cluster_ids = tuple(cluster.cluster for cluster in region.clusters)
        numbers = {machine.machine: number for number, machine in enumerate(machines)}
        if len(numbers) != len(machines) or len(set(cluster_ids)) != len(cluster_ids):
            raise ValueError(f"region {region.region}: two machines or two clusters have the same name")
        models = {model: number for number, model in enumerate(sorted({m.gpu_model for m in machines}))}
        shape_numbers: dict[tuple[int, int, int, int], int] = {}
        shape_of = np.empty(len(machines), np.int64)
        for number, machine in enumerate(machines):
            shape = (*_capacity(machine), models[machine.gpu_model])
            shape_of[number] = shape_numbers.setdefault(shape, len(shape_numbers))
        shapes = np.array(list(shape_numbers), np.int64).reshape(-1, RESOURCES + 1)
        takes_work = np.array([states.get(m.machine, MachineState.UP).takes_work for m in machines], np.bool_)
        arrays = _empty_arrays(region, shapes, shape_of, np.where(takes_work, shape_of, NO_WORK))
        return Layout(
            region=region.region,
            machine_ids=tuple(machine.machine for machine in machines),
            cluster_ids=cluster_ids,
            cluster_of_machine=tuple(cluster_ids[number] for number in arrays.fixed[:, CLUSTER].tolist()),
            number_of_machine=numbers,
            number_of_model=models,
            arrays=arrays,
        )


def _capacity(machine: Machine) -> tuple[int, int, int]:
    """GPUs, thousandths of a CPU, MiB; raises ValueError where a kernel could not count exactly."""
    capacity = (machine.gpus, capacity_millicpus(machine.cpus), capacity_mebibytes(machine.memory_gib))
    if not 0 <= machine.gpus <= MOST_GPUS or not all(0 <= amount <= GREATEST_AMOUNT for amount in capacity):
        raise ValueError(
            f"machine {machine.machine} has {machine.gpus} GPUs, {machine.cpus} CPUs and {machine.memory_gib} GiB; "
            f"at most {MOST_GPUS} GPUs and {GREATEST_AMOUNT} thousandths of a CPU or MiB can be counted"
        )
    return capacity


def _starts(lengths: list[int]) -> Integers:
    """Where each of consecutive groups begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(np.array(lengths, np.int64)))).astype(np.int64)


def _empty_arrays(region: Region, shapes: Integers, shape_of: Integers, works_as: Integers) -> FleetArrays:
    """Arrays in which nothing is charged, summaries included."""
    rack_sizes = [len(rack.machines) for cluster in region.clusters for rack in cluster.racks]
    first_rack = _starts([len(cluster.racks) for cluster in region.clusters])
    rack_of = np.repeat(np.arange(len(rack_sizes)), rack_sizes)
    cluster_of_rack = np.repeat(np.arange(len(region.clusters)), np.diff(first_rack))
    cluster_of = cluster_of_rack[rack_of]
    capacity = shapes[shape_of, :RESOURCES]
    first_gpu = _starts(capacity[:, GPUS].tolist())
    first_machine = _starts(rack_sizes)
    rack_shape = np.full(len(first_machine), MIXED, np.int64)
    for rack, (first, end) in enumerate(pairwise(first_machine.tolist())):
        if first < end and np.all(shape_of[first:end] == shape_of[first]):
            rack_shape[rack] = shape_of[first]
    shape_count = np.zeros((len(region.clusters), len(shapes)), np.int64)
    np.add.at(shape_count, (cluster_of, shape_of), 1)
    state = np.column_stack((capacity, works_as))
    fixed = np.column_stack((shape_of, rack_of, cluster_of, first_gpu[:-1])).astype(np.int64)
    return FleetArrays(
        shapes=shapes,
        state=state,
        fixed=fixed,
        leaving=np.zeros_like(capacity),
        free_gpus=(np.left_shift(np.int64(1), capacity[:, GPUS]) - 1).astype(np.int64),
        holders=np.zeros((first_gpu[-1], 2), np.int64),
        racks=np.column_stack((first_machine, rack_shape)),
        rack_room=summarise_racks(state, fixed, shapes, len(rack_sizes)),
        clusters=first_rack.reshape(-1, 1),
        cluster_room=summarise_clusters(state, fixed, shapes, len(region.clusters)),
        shape_count=shape_count,
        largest_rack=max(rack_sizes, default=0),
    )


def summarise_racks(state: Integers, fixed: Integers, shapes: Integers, racks: int) -> Integers:
    """The table `rack_room`, computed anew from the machines."""
    works = state[:, WORKS_AS] != NO_WORK
    free = np.where(works[:, None], np.maximum(state[:, :RESOURCES], 0), 0)
    untouched = works & np.all(state[:, :RESOURCES] == shapes[fixed[:, SHAPE], :RESOURCES], axis=1)
    room = np.zeros((racks, UNTOUCHED + 1), np.int64)
    np.add.at(room[:, :RESOURCES], fixed[:, RACK], free)
    np.maximum.at(room[:, GREATEST:UNTOUCHED], fixed[:, RACK], free)
    np.add.at(room[:, UNTOUCHED], fixed[:, RACK], untouched.astype(np.int64))
    return room


def summarise_clusters(state: Integers, fixed: Integers, shapes: Integers, clusters: int) -> Integers:
    """The table `cluster_room`, computed anew from the machines."""
    works = (state[:, WORKS_AS] != NO_WORK)[:, None]
    room = np.zeros((clusters, 2 * RESOURCES), np.int64)
    np.add.at(room[:, :IN_SERVICE], fixed[:, CLUSTER], np.where(works, np.maximum(state[:, :RESOURCES], 0), 0))
    np.add.at(room[:, IN_SERVICE:], fixed[:, CLUSTER], np.where(works, shapes[fixed[:, SHAPE], :RESOURCES], 0))
    return room
