"""Which victims of a workload of several jobs must surely go: each job looked at as if it were alone.

A quick test before the thorough one of placing all jobs once more without a victim.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.capacity.attempts import END_ENTRY, FIRST_ENTRY, AttemptArrays
from cluster_manager.capacity.charging import CLUSTER_END, MACHINE
from cluster_manager.capacity.machines import CLUSTER, FleetArrays, Integers, Layout
from cluster_manager.capacity.needs import Needs, new_needs, work_out_needs
from cluster_manager.capacity.requests import Request
from cluster_manager.eviction.victims import BOTH_TIERS, RELEASE, TAKE_BACK, release_in_thought
from cluster_manager.kernels.compiled import compiled, compiled_part
from cluster_manager.packing.best_fit import room_in_cluster
from cluster_manager.packing.placing import lift, put_back, table_of


@compiled
def mark_required(
    fleet: FleetArrays,
    attempts: AttemptArrays,
    requests: Integers,
    clusters: Integers,
    gone: Integers,
    needed: Integers,
) -> None:
    """Sets needed[i] to 1 where a job, alone in its cluster with all of `gone` away, would lack room if gone[i] stayed."""
    needs = new_needs(fleet)
    rack_room = np.empty(len(fleet.racks), np.int64)
    for row in gone:
        lift(fleet, attempts, row)
    for job in range(len(requests)):
        fields = requests[job]
        request = Request(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5] != 0)
        room = 0
        for tier in range(work_out_needs(fleet, request, needs)):
            room += room_in_cluster(fleet, needs, clusters[job], tier, request.tasks, rack_room)
        for index in range(len(gone)):
            if room + change_if_back(fleet, needs, request.tasks, attempts, gone[index], clusters[job]) < request.tasks:
                needed[index] = 1
    for row in gone:
        put_back(fleet, attempts, row)


@compiled_part
def change_if_back(
    fleet: FleetArrays, needs: Needs, tasks: int, attempts: AttemptArrays, row: int, cluster: int
) -> int:
    """By how much the room in a cluster would change if the attempt, which is away, were back."""
    change = 0
    entry = attempts.rows[row, FIRST_ENTRY]
    while entry < attempts.rows[row, END_ENTRY]:
        end = attempts.entries[entry, CLUSTER_END]
        if fleet.fixed[attempts.entries[entry, MACHINE], CLUSTER] == cluster:
            back, _ = release_in_thought(fleet, needs, tasks, attempts.entries, entry, end, BOTH_TIERS, TAKE_BACK)
            release_in_thought(fleet, needs, tasks, attempts.entries, entry, end, BOTH_TIERS, RELEASE)
            change += back
        entry = end
    return change


def find_required_victims(
    layout: Layout, attempts: AttemptArrays, requests: Sequence[Request], clusters: Sequence[int], gone: Sequence[int]
) -> tuple[bool, ...]:
    """Which of the attempts in rows `gone` must surely go so that each job has room in its cluster.

    One that is not among them may still have to go, for the jobs want room together.
    """
    needed = np.zeros(len(gone), np.int64)
    mark_required(
        layout.arrays, attempts, table_of(requests), np.array(clusters, np.int64), np.array(gone, np.int64), needed
    )
    return tuple(flag == 1 for flag in needed.tolist())
