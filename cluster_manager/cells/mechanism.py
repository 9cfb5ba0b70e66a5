"""Cells as a placement mechanism (HiveD §3): guaranteed jobs in their virtual clusters, others on what is idle.

A guaranteed query of a tenant that owns no cells in the cluster, or none that could ever hold the job, is placed
opportunistically. Jobs without GPUs own no cells: packing places them, on the machines of all.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from cluster_manager.capacity.charging import ENTRY_COLUMNS, GPU_BITS, MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, RACK, RESOURCES, SHAPE, Integers
from cluster_manager.capacity.task_kinds import TIER, UNFIT, TaskKind
from cluster_manager.cells.beyond_cells import BeyondCells
from cluster_manager.cells.decisions import asked_cells, find_place, owned_cells, why_not
from cluster_manager.cells.gangs_of_jobs import gang_of, pinned_cell_of
from cluster_manager.cells.held_work import HeldWork, WorkKey
from cluster_manager.cells.reclaimed_amounts import Candidate, attempts_making_room, is_guaranteed, not_in_its_cells
from cluster_manager.cells.requests import CellRequest
from cluster_manager.cells.task_limits import Fits, TaskLimits
from cluster_manager.cells.work import Placement, TaskCells, Wait, WaitReason
from cluster_manager.mechanism import TASK_COLUMNS, AffinityLevel, CellChange, Place, Query, Shortfall, WhyWaiting
from cluster_manager.packing.locality_score import RACK_WEIGHT
from cluster_manager.packing.mechanism import Packing
from cluster_manager.recently_used import RecentlyUsed
from domain.cells import CellUse, TaskCellUse
from domain.diagnosis import Reason
from domain.eviction import Evictor, Victim, may_evict
from domain.identifiers import MachineId
from domain.placement import NO_TENANT, AttemptKey, Holding

PLACES_REMEMBERED = 1024
"""Places found last: which cells the places are that the region supposes to be taken while it tries further jobs."""
WAITS_REMEMBERED = 256
"""Of those that were asked about last."""
REASONS = MappingProxyType(
    {
        WaitReason.TOPOLOGY: Reason.TOPOLOGY,
        WaitReason.BAD_HARDWARE: Reason.CLUSTERS_TOO_SMALL,
        WaitReason.IN_USE: Reason.NO_ROOM,
        WaitReason.NEEDS_EVICTION: Reason.NO_ROOM,
        WaitReason.NOTHING_IDLE: Reason.NO_ROOM,
    }
)
"""What they are in a diagnosis."""
NO_WAIT = Wait(WaitReason.IN_USE, "")
KINDS_REMEMBERED = 4096
MOST_ROUNDS = 16
"""Places tried for one query because machines lack CPUs or memory for it."""

TOO_FEW_AMOUNTS = "machines whose GPUs are free have too few CPUs or too little memory left"


@dataclass(frozen=True, slots=True)
class _OnMachine:
    """What a place takes of one machine."""

    row: int
    tasks: int
    gpu_bits: int
    takes: tuple[int, ...]
    """Of each resource."""


class Cells:
    """The mechanism of one cluster."""

    __slots__ = ("_beyond", "_explained", "_fits", "_found", "_packing", "_work")

    def __init__(self, view: ClusterCapacity) -> None:
        """Raises HierarchyProblem and AssignmentProblem where the cluster's cells are declared wrongly."""
        self._work = HeldWork(view)
        self._packing = Packing()
        self._fits: RecentlyUsed[int, Fits] = RecentlyUsed(KINDS_REMEMBERED)
        """By the number of the kind of task."""
        self._beyond = BeyondCells(self._work)
        self._explained: RecentlyUsed[Hashable, Wait] = RecentlyUsed(WAITS_REMEMBERED)
        self._found: RecentlyUsed[bytes, Placement] = RecentlyUsed(PLACES_REMEMBERED)

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        """See `cells.guaranteed` and `cells.opportunistic` for the place and its victims."""
        if query.kind.gpus == 0:
            return self._find_without_gpus(query, view)
        answer = self._answer(query, view, explains=False)
        return answer if isinstance(answer, Place) else Shortfall(query.tasks - 1)

    def _find_without_gpus(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        """By packing. Of owners whom the workload pushes out elsewhere it gets no CPUs or memory: see `_answer`."""
        supposed = sum(1 for _ in view.suppositions())
        if supposed:
            self._work.bring_up_to_date(view)
            gone = self._work.machines_of_owners_supposed_gone(view, but_not_of=query.tenant)
            rows = np.array(sorted({view.number_of(machine) for machine in gone}), np.int64)
            left = np.zeros((len(rows), ENTRY_COLUMNS), np.int64)
            left[:, MILLICPUS:RESOURCES] = np.maximum(view.arrays.state[rows, MILLICPUS:RESOURCES], 0)
            left[:, MACHINE] = rows
            view.suppose_charged(left)
        found = self._packing.find(query, view)
        view.end_supposing(kept=supposed)
        evicts_owner = isinstance(found, Place) and any(victim.cells for victim in found.victims)
        return Shortfall(query.tasks - 1) if evicts_owner else found

    def why_waiting(self, query: Query, view: ClusterCapacity) -> WhyWaiting | None:
        """See `WaitReason`; remembered as long as the cells are the same."""
        if query.kind.gpus == 0:
            return None
        key = self.same_answer_key(query, view), view.revision
        known = self._explained.get(key)
        if known is None:
            wait = self.explain(query, view)
            known = wait if wait is not None else NO_WAIT
            self._explained.put(key, known)
        return WhyWaiting(REASONS[known.reason], known.sentence, known.asked, known.owned) if known.asked else None

    def explain(self, query: Query, view: ClusterCapacity) -> Wait | None:
        """Why the query, which asks for GPUs, has no place, with the cells asked for and owned; None if it has one."""
        answer = self._answer(query, view, explains=True)
        return answer if isinstance(answer, Wait) else None

    def _answer(self, query: Query, view: ClusterCapacity, *, explains: bool) -> Place | Wait | None:
        """The place, or why there is none; None where there is none and no reason is wanted."""
        self._work.bring_up_to_date(view)
        owners_gone = self._work.machines_of_owners_supposed_gone(view) if view.supposes else ()
        barred = dict.fromkeys(self._work.suppose(view, self._found) if view.supposes else ())
        fits = self._where_it_fits(query.kind, view)
        barred |= dict.fromkeys(fits.unfit)
        if not fits.chains:
            return Wait(
                WaitReason.TOPOLOGY, "no machine with GPUs of this cluster could hold one of the tasks", _asks(query)
            )
        request = self._request(query, fits)
        if isinstance(request, Wait):
            return request
        # Who pushes an owner out of its cells, by what it holds elsewhere, does not get these: it would have to leave them for it.
        barred_to_guests = barred | dict.fromkeys(owners_gone)
        if not request.guaranteed:
            return self._search(query, request, barred_to_guests, fits, view, explains=explains)
        answer = self._search(query, request, barred, fits, view, explains=explains)
        if isinstance(answer, Place) or not self._beyond.asked_for(query, fits, view):
            return answer
        guest = replace(request, virtual_cluster=None)
        return self._search(query, guest, barred_to_guests, fits, view, explains=explains)

    def _search(
        self,
        query: Query,
        request: CellRequest,
        barred: dict[MachineId, None],
        fits: Fits,
        view: ClusterCapacity,
        *,
        explains: bool,
    ) -> Place | Wait | None:
        """The same for one request, on none of the barred machines."""
        lacked = False
        for limited in (True, False) if fits.scarce else (False, True):
            if limited and not (fits.scarce or lacked):
                continue
            limits: TaskLimits | None = None
            if limited:
                # What is there may leave for an owner's job; others take what is left.
                limits = fits.limits if request.guaranteed else TaskLimits.now(query.kind, view, self._work.rows)
            found = self._search_within(query, request, barred, limits, view)
            if isinstance(found, Place | Wait):
                return found
            lacked = lacked or found
        if lacked:
            return Wait(WaitReason.IN_USE, TOO_FEW_AMOUNTS, _asks(query))
        return self._why_not(query, request, barred, fits) if explains else None

    def _search_within(
        self,
        query: Query,
        request: CellRequest,
        barred: dict[MachineId, None],
        limits: TaskLimits | None,
        view: ClusterCapacity,
    ) -> Place | Wait | bool:
        """The place within the limits; where there is none, whether machines whose GPUs would do lacked CPUs or memory."""
        protected, barred = self._protected(query), dict(barred)
        lacked = False
        for _ in range(MOST_ROUNDS):
            answer = find_place(self._work.cells, request, barred, protected, limits)
            if answer is None:
                return lacked
            taken = self._work.machines_supposed_taken(answer.victims)
            if taken:
                # A job of the same workload is to be there: it may use the owner's cells, but not be evicted for this one.
                barred |= dict.fromkeys(taken)
                continue
            victims = attempts_of(answer.victims)
            lacking = self._lacking(query, answer, victims, view)
            more = self._making_room(query, answer, lacking, victims, view)
            lacking = self._lacking(query, answer, (*victims, *more), view) if more else lacking
            if not lacking:
                return self._place(query, answer, (*victims, *more), view)
            barred |= dict.fromkeys(view.layout.machine_ids[row] for row in lacking)
            lacked = True
        return True

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        asks = query.kind.number, query.tasks, query.affinity, query.guaranteed, query.virtual_cluster
        if not query.may_evict:
            return asks
        now_s = query.now_s if view.time_matters else 0.0
        return *asks, query.standing, now_s, query.victims_from_priority

    def refusal_scope(self, query: Query, view: ClusterCapacity) -> Hashable:
        """Every virtual cluster has cells of its own; a preferred affinity only chooses between places."""
        owner = (
            query.virtual_cluster
            if query.guaranteed and not self._beyond.has_too_few_gpus(query, self._where_it_fits(query.kind, view))
            else None
        )
        return owner, query.affinity if query.affinity.hard else None

    def reclaims(self, query: Query) -> bool:
        """Work on the GPUs of its virtual cluster that owns no cells there leaves for it, whatever its standing."""
        return query.guaranteed and query.virtual_cluster in self._work.cells.virtual_clusters

    def cell_changes(self, view: ClusterCapacity) -> Sequence[CellChange]:
        """See `rebuild.restore`."""
        self._work.bring_up_to_date(view)
        return self._work.cell_changes()

    def bound_anew(self, view: ClusterCapacity) -> Sequence[CellChange]:
        """See `rebuild.seat_as_held`."""
        self._work.bring_up_to_date(view)
        return self._work.bound_anew()

    def required_victims(self, query: Query, victims: Sequence[AttemptKey], view: ClusterCapacity) -> tuple[bool, ...]:
        """Victims that need not leave are spared when a place is found; of those that are left it says nothing."""
        return tuple(False for _ in victims)

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        """It keeps no count: any release may have been enough."""
        return query.tasks

    def _where_it_fits(self, kind: TaskKind, view: ClusterCapacity) -> Fits:
        """The chains on which such tasks fit when they are empty, and the machines of these on which they do not."""
        known = self._fits.get(kind.number)
        if known is not None:
            return known
        fits_shape = kind.needs.table[:, TIER] != UNFIT
        names: list[str] = []
        unfit: list[MachineId] = []
        for chain, rows in zip(self._work.cells.chains, self._work.rows, strict=True):
            fits = fits_shape[view.arrays.fixed[rows, SHAPE]]
            if fits.any():
                names.append(chain.name)
                unfit += [chain.machines[machine] for machine in np.flatnonzero(~fits).tolist()]
        limits = TaskLimits.when_empty(kind, view, self._work.rows)
        found = Fits(tuple(names), tuple(unfit), limits, limits.bind(self._work.cells.chains))
        self._fits.put(kind.number, found)
        return found

    def _request(self, query: Query, fits: Fits) -> CellRequest | Wait:
        pinned_cell = pinned_cell_of(query.affinity)
        owns = query.guaranteed and bool(self._beyond.views_of(query, fits, pinned_cell))
        if pinned_cell is not None and not owns:
            why = "not its tenant's" if query.guaranteed else "for work within its tenant's quota only"
            return Wait(WaitReason.TOPOLOGY, f"pinned cell {pinned_cell} is {why}", _asks(query))
        return CellRequest(
            "query",
            gang_of(query.affinity, query.tasks, query.kind.gpus),
            query.tenant,
            query.virtual_cluster if owns and not self._beyond.has_too_few_gpus(query, fits) else None,
            query.standing,
            pinned_cell=pinned_cell,
            yields_to_downgrade=query.affinity.said is not None and query.affinity.said.yields_to_downgrade,
            may_evict=query.may_evict,
            chains=fits.chains,
        )

    def _why_not(self, query: Query, request: CellRequest, barred: Collection[MachineId], fits: Fits) -> Wait:
        """Why there is no place, and for an owner's job that its cells could never hold that they could not."""
        wait, cells = why_not(self._work.cells, request, barred), self._work.cells
        if request.guaranteed or not query.guaranteed or not self._beyond.views_of(query, fits, None):
            return wait
        why = f"that could never hold it, so it uses what others leave idle: {wait.why}"
        return Wait(
            wait.reason, why, wait.asked, owned_cells(cells, replace(request, virtual_cluster=query.virtual_cluster))
        )

    def _protected(self, query: Query) -> set[Hashable]:
        """The guaranteed work that may not be evicted for the query at the moment (`domain.eviction`)."""
        protected: set[Hashable] = set()
        if not query.may_evict:
            return protected
        cells = self._work.cells
        for key, view in cells.views.items():
            if key.virtual_cluster != query.virtual_cluster:
                continue
            for holder in view.holders():
                if not isinstance(holder, WorkKey) or not query.standing < cells.work[holder].request.standing:
                    continue
                if not _may_evict(query, self._work.holding(holder.attempt)):
                    protected.add(holder)
        return protected

    def _on_machines(self, query: Query, placement: Placement, view: ClusterCapacity) -> list[_OnMachine]:
        """What the place takes of each machine, in machine order."""
        table, shapes = query.kind.needs.table, view.arrays.fixed[:, SHAPE]
        held: dict[int, tuple[int, int]] = {}
        for task in placement.tasks:
            row = int(self._work.rows[task.chain][task.machine])
            tasks, bits = held.get(row, (0, 0))
            held[row] = tasks + 1, bits | task.bits
        return [
            _OnMachine(row, tasks, bits, tuple((tasks * table[shapes[row], :RESOURCES]).tolist()))
            for row, (tasks, bits) in sorted(held.items())
        ]

    def _lacking(
        self, query: Query, placement: Placement, victims: Sequence[AttemptKey], view: ClusterCapacity
    ) -> dict[int, Integers]:
        """What machines, by row, lack of CPUs or memory even after all that leave have left."""
        freed: dict[int, Integers] = {}
        for attempt in victims:
            for entry in view.entries_of(attempt):
                row = int(entry[MACHINE])
                freed[row] = freed.get(row, np.zeros(RESOURCES, np.int64)) + entry[:RESOURCES]
        arrays = view.arrays
        lacking: dict[int, Integers] = {}
        for there in self._on_machines(query, placement, view):
            available = arrays.state[there.row, :RESOURCES]
            if placement.request.guaranteed:
                # What is leaving is promised to others; an owner does not wait to be placed, but then for them to leave.
                available = available + arrays.leaving[there.row, :RESOURCES]
            if there.row in freed:
                available = available + freed[there.row]
            lack = np.array(there.takes, np.int64) - available
            if lack[MILLICPUS] > 0 or lack[MEBIBYTES] > 0:
                lacking[there.row] = lack
        return lacking

    def _making_room(
        self,
        query: Query,
        placement: Placement,
        lacking: Mapping[int, Integers],
        victims: Collection[AttemptKey],
        view: ClusterCapacity,
    ) -> tuple[AttemptKey, ...]:
        """The attempts, beside the victims, that leave so that these machines, by row, lack nothing: see
        `reclaimed_amounts`."""
        if not lacking or not (query.guaranteed and query.may_evict):
            return ()
        owned = self._owned_rows(query, placement, view)
        # Who leaves for another job of the workload makes no room a second time.
        gone = {released for _, released in view.suppositions() if released is not None}
        candidates = [
            Candidate(
                holding,
                entries,
                evictable=_may_evict(query, holding),
                of_others=holding.tenant not in (query.tenant, NO_TENANT),
            )
            for holding, leaving in view.held()
            if not (leaving or holding.key in victims or holding.key in gone)
            # For guests nobody leaves who has cells anywhere: who is pushed out as a guest would come back as an owner.
            and (placement.request.guaranteed or not is_guaranteed(holding))
            and len(entries := not_in_its_cells(holding, view))
        ]
        return attempts_making_room(lacking, candidates, owned)

    def _owned_rows(self, query: Query, placement: Placement, view: ClusterCapacity) -> frozenset[int]:
        """The machines, by row, of which an owner's job takes no more CPUs and memory than come with its GPUs, or with its tenant's
        cells there where nothing else is in these."""
        if placement.view is None:
            return frozenset()
        arrays, own_gpus = view.arrays, self._work.own_gpus(placement)
        rows: list[int] = []
        for there in self._on_machines(query, placement, view):
            capacity = arrays.shapes[arrays.fixed[there.row, SHAPE]]
            takes = np.array(there.takes[MILLICPUS:], np.int64)
            if (takes * capacity[GPUS] <= capacity[MILLICPUS:RESOURCES] * own_gpus[there.row]).all():
                rows.append(there.row)
        return frozenset(rows)

    def _place(
        self, query: Query, placement: Placement, attempts: Sequence[AttemptKey], view: ClusterCapacity
    ) -> Place | Wait:
        """The placement as the region compares it, unless one of the victims is of a better priority than it may be."""
        victims = tuple(self._work.holding(attempt) for attempt in attempts)
        if any(victim.standing.priority < query.victims_from_priority for victim in victims):
            return Wait(WaitReason.IN_USE, "another cluster needs victims of lower priority only", _asks(query))
        table, fixed = query.kind.needs.table, view.arrays.fixed
        in_order = self._in_order(placement)
        tasks = np.zeros((len(in_order), TASK_COLUMNS), np.int64)
        for number, task in enumerate(in_order):
            row = int(self._work.rows[task.chain][task.machine])
            need = table[fixed[row, SHAPE]]
            tasks[number] = row, need[MILLICPUS], need[MEBIBYTES], task.bits
        there = self._on_machines(query, placement, view)
        entries = np.zeros((len(there), ENTRY_COLUMNS), np.int64)
        for number, on_machine in enumerate(there):
            entries[number, :RESOURCES] = on_machine.takes
            entries[number, MACHINE], entries[number, GPU_BITS] = on_machine.row, on_machine.gpu_bits
        self._found.put(entries.tobytes(), placement)
        return Place(
            tasks,
            entries,
            victims,
            _spread(query, there, view),
            _left_idle(there, victims, view),
            cells=self._cell_use(placement, in_order),
            downgraded=tuple(
                (key.attempt, self._work.job_of(key)) for key in placement.downgraded if isinstance(key, WorkKey)
            ),
            own_cells=self._own_cells(query, placement, attempts),
        )

    def _own_cells(self, query: Query, placement: Placement, attempts: Sequence[AttemptKey]) -> tuple[AttemptKey, ...]:
        """The victims that use the owner's cells opportunistically: their GPUs, or the CPUs and memory that come with them."""
        if not placement.request.guaranteed:
            return ()
        work = self._work.cells.work
        seated = attempts_of([key for key in placement.victims if work[key].view is not None])
        opportunistic = attempts_of([key for key in placement.victims if work[key].view is None])
        return tuple(
            attempt
            for attempt in attempts
            if attempt in opportunistic or not (attempt in seated or _may_evict(query, self._work.holding(attempt)))
        )

    def _in_order(self, placement: Placement) -> list[TaskCells]:
        """The tasks as they are numbered: group after group, and those of a group that are alike in machine order."""
        in_order: list[TaskCells] = []
        for tasks in placement.request.gang.all_tasks():
            alike = placement.tasks[len(in_order) : len(in_order) + tasks.count]
            in_order += sorted(
                alike, key=lambda task: (self._work.rows[task.chain][task.machine], task.bits & -task.bits)
            )
        return in_order

    def _cell_use(self, placement: Placement, in_order: Sequence[TaskCells]) -> CellUse | None:
        """The cells of the tasks, in this order; None for opportunistic use."""
        request = placement.request
        if placement.view is None or request.virtual_cluster is None:
            return None
        view = self._work.cells.views[placement.view]
        chain = view.nodes.chain
        levels = [view.binding.owned_level(*task.pairs[0][:2]) for task in in_order]
        uses = tuple(
            TaskCellUse(chain.name_of(level), task.pairs) for level, task in zip(levels, in_order, strict=True)
        )
        return CellUse(
            request.tenant,
            request.virtual_cluster,
            chain.name,
            uses,
            request.pinned_cell,
            request.yields_to_downgrade,
        )


def _asks(query: Query) -> str:
    gang = gang_of(query.affinity, query.tasks, query.kind.gpus)
    return asked_cells(CellRequest("query", gang, query.tenant, None, query.standing))


def _may_evict(query: Query, holding: Holding) -> bool:
    """Whether the attempt may be evicted for the query at the moment (`domain.eviction`)."""
    victim = Victim(holding.standing, holding.spared, holding.evictable_from_s)
    return holding.standing.priority >= query.victims_from_priority and may_evict(
        Evictor(query.standing, query.guaranteed), victim, query.now_s
    )


def attempts_of(work: Sequence[Hashable]) -> tuple[AttemptKey, ...]:
    """The attempts that this work belongs to, each once."""
    return tuple(dict.fromkeys(key.attempt for key in work if isinstance(key, WorkKey)))


def _spread(query: Query, there: Sequence[_OnMachine], view: ClusterCapacity) -> int:
    """As `packing.locality_score.spread_of`."""
    if query.affinity.level is AffinityLevel.CLUSTER:
        return 0
    racks = {int(view.arrays.fixed[on_machine.row, RACK]) for on_machine in there}
    return (len(racks) - 1) * RACK_WEIGHT + len(there) - 1


def _left_idle(there: Sequence[_OnMachine], victims: Sequence[Holding], view: ClusterCapacity) -> float:
    """GPUs that are idle on these machines once the victims have left and the place is taken."""
    rows = {on_machine.row: on_machine.takes[GPUS] for on_machine in there}
    idle = sum(int(view.arrays.state[row, GPUS]) - takes for row, takes in rows.items())
    for victim in victims:
        idle += sum(int(entry[GPUS]) for entry in view.entries_of(victim.key) if int(entry[MACHINE]) in rows)
    return float(idle)
