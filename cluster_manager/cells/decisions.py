"""One question to a cluster divided into cells, and its answer: a place, or why there is none."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.gang import find_places
from cluster_manager.cells.guaranteed import place_guaranteed
from cluster_manager.cells.opportunistic import place_opportunistic
from cluster_manager.cells.requests import CellRequest
from cluster_manager.cells.task_limits import TaskLimits
from cluster_manager.cells.work import Placement, Wait, WaitReason
from domain.identifiers import MachineId


def decide(
    cells: CellCluster,
    request: CellRequest,
    barred: Collection[MachineId] = (),
    protected: Collection[Hashable] = (),
) -> Placement | Wait:
    """Where the request would go, on none of the barred machines. The cells are as before, whatever the answer.

    Work of its own virtual cluster that is protected is not evicted for it.

    Raises UnknownCells for a virtual cluster, a pinned cell or a GPU model that is not there.
    """
    return find_place(cells, request, barred, protected) or why_not(cells, request, barred)


def find_place(
    cells: CellCluster,
    request: CellRequest,
    barred: Collection[MachineId] = (),
    protected: Collection[Hashable] = (),
    limits: TaskLimits | None = None,
) -> Placement | None:
    """The place alone, within the limits; None where there is none, without the search for the reason, which costs more than
    the place."""
    if not request.guaranteed:
        return place_opportunistic(cells, request, barred, limits)
    return place_guaranteed(cells, request, barred, protected, limits)


def why_not(cells: CellCluster, request: CellRequest, barred: Collection[MachineId] = ()) -> Wait:
    """Why the request, which has no place, has none. Raises UnknownCells."""
    if not request.guaranteed:
        return Wait(WaitReason.NOTHING_IDLE, "not enough GPUs are idle and close enough", asked_cells(request))
    views = cells.views_for(request)
    asked, owned = asked_cells(request), owned_cells(cells, request)
    if all(find_places(request.gang, view.empty()) is None for _, view in views):
        return Wait(WaitReason.TOPOLOGY, "that could never hold it", asked, owned)
    if not request.may_evict and place_guaranteed(cells, replace(request, may_evict=True), barred) is not None:
        return Wait(WaitReason.NEEDS_EVICTION, "other work is there that it might evict", asked, owned)
    lower = [
        key for key, work in cells.work.items() if work.view is not None and request.standing < work.request.standing
    ]
    for _, view in views:
        if find_places(request.gang, view.free(lower if request.may_evict else (), ())) is not None:
            why = "too many of these are on machines that are out of use"
            return Wait(WaitReason.BAD_HARDWARE, why, asked, owned)
    return Wait(WaitReason.IN_USE, "too many of these are in use by work that it may not evict", asked, owned)


def owned_cells(cells: CellCluster, request: CellRequest) -> str:
    """The cells that may serve the request, in words: "2 node and 1 socket of chain V100"."""
    words: list[str] = []
    for number, view in cells.views_for(request):
        chain = cells.chains[number]
        levels = view.owned_levels
        counts = [f"{levels.count(k)} {chain.name_of(k)}" for k in range(chain.top, 0, -1) if k in levels]
        pinned = f" (pinned cell {view.key.pinned})" if view.key.pinned is not None else ""
        words.append(f"{' and '.join(counts)} of chain {chain.name}{pinned}")
    return "; ".join(words)


def asked_cells(request: CellRequest) -> str:
    """The gang in words: "3 tasks of 8 GPUs within one rack"."""
    counts: dict[int, int] = {}
    for tasks in request.gang.all_tasks():
        counts[tasks.gpus] = counts.get(tasks.gpus, 0) + tasks.count
    in_words = [
        f"{count} task{'s' if count > 1 else ''} of {gpus} GPU{'s' if gpus > 1 else ''}"
        for gpus, count in counts.items()
    ]
    hard = list(dict.fromkeys(affinity.level for affinity in request.gang.affinities() if affinity.hard))
    return " and ".join(in_words) + (f" within one {', one '.join(hard)}" if hard else "")
