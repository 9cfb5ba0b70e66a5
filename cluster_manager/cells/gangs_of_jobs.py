"""The affinity of a job as a gang of cells: a tree of groups, with the tasks at its leaves."""

from __future__ import annotations

from cluster_manager.cells.requests import AffinityGroup, Tasks
from cluster_manager.mechanism import Affinity, AffinityLevel
from domain.affinity import CellAffinity, TaskGroup
from domain.cells import MACHINE_LEVEL, RACK_LEVEL


def gang_of(affinity: Affinity, tasks: int, gpus: int) -> AffinityGroup:
    """The gang of a job of so many tasks of so many GPUs each; its tasks are numbered as the gang's are."""
    said = affinity.said
    if said is None:
        return AffinityGroup((Tasks(tasks, gpus),), _within(affinity))
    if not said.groups:
        return AffinityGroup((Tasks(tasks, gpus),), said.within)
    return AffinityGroup((), said.within, _groups(said.groups, gpus))


def pinned_cell_of(affinity: Affinity) -> str | None:
    """The name of the pinned cell that the job asks for."""
    return (affinity.said.pinned_cell or None) if affinity.said is not None else None


def _groups(groups: tuple[TaskGroup, ...], gpus: int) -> tuple[AffinityGroup, ...]:
    return tuple(one for group in groups for one in [_group(group, gpus)] * group.count)


def _group(group: TaskGroup, gpus: int) -> AffinityGroup:
    if group.groups:
        return AffinityGroup((), group.within, _groups(group.groups, gpus))
    return AffinityGroup((Tasks(group.tasks, gpus),), group.within)


def _within(affinity: Affinity) -> CellAffinity | None:
    """Every hierarchy has machines, and most have racks."""
    if affinity.level is AffinityLevel.CLUSTER:
        return None
    name = MACHINE_LEVEL if affinity.level is AffinityLevel.MACHINE else RACK_LEVEL
    return CellAffinity(name, affinity.hard)
