"""Whether a job is on more machines than it needs: the one place that decides it, for the service and for simulations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from domain.fleet import Cluster
from domain.identifiers import GpuModel, MachineId


def most_gpus_of_machines(clusters: Iterable[Cluster]) -> dict[MachineId, int]:
    """For each machine the GPUs of the largest one of its model in its cluster: what decides how few machines a job needs."""
    most: dict[MachineId, int] = {}
    for cluster in clusters:
        largest: dict[GpuModel, int] = {}
        for machine in cluster.machines():
            largest[machine.gpu_model] = max(largest.get(machine.gpu_model, 0), machine.gpus)
        most |= {machine.machine: largest[machine.gpu_model] for machine in cluster.machines()}
    return most


def fewest_machines(tasks: int, most_tasks_per_machine: int) -> int:
    """On how many machines so many tasks fit where each of these may be theirs alone.

    Raises ValueError for a machine that holds none of them.
    """
    if most_tasks_per_machine < 1:
        raise ValueError("no task fits on such a machine")
    return -(-tasks // most_tasks_per_machine)


def is_spread(gpus: int, machines: Sequence[MachineId], most_gpus: Mapping[MachineId, int]) -> bool | None:
    """Whether tasks of so many GPUs, at least one each, are on more machines than they need.

    `machines` has an entry for each task, `most_gpus` is as from `most_gpus_of_machines`. None where not even the
    largest of these machines would hold a task, as when it was changed since.
    """
    largest = max([most_gpus[machine] for machine in machines], default=0)
    if largest < gpus:
        return None
    return len(set(machines)) > fewest_machines(len(machines), largest // gpus)
