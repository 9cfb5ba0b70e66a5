"""The place of a job on machines that were chosen already: what each task gets, and what the place is worth."""

from __future__ import annotations

from cluster_manager.capacity.cluster_tables import TablesOfClusters
from cluster_manager.capacity.tables import Integers
from cluster_manager.kernel_scratch import Choice, Newcomer, new_choice
from cluster_manager.mechanism import Place, Query
from cluster_manager.packing.locality_score import fragmentation_of, spread_of
from cluster_manager.packing.mechanism import newcomer_of
from cluster_manager.packing.search import handed_out
from domain.eviction import DEFAULT_RULE
from kernels.compiled import compiled


@compiled
def _on_machines(
    tables: TablesOfClusters, position: int, newcomer: Newcomer, machines: Integers, tasks: Integers
) -> tuple[int, float, Integers, Integers]:
    """Spread, fragmentation, tasks and entries."""
    choice: Choice = new_choice(len(machines))
    choice.length[0] = len(machines)
    for place in range(len(machines)):
        choice.machine[place] = machines[place]
        choice.tasks[place] = tasks[place]
    cluster = tables[position].machines
    spread, fragmentation = spread_of(cluster, newcomer, choice), fragmentation_of(cluster, newcomer, choice)
    placed, entries = handed_out(cluster, newcomer, choice)
    return spread, fragmentation, placed, entries


def place_on_machines(
    tables: TablesOfClusters, position: int, query: Query, machines: Integers, tasks: Integers
) -> Place:
    """So many tasks on each of these machines of the cluster at this position, which are in order and have the capacity."""
    spread, fragmentation, placed, entries = _on_machines(
        tables, position, newcomer_of(query, DEFAULT_RULE), machines, tasks
    )
    return Place(placed, entries, (), int(spread), float(fragmentation))
