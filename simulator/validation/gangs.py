"""I2: base tasks of an attempt start and stop together; an elastic job stays within its bounds.

An attempt starts with one event and ends with one event, so what is left to check is that every placement has
all base tasks of all jobs, each task once and with what it asked for, and no more tasks than the job may have; and that the
base tasks of a job are in one cluster, unless it allows several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.identifiers import ANY_GPU_MODEL
from domain.resources import request_mebibytes, request_millicpus
from simulator.validation.machines import Claim
from simulator.validation.record_fields import (
    BadField,
    Record,
    flag_field,
    optional_number,
    records_field,
    text_field,
    whole_field,
)
from simulator.validation.report import Findings, Invariant


class JobDemand:
    """A job as it was submitted. CPUs and memory None: the proportional share."""

    __slots__ = (
        "across_clusters",
        "cpus",
        "gpu_model",
        "gpus",
        "greatest_tasks",
        "job",
        "mebibytes",
        "millicpus",
        "tasks",
    )

    def __init__(self, record: Record) -> None:
        """Reads an entry of `jobs` of a submitted event; raises BadField."""
        self.job = text_field(record, "job")
        self.tasks = whole_field(record, "tasks", 1)
        self.greatest_tasks = max(self.tasks, whole_field(record, "max_tasks"))
        self.across_clusters = "across_clusters" in record and flag_field(record, "across_clusters")
        self.gpus = whole_field(record, "gpus")
        self.gpu_model = text_field(record, "gpu_model")
        self.cpus = optional_number(record, "cpus")
        memory_gib = optional_number(record, "memory_gib")
        self.millicpus = request_millicpus(self.cpus) if self.cpus is not None else None
        self.mebibytes = request_mebibytes(memory_gib) if memory_gib is not None else None


def read_jobs(record: Record) -> dict[str, JobDemand]:
    """The jobs of a submitted event by name; raises BadField."""
    jobs = [JobDemand(entry) for entry in records_field(record, "jobs")]
    by_name = {job.job: job for job in jobs}
    if not jobs or len(by_name) != len(jobs):
        raise BadField("has jobs that are empty or have a name twice")
    return by_name


class Gangs:
    """Checks placements against what was submitted."""

    def __init__(self, findings: Findings) -> None:
        self.checks = 0
        self._findings = findings

    def check(self, jobs: Mapping[str, JobDemand], claims: Sequence[Claim], *, as_asked: bool) -> None:
        """One placement of an attempt; `as_asked` also wants at least the CPUs and memory that were asked for."""
        self.checks += 1
        tasks: dict[str, set[int]] = {name: set() for name in jobs}
        for claim in claims:
            job = jobs.get(claim.job)
            if job is None:
                self._add(f"the placement has job {claim.job}, which the workload does not have")
                continue
            if claim.task in tasks[claim.job]:
                self._add(f"the placement has task {claim.task} of job {claim.job} twice")
            tasks[claim.job].add(claim.task)
            self._check_task(job, claim, as_asked=as_asked)
        for name, job in jobs.items():
            self._check_clusters(job, claims)
            placed = tasks[name]
            base = sum(task < job.tasks for task in placed)
            if base < job.tasks:
                first = next(task for task in range(job.tasks) if task not in placed)
                self._add(
                    f"the gang is torn: job {name} has {job.tasks} base tasks, but the placement lacks"
                    f" {job.tasks - base} of them (the first is task {first})"
                )
            if len(placed) > job.greatest_tasks or (placed and max(placed) >= job.greatest_tasks):
                self._add(
                    f"job {name} may have at most {job.greatest_tasks} tasks (0 to {job.greatest_tasks - 1}), but the"
                    f" placement has {len(placed)}, the last of which is task {max(placed)}"
                )

    def _check_clusters(self, job: JobDemand, claims: Sequence[Claim]) -> None:
        if job.across_clusters:
            return
        clusters = sorted({one.machine.cluster for one in claims if one.job == job.job and one.task < job.tasks})
        if len(clusters) > 1:
            self._add(
                f"the base tasks of job {job.job} are in clusters {', '.join(clusters)}, but it did not ask for"
                " across_clusters"
            )

    def _check_task(self, job: JobDemand, claim: Claim, *, as_asked: bool) -> None:
        if len(claim.gpus) != job.gpus:
            self._add(f"task {claim.task} of job {job.job} asked for {job.gpus} GPUs, but got {len(claim.gpus)}")
        elif job.gpus and job.gpu_model not in {ANY_GPU_MODEL, claim.machine.gpu_model}:
            self._add(
                f"task {claim.task} of job {job.job} asked for GPUs of model {job.gpu_model}, but machine"
                f" {claim.machine.name} has {claim.machine.gpu_model}"
            )
        if not as_asked:
            return
        if job.millicpus is not None and claim.millicpus < job.millicpus:
            self._add(
                f"task {claim.task} of job {job.job} asked for {job.millicpus / 1000:g} CPUs, but got"
                f" {claim.millicpus / 1000:g}"
            )
        if job.mebibytes is not None and claim.mebibytes < job.mebibytes:
            self._add(
                f"task {claim.task} of job {job.job} asked for {job.mebibytes / 1024:g} GiB of memory, but got"
                f" {claim.mebibytes / 1024:g}"
            )

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I2, sentence)
