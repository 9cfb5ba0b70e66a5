"""Whether a region with nothing running could host a workload: what it could not, it never will.

Asked at submission, so that a workload that no region could ever host is refused with the reason, and by every
region before it plans (MAST §4.3: a region without the necessary hardware abandons the auction). The answer depends on
the shapes of the jobs only and is remembered by them: a submission costs a lookup.

Exact: a single job is judged by counting what each kind of machine holds, for its tasks are alike and never stand in
each other's way; several jobs by `gang_search`. Where that gives up the workload has the benefit of the doubt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from cluster_manager.capacity.machine_shapes import Amounts
from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason, distance
from domain.fleet import Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId
from domain.resources import TaskResources, request_mebibytes, request_millicpus
from domain.workload import JobSpecification, WorkloadSpecification
from regional_scheduler.empty_clusters import EmptyCluster
from regional_scheduler.gang_search import GangDemand, SearchGivenUp, fit_together

SHAPES_REMEMBERED = 65_536
"""Distinct shapes of workloads whose verdict is remembered; when there are more, all are forgotten."""

WorkloadShape: TypeAlias = tuple[tuple[int, TaskResources], ...]
"""Tasks and resources of each job: all that hosting depends on."""


@dataclass(frozen=True, slots=True)
class HostingRefusal:
    """Why the region could never host the workload: the field that asks too much, and a sentence with the numbers."""

    diagnosis: Diagnosis
    sentence: str

    @property
    def field(self) -> str:
        return self.diagnosis.field


class EmptyRegion:
    """A region as if nothing ran in it and every machine were up: what its hardware is good for."""

    __slots__ = ("_shapes", "_verdicts", "clusters", "region")

    def __init__(self, region: Region) -> None:
        self.region = region.region
        self.clusters = tuple(EmptyCluster.of(cluster) for cluster in region.clusters)
        self._shapes = tuple(dict.fromkeys(shape for cluster in self.clusters for shape, _ in cluster.machines))
        self._verdicts: dict[WorkloadShape, HostingRefusal | None] = {}

    def refusal(self, specification: WorkloadSpecification) -> HostingRefusal | None:
        """Why the region could never host the workload; None when it could.

        Of several reasons the first job's comes first. Looks at the base tasks and the machines only, not at data,
        allowed regions, or what is running.
        """
        shape = tuple((job.tasks, job.resources) for job in specification.jobs)
        try:
            return self._verdicts[shape]
        except KeyError:
            if len(self._verdicts) >= SHAPES_REMEMBERED:
                self._verdicts.clear()
            verdict = self._judge(specification)
            self._verdicts[shape] = verdict
            return verdict

    def _judge(self, specification: WorkloadSpecification) -> HostingRefusal | None:
        for index, job in enumerate(specification.jobs):
            if (refusal := self._judge_job(job, f"jobs[{index}]")) is not None:
                return refusal
        return self._judge_together(specification) if len(specification.jobs) > 1 else None

    def _judge_job(self, job: JobSpecification, field: str) -> HostingRefusal | None:
        """Whether the job alone fits into one cluster."""
        widest, cluster = 0, ClusterId("")
        for candidate in self.clusters:
            room = candidate.room_for(job.resources, job.tasks)
            if room >= job.tasks:
                return None
            if room > widest:
                widest, cluster = room, candidate.cluster
        if widest == 0:
            return self._judge_task(job.resources, f"{field}.resources")
        return HostingRefusal(
            Diagnosis(
                Reason.TOO_MANY_TASKS,
                self.region,
                cluster,
                field=f"{field}.tasks",
                numbers=(Numbers(Quantity.TASKS, job.tasks, widest),),
            ),
            f"{job.tasks} tasks of {_shown(job.resources)} are asked for in one cluster; region {self.region} has room"
            f" for at most {widest}, in cluster {cluster}",
        )

    def _judge_task(self, resources: TaskResources, field: str) -> HostingRefusal:
        """Why no machine of the region holds a single such task."""
        suitable = [shape for shape in self._shapes if shape.suits(resources)]
        if not suitable and resources.gpus:
            return self._no_such_model(resources, field)
        most_gpus = max((shape.gpus for shape in suitable), default=0)
        if most_gpus < resources.gpus:
            return self._task_too_large(field, Quantity.GPUS, resources.gpus, most_gpus, "")
        beside = f" beside {resources.gpus} {_model_shown(resources)}" if resources.gpus else ""
        suitable = [shape for shape in suitable if shape.gpus >= resources.gpus]
        millicpus = request_millicpus(resources.cpus or 0.0)
        most_millicpus = max((shape.capacity[1] for shape in suitable), default=0)
        if most_millicpus < millicpus:
            return self._task_too_large(field, Quantity.CPUS, millicpus / 1000, most_millicpus / 1000, beside)
        if resources.cpus is not None:
            beside = f"{beside} and {resources.cpus:g} CPUs" if beside else f" beside {resources.cpus:g} CPUs"
        suitable = [shape for shape in suitable if shape.capacity[1] >= millicpus]
        mebibytes = request_mebibytes(resources.memory_gib or 0.0)
        most_mebibytes = max((shape.capacity[2] for shape in suitable), default=0)
        return self._task_too_large(field, Quantity.MEMORY_GIB, mebibytes / 1024, most_mebibytes / 1024, beside)

    def _no_such_model(self, resources: TaskResources, field: str) -> HostingRefusal:
        models = sorted({shape.gpu_model for shape in self._shapes if shape.gpus})
        has = f"has {', '.join(models)}" if models else "has no GPUs"
        asked = "any model" if resources.gpu_model == ANY_GPU_MODEL else f"model {resources.gpu_model}"
        return HostingRefusal(
            Diagnosis(Reason.NO_SUCH_GPU_MODEL, self.region, field=f"{field}.gpu_model"),
            f"GPUs of {asked} are asked for; region {self.region} {has}",
        )

    def _task_too_large(self, field: str, quantity: Quantity, asked: float, most: float, beside: str) -> HostingRefusal:
        unit = {Quantity.GPUS: "GPUs", Quantity.CPUS: "CPUs"}.get(quantity, "GiB of memory")
        return HostingRefusal(
            Diagnosis(
                Reason.TASK_TOO_LARGE,
                self.region,
                field=f"{field}.{quantity.value}",
                numbers=(Numbers(quantity, asked, most),) if asked else (),
            ),
            f"a task asks for {asked:g} {unit}{beside}; no such machine of region {self.region} has more than {most:g}",
        )

    def _judge_together(self, specification: WorkloadSpecification) -> HostingRefusal | None:
        """Whether the jobs, each of which fits alone, also fit all at once."""
        try:
            if fit_together(self.clusters, [GangDemand(job.tasks, job.resources) for job in specification.jobs]):
                return None
        except SearchGivenUp:
            return None
        asked, has = self._asked_and_there(specification)
        return HostingRefusal(
            Diagnosis(
                Reason.JOBS_DO_NOT_FIT_TOGETHER, self.region, field="jobs", numbers=_compared_amounts(asked, has)
            ),
            f"each of the {len(specification.jobs)} jobs fits into a cluster of region {self.region}, but not all at"
            f" once: together they ask for {_amounts_shown(asked)}, the region has {_amounts_shown(has)}",
        )

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


def could_ever_host(region: EmptyRegion, specification: WorkloadSpecification) -> bool:
    """Whether the region could run the workload if it ran nothing else: see `EmptyRegion.refusal`."""
    return region.refusal(specification) is None


class HostingRegions:
    """All regions of a fleet, asked at submission whether any of them could ever host a workload."""

    __slots__ = ("_regions",)

    def __init__(self, regions: Iterable[Region]) -> None:
        self._regions = tuple(EmptyRegion(region) for region in regions)

    def refusal(self, specification: WorkloadSpecification) -> HostingRefusal | None:
        """Why none of the regions that the workload allows could ever host it: what the closest one says.

        None when one could, and when the workload allows only regions that are not there (whose names are checked
        elsewhere).
        """
        closest: HostingRefusal | None = None
        for region in self._regions:
            if specification.regions and region.region not in specification.regions:
                continue
            refusal = region.refusal(specification)
            if refusal is None:
                return None
            if closest is None or distance(refusal.diagnosis) < distance(closest.diagnosis):
                closest = refusal
        return closest


def _shown(resources: TaskResources) -> str:
    """What a task asks for, in words."""
    parts = [f"{resources.gpus} {_model_shown(resources)}"] if resources.gpus else []
    if resources.cpus is not None:
        parts.append(f"{resources.cpus:g} CPUs")
    if resources.memory_gib is not None:
        parts.append(f"{resources.memory_gib:g} GiB")
    return ", ".join(parts)


def _amounts_shown(amounts: Amounts) -> str:
    gpus, millicpus, mebibytes = amounts
    return f"{gpus} GPUs, {millicpus / 1000:g} CPUs and {mebibytes / 1024:g} GiB"


def _compared_amounts(asked: Amounts, has: Amounts) -> tuple[Numbers, ...]:
    return (
        Numbers(Quantity.GPUS, asked[0], has[0]),
        Numbers(Quantity.CPUS, asked[1] / 1000, has[1] / 1000),
        Numbers(Quantity.MEMORY_GIB, asked[2] / 1024, has[2] / 1024),
    )


def _model_shown(resources: TaskResources) -> str:
    return "GPUs" if resources.gpu_model == ANY_GPU_MODEL else f"{resources.gpu_model} GPUs"
