"""What tasks take on each shape of machine: worked out once per kind of task, read by every kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.machine_shapes import GREATEST_AMOUNT, MOST_GPUS, MachineShape, MachineShapes
from cluster_manager.capacity.tables import GPUS, RESOURCES, Integers
from domain.resources import TaskResources, request_mebibytes, request_millicpus
from domain.workload import JobSpecification
from kernels.compiled import constant

MOST_OF_ALL = GREATEST_AMOUNT + 1
"""An amount that no machine has; larger ones are cut down to it."""
MOST_TASKS = 1 << 20
"""Of one job, so that products with GREATEST_AMOUNT stay within 64 bits."""
KINDS_REMEMBERED = 16_384
"""Distinct kinds of tasks; when there are more, all are forgotten and worked out anew."""

# More columns of a table of needs, behind what a task takes of each resource.
WHEN_EMPTY = 3
"""Tasks that an empty machine of the shape holds; 0 where it does not fit."""
TIER = 4
NEED_COLUMNS = 5
UNFIT = -1
PREFERRED = constant(0)
LAST_RESORT = constant(1)
"""A machine with GPUs, for a task without."""
MUCH = constant(1 << 62)


class Needs(NamedTuple):
    """What one task takes, as kernels read it."""

    table: Integers  # [shape, amounts | WHEN_EMPTY | TIER]
    least: Integers  # [resource] the least that a task needs on any shape that fits; MUCH when none does


@dataclass(frozen=True, slots=True, eq=False)
class TaskKind:
    """Tasks that ask for the same."""

    number: int
    """No other kind ever gets it: answers are remembered by it."""
    gpus: int
    millicpus: int
    """-1: the proportional share."""
    mebibytes: int
    """-1: the proportional share."""
    tiers: int
    """1, or 2 when there are machines that are only a last resort."""
    needs: Needs
    most_on_one: int
    """Tasks that the largest machine holds when empty, at least 1."""


class TaskKinds:
    """The kinds of tasks that were asked for, on some shapes of machines."""

    __slots__ = ("_known", "_next_number", "_shapes")

    def __init__(self, shapes: MachineShapes) -> None:
        self._shapes = shapes
        self._known: dict[TaskResources, TaskKind] = {}
        self._next_number = 0

    def of(self, job: JobSpecification) -> TaskKind:
        """The kind of the job's tasks.

        Raises ValueError for less than one task or more than MOST_TASKS, for an amount that is negative or no number,
        and for a task without GPUs that leaves CPUs or memory open.
        """
        if not 1 <= job.tasks <= MOST_TASKS:
            raise ValueError(f"job {job.name} asks for {job.tasks} tasks; 1 to {MOST_TASKS} are possible")
        kind = self._known.get(job.resources)
        if kind is None:
            if len(self._known) >= KINDS_REMEMBERED:
                self._known.clear()
            kind = self._known[job.resources] = self._work_out(job)
        return kind

    def _work_out(self, job: JobSpecification) -> TaskKind:
        resources = job.resources
        amounts = (float(resources.gpus), resources.cpus or 0.0, resources.memory_gib or 0.0)
        if not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
            raise ValueError(f"job {job.name} asks for tasks of {resources}: amounts must be numbers from 0 on")
        if resources.gpus == 0 and (resources.cpus is None or resources.memory_gib is None):
            raise ValueError(f"job {job.name} has no GPUs, so it must say how many CPUs and how much memory it needs")
        rows = [_row(shape, resources) for shape in self._shapes.shapes]
        fitting = [row for row in rows if row[TIER] != UNFIT]
        least = [min(amounts) for amounts in list(zip(*fitting, strict=True))[:RESOURCES]] or [MUCH] * RESOURCES
        self._next_number += 1
        return TaskKind(
            number=self._next_number,
            gpus=min(resources.gpus, MOST_GPUS + 1),
            millicpus=-1 if resources.cpus is None else min(request_millicpus(resources.cpus), MOST_OF_ALL),
            mebibytes=-1 if resources.memory_gib is None else min(request_mebibytes(resources.memory_gib), MOST_OF_ALL),
            tiers=2 if any(row[TIER] == LAST_RESORT for row in fitting) else 1,
            needs=Needs(np.array(rows, np.int64).reshape(-1, NEED_COLUMNS), np.array(least, np.int64)),
            most_on_one=max((row[WHEN_EMPTY] for row in fitting), default=1),
        )


def _row(shape: MachineShape, resources: TaskResources) -> tuple[int, ...]:
    """The row of a table of needs for one shape."""
    need = [min(amount, MOST_OF_ALL) for amount in shape.need_of(resources)]
    when_empty = shape.tasks_when_empty(resources, MOST_TASKS)
    if when_empty == 0:
        return (*need, 0, UNFIT)
    return (*need, when_empty, int(LAST_RESORT) if resources.gpus == 0 and shape.capacity[GPUS] > 0 else int(PREFERRED))
