"""How close together the tasks of a job are to be (HiveD §3.1), and which cells of a virtual cluster it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class CellAffinity(NamedTuple):
    """All within one cell of this level."""

    level: str
    """The name of a level, such as `machine` or `rack`; where there is none of that name, a hard affinity finds no place."""
    hard: bool = True
    """False: as close as that if possible, else anywhere."""


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks of a job that belong closer together than all of them do."""

    tasks: int
    """Of one such group, those of the groups in it among them."""
    within: CellAffinity | None = None
    groups: tuple[TaskGroup, ...] = ()
    """What it consists of, to the last task; empty: of tasks."""
    count: int = 1
    """How many such groups there are."""


@dataclass(frozen=True, slots=True)
class JobAffinity:
    """What a job asks of the place of its base tasks, beside their resources."""

    within: CellAffinity | None = None
    """Where all of them are to be."""
    groups: tuple[TaskGroup, ...] = ()
    """What they consist of, to the last task, in the order of their numbers; empty: they are all alike."""
    pinned_cell: str = ""
    """Only in the pinned cell of this name of the tenant's virtual cluster."""
    yields_to_downgrade: bool = False
    """Instead of being evicted by its own virtual cluster it may lose its cells and go on opportunistically."""

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing at all."""
        return self == NO_JOB_AFFINITY

    def affinities(self) -> Iterator[CellAffinity]:
        """Every affinity that is asked for, from the outermost on."""
        if self.within is not None:
            yield self.within
        yield from _affinities(self.groups)

    @property
    def is_hard(self) -> bool:
        """Whether there are places that it must not have though its tasks fit there."""
        return self.pinned_cell != "" or any(affinity.hard for affinity in self.affinities())


NO_JOB_AFFINITY = JobAffinity()


def tasks_of(groups: Sequence[TaskGroup]) -> int:
    """The tasks of all these groups."""
    return sum(group.count * group.tasks for group in groups)


def _affinities(groups: tuple[TaskGroup, ...]) -> Iterator[CellAffinity]:
    for group in groups:
        if group.within is not None:
            yield group.within
        yield from _affinities(group.groups)
