"""The attempts of a cluster as work in cells: brought up to date with the cluster's capacity whenever that has changed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.attempts import ChangedAttempt
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import NO_WORK, WORKS_AS, Integers
from cluster_manager.cells.binding import Inconsistent
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.gang import FreeGpus
from cluster_manager.cells.hierarchy import chains_of
from cluster_manager.cells.rebuild import CellHolding, HeldTask, restore, restored, seat_all
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from cluster_manager.cells.virtual_view import VirtualView
from cluster_manager.cells.work import Placement, Work
from cluster_manager.mechanism import CellChange
from cluster_manager.recently_used import RecentlyUsed
from domain.cells import CellUse, TaskCellUse, downgraded
from domain.identifiers import JobName, MachineId, TenantId
from domain.placement import AttemptKey, Holding, TaskPlacement, order_of_holding

_NO_REVISION = -1


class WorkKey(NamedTuple):
    """One job's part of an attempt, or all of it that uses no cells of a virtual cluster."""

    attempt: AttemptKey
    part: int


class _Supposed(NamedTuple):
    """The key of work that is only supposed."""

    number: int


class HeldWork:
    """The cells of one cluster with what its attempts hold.

    It can be made anew from the capacity at any time; between two questions only what has changed is done.
    """

    __slots__ = (
        "_astray",
        "_bound_anew",
        "_changes",
        "_held",
        "_jobs",
        "_parts",
        "_released",
        "_revision",
        "_sequences",
        "_supposed",
        "_takes_work",
        "_without_cells",
        "cells",
        "rows",
    )

    def __init__(self, view: ClusterCapacity) -> None:
        """Raises HierarchyProblem and AssignmentProblem where the cluster's cells are declared wrongly."""
        declared = view.description.cells
        self.cells = CellCluster(
            chains_of(view.description, declared.hierarchies),
            declared.virtual_clusters,
            weights=dict(declared.fair_share_weights),
            static_binding=declared.static_binding,
        )
        self.rows: list[Integers] = [
            np.array([view.number_of(machine) for machine in chain.machines], np.int64) for chain in self.cells.chains
        ]
        """[chain][machine] its row in the tables of the capacity."""
        self._takes_work = [np.ones(len(rows), np.bool_) for rows in self.rows]
        self._held: dict[AttemptKey, tuple[Holding, bool]] = {}
        self._parts: dict[AttemptKey, int] = {}
        self._revision = _NO_REVISION
        self._changes = -1
        """How many changes of attempts the capacity had seen when the cells were brought up to date last."""
        self._supposed: list[_Supposed] = []
        self._released: list[AttemptKey] = []
        """What was forgotten only because it was supposed to be gone."""
        self._astray: dict[AttemptKey, None] = {}
        """Attempts whose cells are not as they are held: to be taken in anew."""
        self._jobs: dict[WorkKey, JobName] = {}
        """Which job the work is, if it uses cells of its virtual cluster or asked for some."""
        self._without_cells: dict[WorkKey, None] = {}
        """Work that asked for cells of its virtual cluster and has none."""
        self._bound_anew: dict[WorkKey, None] = {}
        """Work that has other cells than it is held with, but alike."""
        self._sequences: dict[AttemptKey, dict[WorkKey, int]] = {}
        """In which order work came that is held; what it holds may have changed since."""

    def bring_up_to_date(self, view: ClusterCapacity) -> None:
        """The cells are as the capacity says, what is supposed at the moment not counted."""
        if view.revision == self._revision:
            return
        self._revision = view.revision
        for supposed in self._supposed:
            self.cells.release(supposed)
        self._supposed.clear()
        for attempt in self._astray:
            self.forget(attempt)
            self._released.append(attempt)
        self._astray.clear()
        self._take_machines(view)
        new: list[tuple[Holding, bool]] = []
        for attempt, holding, leaving in self._changed(view):
            known = self._held.get(attempt)
            if known is not None and known[0] is holding:
                if known[1] != leaving:
                    self._held[attempt] = holding, leaving
                    for key in self.keys_of(attempt):
                        self.cells.work[key].leaving = leaving
                continue
            if holding is not None:
                new.append((holding, leaving))
            else:
                self._sequences.pop(attempt, None)
            self.forget(attempt)
        self._take_in(sorted(new, key=lambda one: order_of_holding(one[0].key, one[0].started_s, one[1])))

    def _changed(self, view: ClusterCapacity) -> list[ChangedAttempt]:
        """Every attempt that may hold something else than is known here, with what it holds."""
        recently, self._changes = view.changed_attempts(self._changes)
        released, self._released = self._released, []
        if recently is None:
            leaving = {holding.key: is_leaving for holding, is_leaving in view.held()}
            attempts = dict.fromkeys([*self._held, *leaving])
            return [ChangedAttempt(attempt, view.holding(attempt), leaving.get(attempt, False)) for attempt in attempts]
        found = {changed.key: changed for changed in recently}
        for attempt in released:
            if (holding := view.holding(attempt)) is not None:
                found[attempt] = ChangedAttempt(attempt, holding, view.is_leaving(attempt))
        return list(found.values())

    def forget(self, attempt: AttemptKey) -> None:
        """The attempt holds nothing as far as the cells are concerned, until they are brought up to date again."""
        for key in self.keys_of(attempt):
            self.cells.release(key)
            self._jobs.pop(key, None)
            self._without_cells.pop(key, None)
            self._bound_anew.pop(key, None)
        self._held.pop(attempt, None)
        self._parts.pop(attempt, None)

    def keys_of(self, attempt: AttemptKey) -> Iterator[WorkKey]:
        """The keys of the attempt's work."""
        return (WorkKey(attempt, part) for part in range(self._parts.get(attempt, 0)))

    def job_of(self, key: WorkKey) -> JobName:
        """Which job of its attempt the work is. Raises KeyError for work that never used cells of a virtual cluster."""
        return self._jobs[key]

    def cell_changes(self) -> list[CellChange]:
        """The jobs that use other cells than is written down with them: downgraded ones that get cells again, as many as
        there are cells for; and such as lost theirs to a change of machines or virtual clusters."""
        if not self._without_cells:
            return []
        self._restore()
        changes = [self._change_of(key, self.cells.work[key]) for key in self._without_cells]
        return [change for change in changes if change is not None]

    def bound_anew(self) -> list[CellChange]:
        """The jobs that have other cells than is written down with them, but alike; those of what is leaving are left out.

        Hierarchies and levels may have other names, too: then the cells are found as those of downgraded work are.
        """
        if any(not self._use_of(key).downgraded for key in self._without_cells):
            self._restore()
        return [
            self._seated(key, work)
            for key in (*self._bound_anew, *self._without_cells)
            if (work := self.cells.work[key]).view is not None and not (work.leaving or self._use_of(key).downgraded)
        ]

    def _restore(self) -> None:
        """Gives back what there is; the cells are brought up to date with what is held before anything is decided."""
        back = restore(self.cells)
        self._astray.update((key.attempt, None) for key in back if isinstance(key, WorkKey))
        self._revision = _NO_REVISION if back else self._revision

    def _use_of(self, key: WorkKey) -> CellUse:
        (use,) = [use for name, use in self.holding(key.attempt).cells if name == self._jobs[key]]
        return use

    def _seated(self, key: WorkKey, work: Work) -> CellChange:
        chain = self.cells.chains[work.tasks[0].chain].name
        tasks = zip(work.owned_levels, work.tasks, strict=True)
        seated = tuple(TaskCellUse(level, task.pairs) for level, task in tasks)
        use = self._use_of(key)._replace(chain=chain, tasks=seated, downgraded=False)
        return CellChange(key.attempt, self._jobs[key], use)

    def _change_of(self, key: WorkKey, work: Work) -> CellChange | None:
        if work.leaving:
            return None
        use = self._use_of(key)
        if work.downgraded:
            return None if use.downgraded else CellChange(key.attempt, self._jobs[key], downgraded(use))
        return self._seated(key, work) if use.downgraded else None

    def holding(self, attempt: AttemptKey) -> Holding:
        """What the attempt holds. Raises KeyError."""
        return self._held[attempt][0]

    def machines_of_owners_supposed_gone(
        self, view: ClusterCapacity, but_not_of: TenantId | None = None
    ) -> list[MachineId]:
        """Where attempts (but not those of this tenant) that are supposed to leave have cells of their virtual clusters. To be asked
        before `suppose`."""
        work, chains = self.cells.work, self.cells.chains
        return [
            chains[task.chain].machines[task.machine]
            for _, released in view.suppositions()
            if released is not None
            for key in self.keys_of(released)
            if work[key].view is not None and work[key].request.tenant != but_not_of
            for task in work[key].tasks
        ]

    def suppose(self, view: ClusterCapacity, found: RecentlyUsed[bytes, Placement]) -> list[MachineId]:
        """Does as if what is supposed in the capacity were so, until the cells are brought up to date again.

        `found` are places that were found before, by the entries that they take: so it is known whose cells these are.
        Returns the machines that something else is charged on, of which that is not known.
        """
        self._revision = _NO_REVISION
        unknown: list[MachineId] = []
        for entries, released in view.suppositions():
            if released is not None:
                self.forget(released)
                self._released.append(released)
                continue
            placement = found.get(entries.tobytes())
            if placement is None or not self._suppose_placed(placement):
                unknown += [view.layout.machine_ids[row] for row in entries[:, MACHINE].tolist()]
        return unknown

    def own_gpus(self, placement: Placement) -> dict[int, int]:
        """By the row of the machine: of the virtual nodes that the guaranteed placement is in all GPUs, where nothing else is in the
        node but what leaves for it, and else those that it takes."""
        if placement.view is None:
            return {}
        view = self.cells.views[placement.view]
        own: dict[int, int] = {}
        taken: dict[tuple[int, int], int] = {}
        for task in placement.tasks:
            there = int(self.rows[task.chain][task.machine]), view.node_of(task.pairs[0])[0]
            taken[there] = taken.get(there, 0) + task.bits.bit_count()
        for (row, node), gpus in taken.items():
            others = [key for key in view.users(node, view.nodes.full[node]) if key not in placement.victims]
            own[row] = own.get(row, 0) + (gpus if others else int(view.nodes.sizes[node]))
        return own

    def machines_supposed_taken(self, keys: Collection[Hashable]) -> list[MachineId]:
        """The machines of such of this work as is only supposed to be there."""
        work, chains = self.cells.work, self.cells.chains
        return [
            chains[task.chain].machines[task.machine]
            for key in keys
            if isinstance(key, _Supposed)
            for task in work[key].tasks
        ]

    def free_beside_supposed(self, view: VirtualView) -> FreeGpus:
        """The cells of the view as if nothing were there but what is supposed, and all machines were usable."""
        return view.free([key for key in view.holders() if not isinstance(key, _Supposed)], ())

    def supposed_nodes(self, view: VirtualView) -> list[tuple[int, int]]:
        """The nodes of the view that supposed work uses, each with the row of its machine."""
        return [
            (view.node_of(task.pairs[0])[0], int(self.rows[task.chain][task.machine]))
            for key in self._supposed
            if (work := self.cells.work[key]).view == view.key
            for task in work.tasks
        ]

    def _suppose_placed(self, placement: Placement) -> bool:
        """False, with nothing done, where its cells are not free any more."""
        key = _Supposed(len(self._supposed))
        for loser in placement.unseated:
            if isinstance(loser, WorkKey) and (work := self.cells.work.get(loser)) is not None:
                self.cells.unseat(work)
                self._astray[loser.attempt] = None
        try:
            self.cells.add(replace(placement.request, key=key), placement.view, placement.tasks)
        except Inconsistent:
            return False
        self._supposed.append(key)
        return True

    def _take_machines(self, view: ClusterCapacity) -> None:
        for number, chain in enumerate(self.cells.chains):
            takes_work = view.arrays.state[self.rows[number], WORKS_AS] != NO_WORK
            for machine in np.flatnonzero(takes_work != self._takes_work[number]).tolist():
                self.cells.set_usable(chain.machines[machine], usable=bool(takes_work[machine]))
            self._takes_work[number] = takes_work

    def _take_in(self, new: list[tuple[Holding, bool]]) -> None:
        seats = []
        for holding, leaving in new:
            self._held[holding.key] = holding, leaving
            number = 0
            for number, (job, part) in enumerate(_parts_of(holding, leaving), 1):
                work, key = restored(self.cells, part), WorkKey(holding.key, number - 1)
                work.sequence = self._sequences.setdefault(holding.key, {}).setdefault(key, work.sequence)
                if job is not None:
                    self._jobs[key] = job
                seats.append((work, part))
            self._parts[holding.key] = number
        for work, part in seat_all(self.cells, seats):
            held_as = work.request.key
            if not isinstance(held_as, WorkKey):
                continue
            if work.downgraded:
                self._without_cells[held_as] = None
            elif work.view is not None and not _is_written_so(work, part):
                self._bound_anew[held_as] = None


def _is_written_so(work: Work, part: CellHolding) -> bool:
    """Whether the work has the very cells that are written down with it."""
    chain = work.view.chain if work.view is not None else ""
    return chain == part.chain and [task.pairs for task in work.tasks] == [task.pairs for task in part.tasks]


def _parts_of(holding: Holding, leaving: bool) -> Iterator[tuple[JobName | None, CellHolding]]:
    """The attempt's work: each job that uses cells of its virtual cluster, and, without a name, the rest that holds GPUs."""
    number = 0
    in_cells = {job for job, _ in holding.cells}
    for job, use in holding.cells:
        placements = [placement for placement in holding.placements if placement.job == job]
        if not placements:
            continue  # The job is in another cluster.
        tasks = tuple(
            HeldTask(placement.machine, _bits(placement), task.owned_level, task.pairs)
            for placement, task in zip(placements, _uses_of(use, len(placements)), strict=True)
        )
        request = _request(WorkKey(holding.key, number), holding, use, tasks)
        yield job, CellHolding(request, use.chain, tasks, leaving, use.downgraded)
        number += 1
    rest = tuple(
        HeldTask(placement.machine, _bits(placement))
        for placement in holding.placements
        if placement.gpu_indices and placement.job not in in_cells
    )
    if rest:
        yield None, CellHolding(_request(WorkKey(holding.key, number), holding, None, rest), "", rest, leaving)


def _uses_of(use: CellUse, tasks: int) -> tuple[TaskCellUse, ...]:
    """The cells of each task; of a job that was resized since these were written down, such as are alike."""
    if len(use.tasks) == tasks:
        return use.tasks
    return (TaskCellUse(use.tasks[0].owned_level),) * tasks


def _request(key: WorkKey, holding: Holding, use: CellUse | None, tasks: tuple[HeldTask, ...]) -> CellRequest:
    """What the work asked for, as far as it matters once it is placed."""
    gang = AffinityGroup((Tasks(len(tasks), max(task.bits.bit_count() for task in tasks)),))
    if use is None:
        return CellRequest(key, gang, holding.tenant, None, holding.standing)
    return CellRequest(
        key,
        gang,
        use.tenant,
        use.virtual_cluster,
        holding.standing,
        pinned_cell=use.pinned_cell,
        yields_to_downgrade=use.yields_to_downgrade,
    )


def _bits(placement: TaskPlacement) -> int:
    return sum(1 << gpu for gpu in placement.gpu_indices)
