"""Which victims of a workload of several jobs are surely required: each job looked at as if it were alone.

A quick test before the thorough one of placing all jobs once more without a victim.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.attempts import END_ENTRY, FIRST_ENTRY
from cluster_manager.capacity.charging import charge
from cluster_manager.capacity.cluster_tables import TablesOfClusters
from cluster_manager.capacity.fitting import tasks_in_cluster
from cluster_manager.capacity.tables import Integers
from cluster_manager.eviction.supposed_release import BOTH_TIERS, RELEASE, TAKE_BACK, suppose_released
from cluster_manager.kernel_scratch import Newcomer
from kernels.compiled import compiled


@compiled
def mark_required(
    tables: TablesOfClusters, position: int, newcomer: Newcomer, victims: Integers, required: Integers
) -> None:
    """Sets required[i] to 1 where the job, alone in the cluster at this position, would lack capacity if only victims[i] stayed."""
    cluster, attempts = tables[position].machines, tables[position].attempts
    rack_tasks = np.empty(len(cluster.rack_free), np.int64)
    for row in victims:
        charge(cluster, attempts.entries, attempts.rows[row, FIRST_ENTRY], attempts.rows[row, END_ENTRY], -1)
    room = 0
    for tier in range(newcomer.tiers):
        room += tasks_in_cluster(cluster, newcomer.needs, tier, newcomer.tasks, rack_tasks)
    for index in range(len(victims)):
        first, end = attempts.rows[victims[index], FIRST_ENTRY], attempts.rows[victims[index], END_ENTRY]
        change, _ = suppose_released(
            cluster, newcomer.needs, newcomer.tasks, attempts.entries, first, end, BOTH_TIERS, TAKE_BACK
        )
        suppose_released(cluster, newcomer.needs, newcomer.tasks, attempts.entries, first, end, BOTH_TIERS, RELEASE)
        if room + change < newcomer.tasks:
            required[index] = 1
    for row in victims:
        charge(cluster, attempts.entries, attempts.rows[row, FIRST_ENTRY], attempts.rows[row, END_ENTRY], 1)
