"""Whether an empty cluster could hold the tasks of a job as close together as they must be, and in the cells that it names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cluster_manager.capacity.machine_shapes import MachineShape
from cluster_manager.cells.gang import FreeGpus, find_places
from cluster_manager.cells.gangs_of_jobs import gang_of
from cluster_manager.cells.hierarchy import Chain, chains_of
from cluster_manager.cells.nodes import Nodes
from cluster_manager.cells.task_limits import TaskLimits
from cluster_manager.mechanism import AffinityLevel
from domain.cells import MACHINE_LEVEL, RACK_LEVEL, virtual_cluster_of_tenant
from domain.fleet import DEFAULT_MECHANISM, Cluster
from domain.identifiers import MachineId, TenantId
from domain.workload import JobSpecification
from regional_scheduler.queries import affinity_of


class EmptyCells:
    """The cells of one cluster as if nothing ran in it and every machine were up.

    A cluster of packing has machines and racks. Of a mechanism from another package nothing is known: the job has the
    benefit of the doubt.
    """

    __slots__ = ("_chains", "_cluster", "_shape_of")

    def __init__(self, cluster: Cluster) -> None:
        """Raises HierarchyProblem."""
        self._cluster = cluster
        self._chains = chains_of(cluster, cluster.cells.hierarchies) if cluster.has_cells else ()
        self._shape_of: dict[MachineId, MachineShape] = {
            machine.machine: MachineShape.of(machine) for machine in cluster.machines()
        }

    def suffice(self, job: JobSpecification, tenant: TenantId) -> bool:
        """Whether they could hold the job, for whose tasks there is enough room in all."""
        if not job.affinity.is_hard:
            return True
        if job.resources.gpus == 0 or self._cluster.mechanism == DEFAULT_MECHANISM:
            return self._machine_or_rack_suffices(job)
        if not self._cluster.has_cells:
            return True
        if job.affinity.pinned_cell and not self._has_pinned(job.affinity.pinned_cell, tenant):
            return False
        return any(self._holds_gang(chain, job) for chain in self._chains)

    def words(self, job: JobSpecification, tenant: TenantId) -> str:
        """What there is: "cluster east-a has gpu, switch, machine", or which pinned cells where the job's is not there."""
        if self._chains and job.affinity.pinned_cell and not self._has_pinned(job.affinity.pinned_cell, tenant):
            own = ", ".join(sorted(self._pinned_names(tenant))) or "none"
            return f"pinned cells of tenant {tenant} in cluster {self._cluster.cluster}: {own}"
        levels = dict.fromkeys(chain.name_of(level) for chain in self._chains for level in range(1, chain.top + 1))
        return f"cluster {self._cluster.cluster} has {', '.join(levels) or f'{MACHINE_LEVEL}, {RACK_LEVEL}'}"

    def _machine_or_rack_suffices(self, job: JobSpecification) -> bool:
        level = affinity_of(job).level
        if level is AffinityLevel.CLUSTER:
            return False
        fit = {
            shape: shape.tasks_when_empty(job.resources, job.tasks) for shape in dict.fromkeys(self._shape_of.values())
        }
        most = 0
        for rack in self._cluster.racks:
            rooms = [fit[self._shape_of[machine.machine]] for machine in rack.machines]
            most = max([most, *rooms]) if level is AffinityLevel.MACHINE else max(most, sum(rooms))
        return most >= job.tasks

    def _has_pinned(self, name: str, tenant: TenantId) -> bool:
        return name in self._pinned_names(tenant)

    def _pinned_names(self, tenant: TenantId) -> list[str]:
        return [
            pinned.name
            for owner in self._cluster.cells.virtual_clusters
            if owner.virtual_cluster == virtual_cluster_of_tenant(tenant)
            for pinned in owner.pinned
        ]

    def _holds_gang(self, chain: Chain, job: JobSpecification) -> bool:
        nodes = Nodes(chain, [chain.top] * chain.counts[chain.top])
        of_shapes = {
            shape: shape.tasks_when_empty(job.resources, job.tasks) for shape in dict.fromkeys(self._shape_of.values())
        }
        tasks = np.array([of_shapes[self._shape_of[machine]] for machine in chain.machines], np.int64)
        bits = [full if fit else 0 for full, fit in zip(nodes.full, tasks.tolist(), strict=True)]
        free = FreeGpus.of(nodes, bits)
        if self._any_gpus_do(chain, job):
            free = TaskLimits(job.resources.gpus, (tasks,)).on_machines(0, free)
        return find_places(gang_of(affinity_of(job), job.tasks, job.resources.gpus), free) is not None

    @staticmethod
    def _any_gpus_do(chain: Chain, job: JobSpecification) -> bool:
        """Whether the tasks may use whichever GPUs of a machine: only then is it certain that leaving some out refuses nobody."""
        within = job.affinity.within
        names = [chain.name_of(level) for level in range(1, chain.machine_level)]
        return not job.affinity.groups and (within is None or within.level not in names)


def field_in_the_way(job: JobSpecification, tenant: TenantId, clusters: list[EmptyCells]) -> str:
    """Which field of a job that none of these could hold asks for too much."""
    without = replace(job, affinity=replace(job.affinity, pinned_cell=""))
    if job.affinity.pinned_cell and any(cells.suffice(without, tenant) for cells in clusters):
        return "pinned_cell"
    without = replace(job, affinity=replace(job.affinity, groups=(), pinned_cell=""))
    if job.affinity.groups and any(cells.suffice(without, tenant) for cells in clusters):
        return "affinity.groups"
    return "affinity.within" if job.affinity.within is not None else "pinned_cell"
