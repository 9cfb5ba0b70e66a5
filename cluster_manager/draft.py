"""A plan in the making: where the inventory's machines are charged in thought, job by job, and all is undone.

Cheaper than holding an attempt: nothing is sorted in, nobody is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_manager.attempts import LiveAttempts
from cluster_manager.charging import charge, hand_out
from cluster_manager.machines import RESOURCES, Integers, Layout
from cluster_manager.packing import NONE
from cluster_manager.requests import Request
from cluster_manager.search import FRAGMENTATION, LOAD, SPREAD, Workspace, search
from domain.placement import Holding
from domain.rank import Standing


@dataclass(frozen=True, slots=True)
class Place:
    """Where one job would go, and whom it would evict for that. Machines are numbers, in machine order."""

    request: Request
    cluster: int
    machines: Integers
    tasks_on: Integers  # how many tasks on each of them
    need: Integers  # [machine of the place, resource] what one task takes there
    victims: tuple[int, ...]  # rows, in scan order
    spread: int
    fragmentation: float
    load: float


@dataclass(frozen=True, slots=True)
class Grant:
    """A place with the very resources of each task; tasks are numbered in machine order."""

    place: Place
    amounts: Integers  # [machine of the place, resource] of all tasks there
    gpu_bits: Integers  # [machine of the place]
    task_gpu_bits: Integers  # [task]


class Draft:
    """What is charged and whose charges are lifted in thought, until `undo`.

    The inventory must not be changed in between.
    """

    __slots__ = ("_attempts", "_grants", "_layout", "_lifted", "_workspace")

    def __init__(self, layout: Layout, attempts: LiveAttempts, workspace: Workspace) -> None:
        self._layout = layout
        self._attempts = attempts
        self._workspace = workspace
        self._grants: list[Grant] = []
        self._lifted: list[int] = []

    @property
    def lifted(self) -> tuple[int, ...]:
        """Rows of the attempts thought away, in the order in which they were."""
        return tuple(self._lifted)

    def find(
        self, request: Request, standing: Standing, now_s: float, *, evicting: bool, cluster: int | None = None
    ) -> Place | None:
        """The best place for a job, in the whole region or in one cluster; None exactly when there is none.

        With `evicting`, attempts of a worse standing are thought away where it does not fit otherwise.
        """
        first, end = (0, len(self._layout.cluster_ids)) if cluster is None else (cluster, cluster + 1)
        space = self._workspace
        found, count, victims = search(
            self._layout.arrays,
            request,
            evicting,
            standing,
            now_s,
            self._attempts.arrays,
            self._attempts.count,
            self._attempts.entries,
            first,
            end,
            space,
        )
        if found == NONE:
            return None
        return Place(
            request=request,
            cluster=found,
            machines=space.best.machine[:count].copy(),
            tasks_on=space.best.tasks[:count].copy(),
            need=space.needs.need[self._layout.arrays.machines.shape[space.best.machine[:count]]],
            victims=tuple(space.best_victims[:victims].tolist()),
            spread=int(space.best_quality[SPREAD]),
            fragmentation=float(space.best_quality[FRAGMENTATION]),
            load=float(space.best_quality[LOAD]),
        )

    def room_with_evictions(self) -> tuple[int, ...]:
        """For how many tasks each cluster had room at most, everybody worse evicted: after `find` said None to that."""
        return tuple(self._workspace.victims.room.tolist())

    def lift(self, row: int) -> None:
        """Thinks an attempt away, in every cluster of the region."""
        first, end = self._span(row)
        entries = self._attempts.entries
        charge(self._layout.arrays, entries.machine, entries.amounts, entries.gpu_bits, first, end, -1)
        self._attempts.arrays.evictable[row] = False
        self._lifted.append(row)

    def drop(self, row: int) -> None:
        """Puts back an attempt that was thought away."""
        self._lifted.remove(row)
        first, end = self._span(row)
        entries = self._attempts.entries
        charge(self._layout.arrays, entries.machine, entries.amounts, entries.gpu_bits, first, end, 1)
        self._attempts.arrays.evictable[row] = True

    def take(self, place: Place) -> Grant:
        """Charges the place; its victims must have been lifted."""
        count = len(place.machines)
        grant = Grant(
            place=place,
            amounts=np.empty((count, RESOURCES), np.int64),
            gpu_bits=np.empty(count, np.int64),
            task_gpu_bits=np.empty(place.request.tasks, np.int64),
        )
        hand_out(
            self._layout.arrays,
            place.need,
            place.machines,
            place.tasks_on,
            grant.amounts,
            grant.gpu_bits,
            grant.task_gpu_bits,
        )
        charge(self._layout.arrays, place.machines, grant.amounts, grant.gpu_bits, 0, count, 1)
        self._grants.append(grant)
        return grant

    def give_back(self) -> None:
        """Gives back all that was taken; who was lifted stays lifted."""
        while self._grants:
            grant = self._grants.pop()
            machines = grant.place.machines
            charge(self._layout.arrays, machines, grant.amounts, grant.gpu_bits, 0, len(machines), -1)

    def undo(self) -> None:
        """Gives everything back and puts everybody back."""
        self.give_back()
        while self._lifted:
            self.drop(self._lifted[-1])

    def holding_of(self, row: int) -> Holding:
        """What the attempt in that row holds."""
        live = self._attempts.by_row[row]
        if live is None:
            raise LookupError(f"row {row} holds no attempt")
        return live.holding

    def _span(self, row: int) -> tuple[int, int]:
        return int(self._attempts.arrays.first_entry[row]), int(self._attempts.arrays.end_entry[row])
