"""Is what a job asks of its place consistent in itself? What there is of cells only the service knows."""

from __future__ import annotations

import re

from domain.affinity import CellAffinity, JobAffinity, TaskGroup, tasks_of
from domain.cells import MACHINE_LEVEL, RACK_LEVEL
from domain.identifiers import IDENTIFIER_PATTERN
from domain.workload import JobSpecification
from formats.problems import FieldProblem, in_quotes

GREATEST_DEPTH = 16
"""Of groups in groups."""
GREATEST_GROUPS = 200
"""Groups that are written down one by one; `count` makes many of one."""
LEVELS_WITHOUT_GPUS = (MACHINE_LEVEL, RACK_LEVEL)
"""Levels that are not made of GPUs."""

_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch


def check_affinity(job: JobSpecification, path: str) -> list[FieldProblem]:
    """Every problem of what the job asks of its place, in the order of the fields; `path` is that of the job."""
    affinity, problems = job.affinity, _Problems()
    if affinity.within is not None:
        problems.check_level(affinity.within, f"{path}.affinity")
        if job.consolidate:
            remedy = "to be consolidated is to be preferably within one machine; keep one of the two"
            problems.add(f"{path}.affinity.within", f"is given beside consolidate: {remedy}")
    if affinity.groups:
        problems.check_groups(affinity.groups, job.tasks, f"{path}.affinity.groups", f"{path}.tasks", 1)
    if affinity.pinned_cell and not _is_name(affinity.pinned_cell):
        problems.add(f"{path}.pinned_cell", f"must be the name of a pinned cell, not {in_quotes(affinity.pinned_cell)}")
    if job.resources.gpus == 0:
        problems.check_without_gpus(affinity, path)
    return problems.found


class _Problems:
    """What was found so far."""

    def __init__(self) -> None:
        self.found: list[FieldProblem] = []
        self._groups = 0

    def add(self, path: str, description: str) -> None:
        self.found.append(FieldProblem(path, description))

    def check_level(self, within: CellAffinity, path: str) -> None:
        if not _is_name(within.level):
            rule = "must be the name of a level of cells, such as machine or rack"
            self.add(f"{path}.within", f"{rule}, not {in_quotes(within.level)}")

    def check_groups(
        self, groups: tuple[TaskGroup, ...], tasks: int, path: str, path_of_tasks: str, depth: int
    ) -> None:
        """`tasks` is what the groups should have together, as the field at `path_of_tasks` says."""
        self._groups += len(groups)
        if depth > GREATEST_DEPTH or self._groups > GREATEST_GROUPS:
            limits = f"at most {GREATEST_GROUPS} groups, {GREATEST_DEPTH} within each other, are possible"
            self.add(path, f"are too many: {limits}; say count for groups that are alike")
            return
        counted = True
        for index, group in enumerate(groups):
            here = f"{path}[{index}]"
            counted &= self._check_counts(group, here)
            if group.within is not None:
                self.check_level(group.within, here)
            if group.groups:
                self.check_groups(group.groups, group.tasks, f"{here}.groups", f"{here}.tasks", depth + 1)
        together = tasks_of(groups)
        if counted and together != tasks:
            remedy = f"add a group of {tasks - together} for the rest" if together < tasks else "take some away"
            self.add(path, f"have {together} tasks together, but {path_of_tasks} is {tasks}; {remedy}")

    def _check_counts(self, group: TaskGroup, path: str) -> bool:
        before = len(self.found)
        for name, number in (("count", group.count), ("tasks", group.tasks)):
            if name == "tasks" and number == 0 and not group.groups:
                self.add(
                    f"{path}.tasks",
                    "is missing or 0; say how many tasks are in the group, or of which groups it is made",
                )
            elif type(number) is not int or number < 1:
                self.add(f"{path}.{name}", f"must be a whole number from 1 on, not {in_quotes(number)}")
        return len(self.found) == before

    def check_without_gpus(self, affinity: JobAffinity, path: str) -> None:
        """Cells are made of GPUs."""
        remedy = "is about cells of GPUs, and resources.gpus is 0; leave it out"
        if affinity.groups:
            self.add(f"{path}.affinity.groups", remedy)
        elif affinity.within is not None and affinity.within.level not in LEVELS_WITHOUT_GPUS:
            self.add(f"{path}.affinity.within", f"{remedy}, or say {' or '.join(LEVELS_WITHOUT_GPUS)}")
        if affinity.pinned_cell:
            self.add(f"{path}.pinned_cell", remedy)
        if affinity.yields_to_downgrade:
            self.add(f"{path}.yields_to_downgrade", remedy)
