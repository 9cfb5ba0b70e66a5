"""Whether a region with nothing running could host a workload: what it could not, it never will.

Asked at submission, so that a workload that no region could ever host is refused with the reason, and by every
region before it plans (MAST §4.3: a region without the necessary hardware abandons the auction). The answer depends on
the shapes of the jobs only and is remembered by them: a submission costs a lookup.

Exact: a single job is judged by counting what each kind of machine holds, for its tasks are alike and never stand in
each other's way; several jobs by `gang_search`. Where that gives up the workload has the benefit of the doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from cluster_manager.capacity.machine_shapes import Amounts, MachineShape
from domain.affinity import NO_JOB_AFFINITY, JobAffinity
from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason, distance
from domain.fleet import DEFAULT_MECHANISM, Region
from domain.identifiers import ClusterId, RegionId, TenantId
from domain.resources import TaskResources, request_mebibytes, request_millicpus
from domain.workload import JobSpecification, WorkloadSpecification
from regional_scheduler.empty_cells import EmptyCells, field_in_the_way
from regional_scheduler.empty_clusters import EmptyCluster
from regional_scheduler.gang_search import GangDemand, SearchGivenUp, fit_together
from regional_scheduler.refusal import Refusal
from regional_scheduler.refusal_sentences import (
    sentence_about_hardware,
    sentence_about_jobs_together,
    sentence_about_topology,
)

SHAPES_REMEMBERED = 65_536
"""Distinct shapes of workloads whose verdict is remembered; when there are more, all are forgotten."""

WorkloadShape: TypeAlias = tuple[tuple[int, TaskResources, bool, JobAffinity | None, TenantId | None], ...]
"""Tasks and resources of each job, whether it may be split, how close together they must be, and whose the pinned cells are
that it names: all that hosting depends on."""


class EmptyRegion:
    """A region as if nothing ran in it and every machine were up: what its hardware is good for."""

    __slots__ = ("_cells", "_shapes", "_takes_parts", "_together", "_verdicts", "clusters", "region")

    def __init__(self, region: Region) -> None:
        self.region = region.region
        self.clusters = tuple(EmptyCluster.of(cluster) for cluster in region.clusters)
        self._cells = [EmptyCells(cluster) for cluster in region.clusters]
        packing = [cluster for cluster in region.clusters if cluster.mechanism == DEFAULT_MECHANISM]
        self._takes_parts = tuple([cluster.mechanism == DEFAULT_MECHANISM for cluster in region.clusters])
        self._together = _as_one([EmptyCluster.of(cluster) for cluster in packing])
        self._shapes = tuple(dict.fromkeys(shape for cluster in self.clusters for shape, _ in cluster.machines))
        self._verdicts: dict[WorkloadShape, Refusal | None] = {}

    def refusal(self, specification: WorkloadSpecification) -> Refusal | None:
        """Why the region could never host the workload; None when it could.

        Of several reasons the first job's comes first. Looks at the base tasks and the machines only, not at data,
        allowed regions, or what is running.
        """
        shape = tuple(
            (job.tasks, job.resources, job.across_clusters, None, None)
            if job.affinity is NO_JOB_AFFINITY
            else (
                job.tasks,
                job.resources,
                job.across_clusters,
                job.affinity,
                specification.tenant if job.affinity.pinned_cell else None,
            )
            for job in specification.jobs
        )
        try:
            return self._verdicts[shape]
        except KeyError:
            if len(self._verdicts) >= SHAPES_REMEMBERED:
                self._verdicts.clear()
            verdict = self._judge(specification)
            self._verdicts[shape] = verdict
            return verdict

    def _judge(self, specification: WorkloadSpecification) -> Refusal | None:
        for index, job in enumerate(specification.jobs):
            if (refusal := self._judge_job(job, specification.tenant, f"jobs[{index}]")) is not None:
                return refusal
        return self._judge_together(specification) if len(specification.jobs) > 1 else None

    def _judge_job(self, job: JobSpecification, tenant: TenantId, field: str) -> Refusal | None:
        """Whether the job alone fits into one cluster, or, if it may be split, into all that pack."""
        widest, cluster = 0, ClusterId("")
        split = job.across_clusters and not job.affinity.is_hard
        if split:
            widest = self._together.room_for(job.resources, job.tasks)
            if widest >= job.tasks:
                return None
        for candidate, cells in zip(self.clusters, self._cells, strict=True):
            room = candidate.room_for(job.resources, job.tasks)
            if room >= job.tasks and cells.suffice(job, tenant):
                return None
            if room > widest:
                widest, cluster = room, candidate.cluster
        if widest == 0:
            return self._judge_task(job, f"{field}.resources")
        if widest >= job.tasks:
            return self._judge_affinity(job, tenant, field)
        return self._refused(
            job,
            Reason.TOO_MANY_TASKS,
            f"{field}.tasks",
            cluster=cluster or None,
            numbers=(Numbers(Quantity.TASKS, job.tasks, widest),),
        )

    def _judge_affinity(self, job: JobSpecification, tenant: TenantId, field: str) -> Refusal:
        """Why no cluster holds the tasks as close together as they must be, or in the cells that the job names."""
        clusters = zip(self.clusters, self._cells, strict=True)
        large_enough = [cells for one, cells in clusters if one.room_for(job.resources, job.tasks) >= job.tasks]
        found = f"{field}.{field_in_the_way(job, tenant, large_enough)}"
        diagnosis = Diagnosis(Reason.TOPOLOGY, self.region, field=found)
        there = [cells.words(job, tenant) for cells in large_enough]
        return Refusal(diagnosis, sentence_about_topology(diagnosis, job, there))

    def _judge_task(self, job: JobSpecification, field: str) -> Refusal:
        """Why no machine of the region holds a single task of the job."""
        resources = job.resources
        suitable = [shape for shape in self._shapes if shape.suits(resources)]
        if not suitable and resources.gpus:
            return self._refused(job, Reason.NO_SUCH_GPU_MODEL, f"{field}.gpu_model")
        most_gpus = max((shape.gpus for shape in suitable), default=0)
        if most_gpus < resources.gpus:
            return self._task_too_large(job, field, Numbers(Quantity.GPUS, resources.gpus, most_gpus))
        suitable = [shape for shape in suitable if shape.gpus >= resources.gpus]
        millicpus = request_millicpus(resources.cpus or 0.0)
        most_millicpus = max((shape.capacity[1] for shape in suitable), default=0)
        if most_millicpus < millicpus:
            return self._task_too_large(job, field, Numbers(Quantity.CPUS, millicpus / 1000, most_millicpus / 1000))
        suitable = [shape for shape in suitable if shape.capacity[1] >= millicpus]
        mebibytes = request_mebibytes(resources.memory_gib or 0.0)
        most_mebibytes = max((shape.capacity[2] for shape in suitable), default=0)
        return self._task_too_large(job, field, Numbers(Quantity.MEMORY_GIB, mebibytes / 1024, most_mebibytes / 1024))

    def _task_too_large(self, job: JobSpecification, field: str, short: Numbers) -> Refusal:
        numbers = (short,) if short.asked else ()
        return self._refused(job, Reason.TASK_TOO_LARGE, f"{field}.{short.quantity.value}", numbers=numbers)

    def _refused(
        self,
        job: JobSpecification,
        reason: Reason,
        field: str,
        *,
        cluster: ClusterId | None = None,
        numbers: tuple[Numbers, ...] = (),
    ) -> Refusal:
        """The region could never host the job. The job's name is left out: jobs of other names share the verdict."""
        diagnosis = Diagnosis(reason, self.region, cluster, field=field, numbers=numbers)
        models = sorted({shape.gpu_model for shape in self._shapes if shape.gpus})
        return Refusal(diagnosis, sentence_about_hardware(diagnosis, job, models))

    def _judge_together(self, specification: WorkloadSpecification) -> Refusal | None:
        """Whether the jobs, each of which fits alone, also fit all at once. Where one may be split it is first asked whether they
        would if all clusters were one, which is soon answered."""
        demands = [
            GangDemand(job.tasks, job.resources, job.across_clusters and not job.affinity.is_hard)
            for job in specification.jobs
        ]
        split = any(demand.split for demand in demands)
        try:
            as_one = not split or fit_together((_as_one(self.clusters),), demands)
            if as_one and fit_together(self.clusters, demands, self._takes_parts if split else ()):
                return None
        except SearchGivenUp:
            return None
        asked, has = self._asked_and_there(specification)
        diagnosis = Diagnosis(
            Reason.JOBS_DO_NOT_FIT_TOGETHER, self.region, field="jobs", numbers=_compared_amounts(asked, has)
        )
        return Refusal(diagnosis, sentence_about_jobs_together(diagnosis, len(specification.jobs)))

    def _asked_and_there(self, specification: WorkloadSpecification) -> tuple[Amounts, Amounts]:
        """What all tasks ask for at least, and what all machines have."""
        asked, has = [0, 0, 0], [0, 0, 0]
        for job in specification.jobs:
            needs = [shape.need_of(job.resources) for shape in self._shapes if shape.tasks_when_empty(job.resources, 1)]
            for resource, least in enumerate(min(amounts) for amounts in zip(*needs, strict=True)):
                asked[resource] += least * job.tasks
        for cluster in self.clusters:
            for shape, machines in cluster.machines:
                for resource, amount in enumerate(shape.capacity):
                    has[resource] += amount * machines
        return (asked[0], asked[1], asked[2]), (has[0], has[1], has[2])


def _as_one(clusters: Sequence[EmptyCluster]) -> EmptyCluster:
    """The machines of all of them, as if of one cluster without a name."""
    counts: Counter[MachineShape] = Counter()
    for cluster in clusters:
        counts.update(dict(cluster.machines))
    return EmptyCluster(ClusterId(""), tuple(counts.items()))


class HostingRegions:
    """All regions of a fleet, asked at submission whether any of them could ever host a workload."""

    __slots__ = ("_regions",)

    def __init__(self, regions: Iterable[Region]) -> None:
        self._regions = tuple(EmptyRegion(region) for region in regions)

    def able(self, specification: WorkloadSpecification) -> tuple[RegionId, ...]:
        """The regions that the workload allows and whose hardware could host it, wherever its tables are."""
        return tuple(
            region.region
            for region in self._regions
            if (not specification.regions or region.region in specification.regions)
            and region.refusal(specification) is None
        )

    def refusal(self, specification: WorkloadSpecification) -> Refusal | None:
        """Why none of the regions that the workload allows could ever host it: what the closest one says.

        None when one could, and when the workload allows only regions that are not there (whose names are checked
        elsewhere).
        """
        closest: Refusal | None = None
        for region in self._regions:
            if specification.regions and region.region not in specification.regions:
                continue
            refusal = region.refusal(specification)
            if refusal is None:
                return None
            if closest is None or distance(refusal.diagnosis) < distance(closest.diagnosis):
                closest = refusal
        return closest


def hosts(
    regions: Sequence[Region], specification: WorkloadSpecification
) -> list[tuple[RegionId, tuple[ClusterId, ...]]]:
    """The regions that the workload allows and whose hardware could host it, with those of their clusters that could host all of
    it alone."""
    able: list[tuple[RegionId, tuple[ClusterId, ...]]] = []
    for region in regions:
        allowed = not specification.regions or region.region in specification.regions
        if allowed and EmptyRegion(region).refusal(specification) is None:
            alone = [
                cluster.cluster
                for cluster in region.clusters
                if EmptyRegion(Region(region.region, (cluster,))).refusal(specification) is None
            ]
            able.append((region.region, tuple(alone)))
    return able


def _compared_amounts(asked: Amounts, has: Amounts) -> tuple[Numbers, ...]:
    return (
        Numbers(Quantity.GPUS, asked[0], has[0]),
        Numbers(Quantity.CPUS, asked[1] / 1000, has[1] / 1000),
        Numbers(Quantity.MEMORY_GIB, asked[2] / 1024, has[2] / 1024),
    )
