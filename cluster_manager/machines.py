"""The machines of a region in arrays: the layout that every kernel of this package works on.

Machines stand in the order (cluster, rack, machine) of the fleet file; the machines of a rack and the racks of a
cluster are contiguous. CPUs are in thousandths and memory in MiB, as 64-bit integers. Beside the machines stand
summaries per rack and per cluster, so that most racks are passed over without a look at their machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from domain.fleet import Machine, MachineState, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RegionId
from domain.resources import capacity_mebibytes, capacity_millicpus

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Reals = NDArray[np.float64]

GPUS = 0
MILLICPUS = 1
MEBIBYTES = 2
RESOURCES = 3
RESOURCE_NAMES = ("GPUs", "thousandths of a CPU", "MiB of memory")
MOST_GPUS = 62
"""Of one machine: their indices are the bits of a signed 64-bit integer."""
GREATEST_AMOUNT = 1 << 40
"""Of any resource of a machine, so that sums and products stay within 64 bits and quotients in floating point,
rounded down, are exact."""
MIXED = -1
"""Shape of a rack whose machines have different ones."""


class Shapes(NamedTuple):
    """The distinct kinds of machine. A fleet has few, so what a task needs is worked out once per shape."""

    model: Integers  # [shape] GPU model number
    capacity: Integers  # [shape, resource]


class Machines(NamedTuple):
    """What is known of each machine."""

    shape: Integers  # [machine]
    rack: Integers  # [machine]
    cluster: Integers  # [machine]
    takes_work: Booleans  # [machine] up, neither draining nor down
    free: Integers  # [machine, resource] capacity less all charges; negative while victims have yet to leave
    leaving: Integers  # [machine, resource] the part of the charges that belongs to attempts being evicted
    free_gpus: Integers  # [machine] bit i: GPU i is held by nobody
    first_gpu: Integers  # [machine + 1] where the machine's GPUs begin in the two arrays below
    holders: Integers  # [gpu] how many attempts hold it (two while a victim has yet to leave)
    leaving_holders: Integers  # [gpu] how many of them are being evicted


class Racks(NamedTuple):
    """Summaries over those machines of a rack that take work."""

    first_machine: Integers  # [rack + 1]
    shape: Integers  # [rack] the shape of all its machines, or MIXED
    idle: Integers  # [rack, resource] sum of what is free (negative counts as none)
    greatest: Integers  # [rack, resource] the most that any one machine has free
    untouched: Integers  # [rack] machines that take work and hold nothing


class Clusters(NamedTuple):
    """Summaries over those machines of a cluster that take work."""

    first_rack: Integers  # [cluster + 1]
    first_machine: Integers  # [cluster + 1]
    idle: Integers  # [cluster, resource] sum of what is free (negative counts as none)
    in_service: Integers  # [cluster, resource] sum of the capacities
    shape_count: Integers  # [cluster, shape] machines of each shape


class FleetArrays(NamedTuple):
    """All of the above: the first argument of every kernel."""

    shapes: Shapes
    machines: Machines
    racks: Racks
    clusters: Clusters


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

    @staticmethod
    def of(region: Region, states: Mapping[MachineId, MachineState]) -> Layout:
        """An empty region. Machines that `states` does not name are up; raises ValueError on an impossible machine."""
        machines = tuple(region.machines())
        models = {model: number for number, model in enumerate(sorted({m.gpu_model for m in machines}))}
        shape_numbers: dict[tuple[int, int, int, int], int] = {}
        shape_of = np.empty(len(machines), np.int64)
        for number, machine in enumerate(machines):
            shape = (models[machine.gpu_model], *_capacity(machine))
            shape_of[number] = shape_numbers.setdefault(shape, len(shape_numbers))
        table = np.array(list(shape_numbers), np.int64).reshape(-1, 1 + RESOURCES)
        shapes = Shapes(table[:, 0].copy(), table[:, 1:].copy())
        takes_work = np.array([states.get(m.machine, MachineState.UP) is MachineState.UP for m in machines], np.bool_)
        cluster_ids = tuple(cluster.cluster for cluster in region.clusters)
        numbers = {machine.machine: number for number, machine in enumerate(machines)}
        if len(numbers) != len(machines) or len(set(cluster_ids)) != len(cluster_ids):
            raise ValueError(f"region {region.region}: two machines or two clusters have the same name")
        arrays = _empty_arrays(region, shapes, shape_of, takes_work)
        return Layout(
            region=region.region,
            machine_ids=tuple(machine.machine for machine in machines),
            cluster_ids=cluster_ids,
            cluster_of_machine=tuple(cluster_ids[number] for number in arrays.machines.cluster.tolist()),
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


def _empty_arrays(region: Region, shapes: Shapes, shape_of: Integers, takes_work: Booleans) -> FleetArrays:
    """Arrays in which nothing is charged, summaries included."""
    racks = [rack for cluster in region.clusters for rack in cluster.racks]
    first_machine = _starts([len(rack.machines) for rack in racks])
    first_rack = _starts([len(cluster.racks) for cluster in region.clusters])
    rack_of = np.repeat(np.arange(len(racks)), np.diff(first_machine)).astype(np.int64)
    cluster_of_rack = np.repeat(np.arange(len(region.clusters)), np.diff(first_rack)).astype(np.int64)
    cluster_of = cluster_of_rack[rack_of].astype(np.int64)
    free = shapes.capacity[shape_of]
    gpus = free[:, GPUS]
    first_gpu = _starts(gpus.tolist())
    machines = Machines(
        shape=shape_of,
        rack=rack_of,
        cluster=cluster_of,
        takes_work=takes_work,
        free=free,
        leaving=np.zeros_like(free),
        free_gpus=(np.left_shift(np.int64(1), gpus) - 1).astype(np.int64),
        first_gpu=first_gpu,
        holders=np.zeros(first_gpu[-1], np.int64),
        leaving_holders=np.zeros(first_gpu[-1], np.int64),
    )
    shape_count = np.zeros((len(region.clusters), len(shapes.model)), np.int64)
    np.add.at(shape_count, (cluster_of, shape_of), 1)
    return FleetArrays(
        shapes=shapes,
        machines=machines,
        racks=summarise_racks(machines, shapes, first_machine),
        clusters=summarise_clusters(machines, shapes, first_rack, first_machine[first_rack], shape_count),
    )


def summarise_racks(machines: Machines, shapes: Shapes, first_machine: Integers) -> Racks:
    """The racks' summaries, computed anew from the machines."""
    count = len(first_machine) - 1
    room = np.where(machines.takes_work[:, None], np.maximum(machines.free, 0), 0)
    idle = np.zeros((count, RESOURCES), np.int64)
    greatest = np.zeros((count, RESOURCES), np.int64)
    untouched = np.zeros(count, np.int64)
    np.add.at(idle, machines.rack, room)
    np.maximum.at(greatest, machines.rack, room)
    whole = machines.takes_work & np.all(machines.free == shapes.capacity[machines.shape], axis=1)
    np.add.at(untouched, machines.rack, whole.astype(np.int64))
    shape = np.full(count, MIXED, np.int64)
    for rack in range(count):
        of_rack = machines.shape[first_machine[rack] : first_machine[rack + 1]]
        if len(of_rack) and np.all(of_rack == of_rack[0]):
            shape[rack] = of_rack[0]
    return Racks(first_machine, shape, idle, greatest, untouched)


def summarise_clusters(
    machines: Machines, shapes: Shapes, first_rack: Integers, first_machine: Integers, shape_count: Integers
) -> Clusters:
    """The clusters' summaries, computed anew from the machines."""
    count = len(first_rack) - 1
    idle = np.zeros((count, RESOURCES), np.int64)
    in_service = np.zeros((count, RESOURCES), np.int64)
    np.add.at(idle, machines.cluster, np.where(machines.takes_work[:, None], np.maximum(machines.free, 0), 0))
    np.add.at(in_service, machines.cluster, np.where(machines.takes_work[:, None], shapes.capacity[machines.shape], 0))
    return Clusters(first_rack, first_machine, idle, in_service, shape_count)
