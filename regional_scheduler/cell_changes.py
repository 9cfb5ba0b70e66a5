"""Cells that live attempts lose and get back while they go on: asked by both drivers before they place anything new.

Rule: a downgraded attempt gets cells again as soon as its virtual cluster has some free where it is, the best standing first
(HiveD §3.1). One whose cells are not there any more, for machines or virtual clusters have changed, is downgraded.
"""

from __future__ import annotations

from cluster_manager.mechanism import CellChange
from domain.cells import CellsOfJobs, CellUse, cells_after
from domain.identifiers import JobName
from domain.placement import AttemptKey
from domain.plan import Downgrade, Restore
from regional_scheduler.region_capacity import RegionCapacity


def cell_changes(region: RegionCapacity) -> tuple[Downgrade | Restore, ...]:
    """What is to be done, to be carried out and written down at once: downgrades first. The region is as before."""
    if not region.in_cells:
        return ()
    changes = [change for mechanism, cluster in region.in_cells for change in mechanism.cell_changes(cluster)]
    if not changes:
        return ()
    losing = _by_attempt([change for change in changes if change.use.downgraded])
    getting = _by_attempt([change for change in changes if not change.use.downgraded])
    return (
        *[Downgrade(attempt, cells) for attempt, cells in losing],
        *[Restore(attempt, cells) for attempt, cells in getting],
    )


def bound_anew(region: RegionCapacity) -> tuple[tuple[AttemptKey, CellsOfJobs], ...]:
    """The attempts whose cells are others now, but alike, with what all their jobs use: for both drivers to write down."""
    changes = [change for mechanism, cluster in region.in_cells for change in mechanism.bound_anew(cluster)]
    if not changes:
        return ()
    return tuple(
        (attempt, cells_after(holding.cells, cells))
        for attempt, cells in _by_attempt(changes)
        if (holding := region.holding(attempt)) is not None
    )


def _by_attempt(changes: list[CellChange]) -> list[tuple[AttemptKey, CellsOfJobs]]:
    cells: dict[AttemptKey, list[tuple[JobName, CellUse]]] = {}
    for change in changes:
        cells.setdefault(change.attempt, []).append((change.job, change.use))
    return [(attempt, tuple(cells[attempt])) for attempt in sorted(cells)]
