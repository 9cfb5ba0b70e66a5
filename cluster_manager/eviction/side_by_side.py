"""Kernels that scan the candidates of several clusters side by side (step 1 of `victims`).

A cluster that suffices when all candidates of a priority are through needs no victims of a better one, so it beats
every cluster that does not suffice yet. Therefore no cluster is scanned further than the first one that suffices.
"""

from __future__ import annotations

from cluster_manager.capacity.attempts import PRIORITY, AttemptArrays
from cluster_manager.capacity.cluster_tables import TablesOfClusters
from cluster_manager.capacity.tables import Integers
from cluster_manager.capacity.task_kinds import PREFERRED
from cluster_manager.eviction.victims import room_now, scan_group, stands_worse
from cluster_manager.kernel_scratch import KernelScratch, Newcomer
from domain.tenant import LOWEST_PRIORITY
from kernels.compiled import compiled, compiled_part, constant

# Columns of the table of scans: one for each of the clusters that are searched.
ROOM = 0
"""For how many tasks there is capacity, with all candidates that were scanned gone."""
SCANNED = 1
"""How many candidates that are."""
VICTIMS = 2
"""How many of them are to be evicted; filled in by the search for a place."""
FIRST_CANDIDATE = 3
"""Its first place in the tables of candidates and victims ..."""
END_CANDIDATE = 4
"""... and the first behind its own."""
FIRST_OF_PRIORITY = 5
"""How many candidates have another priority than the one that is scanned."""
RANK = 6
"""The attempts of the priority that is scanned: from this rank in the order of eviction ..."""
END_RANK = 7
"""... up to this one."""
NEXT_PRIORITY = 8
"""Of the attempt there; NO_PRIORITY behind the last."""
SCAN_COLUMNS = 9

NO_PRIORITY = constant(-1)


@compiled_part
def priority_at(attempts: AttemptArrays, rank: int) -> int:
    """The priority of the attempt at this rank; NO_PRIORITY behind the last."""
    if rank < attempts.live[0]:
        return int(attempts.rows[attempts.order[rank], PRIORITY])
    return int(NO_PRIORITY)


@compiled_part
def begin_priority(attempts: AttemptArrays, newcomer: Newcomer, scans: Integers, index: int) -> None:
    """The next priority of a cluster: the ranks of those of its attempts that the newcomer may evict at some time."""
    rank = scans[index, END_RANK]
    priority = scans[index, NEXT_PRIORITY]
    scans[index, FIRST_OF_PRIORITY] = scans[index, SCANNED]
    scans[index, RANK] = rank
    while priority_at(attempts, rank) == priority and stands_worse(attempts, attempts.order[rank], newcomer):
        rank += 1
    scans[index, END_RANK] = rank
    scans[index, NEXT_PRIORITY] = priority_at(attempts, rank)


@compiled
def begin_scans(
    tables: TablesOfClusters, positions: Integers, newcomer: Newcomer, space: KernelScratch, scans: Integers
) -> bool:
    """Fills in the table of scans before any candidate is scanned; whether a cluster suffices already."""
    enough = False
    end = 0
    for index in range(len(positions)):
        cluster = tables[positions[index]]
        scans[index, ROOM] = room_now(cluster.machines, newcomer, space)
        enough = enough or scans[index, ROOM] >= newcomer.tasks
        scans[index, SCANNED] = 0
        scans[index, VICTIMS] = 0
        scans[index, FIRST_CANDIDATE] = end
        end += cluster.attempts.live[0]
        scans[index, END_CANDIDATE] = end
        scans[index, RANK] = 0
        scans[index, END_RANK] = 0
        scans[index, NEXT_PRIORITY] = priority_at(cluster.attempts, 0)
    return enough


@compiled
def scan_side_by_side(
    tables: TablesOfClusters, positions: Integers, newcomer: Newcomer, space: KernelScratch, scans: Integers
) -> int:
    """Scans the lowest priority in all clusters, then the next, until one of them suffices or all are through.

    Within a priority the machines of the first tier are scanned for in all clusters before those of the next. Returns
    the tier that was scanned last. What the candidates hold stays supposed to be released.
    """
    tier = PREFERRED
    for priority in range(LOWEST_PRIORITY, newcomer.victims_from_priority - 1, -1):
        for tier_of_priority in range(newcomer.tiers):
            tier = tier_of_priority
            enough = False
            for index in range(len(positions)):
                if tier == PREFERRED:
                    scans[index, RANK] = scans[index, END_RANK]
                    if scans[index, NEXT_PRIORITY] != priority:
                        continue
                elif scans[index, RANK] == scans[index, END_RANK]:
                    continue
                cluster = tables[positions[index]]
                if tier == PREFERRED:
                    begin_priority(cluster.attempts, newcomer, scans, index)
                scanned, room = scan_group(
                    cluster.machines,
                    newcomer,
                    cluster.attempts,
                    (scans[index, RANK], scans[index, END_RANK]),
                    tier,
                    (scans[index, FIRST_OF_PRIORITY], scans[index, SCANNED]),
                    scans[index, ROOM],
                    space.candidates[scans[index, FIRST_CANDIDATE] : scans[index, END_CANDIDATE]],
                )
                scans[index, SCANNED] = scanned
                scans[index, ROOM] = room
                enough = enough or room >= newcomer.tasks
            if enough:
                return int(tier)
    return int(tier)
