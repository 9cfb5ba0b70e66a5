"""What a job asks of a cluster, in the inventory's integers."""

from __future__ import annotations

import math
from typing import NamedTuple

from cluster_manager.capacity.machines import GREATEST_AMOUNT, MOST_GPUS, Layout
from domain.identifiers import ANY_GPU_MODEL
from domain.resources import request_mebibytes, request_millicpus
from domain.workload import JobSpecification

ANY_MODEL = -1
NO_MODEL = -2
"""A model that no machine of the region has."""
PROPORTIONAL = -1
"""In place of an amount: the machine's own, divided by its GPUs, times the task's GPUs, rounded down."""
MOST_OF_ALL = GREATEST_AMOUNT + 1
"""An amount that no machine has; larger ones are cut down to it."""
MOST_TASKS = 1 << 20
"""Of one job, so that products with GREATEST_AMOUNT stay within 64 bits."""
REQUESTS_REMEMBERED = 16_384
"""Distinct requests to a region; when there are more, all are forgotten."""


class Request(NamedTuple):
    """A number of identical tasks, each on one machine, all in one cluster. Kernels take it as it is."""

    tasks: int
    gpus: int  # of each task
    model: int  # number of the GPU model, or ANY_MODEL or NO_MODEL
    millicpus: int  # of each task, or PROPORTIONAL
    mebibytes: int  # of each task, or PROPORTIONAL
    consolidate: bool


def request_of(layout: Layout, job: JobSpecification) -> Request:
    """The job's base tasks as a request to this region.

    Raises ValueError for less than one task or more than MOST_TASKS, for an amount that is negative or no number, and
    for a task without GPUs that leaves CPUs or memory open.
    """
    asked = (job.tasks, job.resources, job.consolidate)
    request = layout.requests.get(asked)
    if request is None:
        if len(layout.requests) >= REQUESTS_REMEMBERED:
            layout.requests.clear()
        request = layout.requests[asked] = _worked_out(layout, job)
    return request


def _worked_out(layout: Layout, job: JobSpecification) -> Request:
    resources = job.resources
    amounts = (float(resources.gpus), resources.cpus or 0.0, resources.memory_gib or 0.0)
    if not 1 <= job.tasks <= MOST_TASKS or not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
        raise ValueError(f"job {job.name} asks for {job.tasks} tasks (1 to {MOST_TASKS} are possible) of {resources}")
    if resources.gpus == 0 and (resources.cpus is None or resources.memory_gib is None):
        raise ValueError(f"job {job.name} has no GPUs, so it must say how many CPUs and how much memory it needs")
    if resources.gpus == 0 or resources.gpu_model == ANY_GPU_MODEL:
        model = ANY_MODEL
    else:
        model = layout.number_of_model.get(resources.gpu_model, NO_MODEL)
    return Request(
        tasks=job.tasks,
        gpus=min(resources.gpus, MOST_GPUS + 1),
        model=model,
        millicpus=PROPORTIONAL if resources.cpus is None else min(request_millicpus(resources.cpus), MOST_OF_ALL),
        mebibytes=PROPORTIONAL
        if resources.memory_gib is None
        else min(request_mebibytes(resources.memory_gib), MOST_OF_ALL),
        consolidate=job.consolidate,
    )
