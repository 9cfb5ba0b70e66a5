"""Clusters whose manager cannot be reached get no new work: their machines are closed in memory until it is back.

A restart takes a few seconds and is no reason to plan around a cluster; a longer absence is. What runs there runs on, until
the cluster is declared lost (lost_clusters.py). The database is not touched: a machine's recorded state is about the machine, not about what can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

import structlog

from domain.fleet import MachineState, Region
from domain.identifiers import ClusterId, MachineId
from services.regional_scheduler.region_memory import RegionMemory

PATIENCE_REAL_S = 10.0

_log = structlog.get_logger(__name__)


class AbsentClusters:
    """Keeps track of which clusters can be reached; times are real seconds of any one clock."""

    def __init__(self, memory: RegionMemory, now_real_s: float) -> None:
        """In the beginning no manager has been reached."""
        self._memory = memory
        self._machines: Mapping[ClusterId, tuple[MachineId, ...]] = machines_by_cluster(memory.region)
        self._absent_since = dict.fromkeys(self._machines, now_real_s)
        self._closed = memory.closed
        self._lost: frozenset[ClusterId] = frozenset()

    def declared_lost(self, clusters: Collection[ClusterId]) -> None:
        """These clusters are lost, and no others: `look` closes them at once, and opens none of them."""
        self._lost = frozenset(clusters)

    def machines_changed(self, machines: Mapping[ClusterId, tuple[MachineId, ...]], now_real_s: float) -> None:
        """The region has these machines now, in the states that are recorded: `look` closes them again."""
        known, self._machines = self._machines, machines
        self._closed.clear()
        self._absent_since = {
            cluster: since_real_s for cluster, since_real_s in self._absent_since.items() if cluster in self._machines
        }
        self._absent_since |= dict.fromkeys((cluster for cluster in self._machines if cluster not in known), now_real_s)

    def machines_of(self, cluster: ClusterId) -> tuple[MachineId, ...]:
        """The machines of a cluster of the region, in the order of the region."""
        return self._machines.get(cluster, ())

    def lost(self, cluster: ClusterId, now_real_s: float) -> None:
        """Its manager cannot be reached any more."""
        self._absent_since.setdefault(cluster, now_real_s)

    def reached(self, cluster: ClusterId) -> None:
        """Its manager is back: `look` opens again what was closed for it."""
        self._absent_since.pop(cluster, None)

    def knows(self, machine: MachineId) -> bool:
        """Whether the region's memory has the machine."""
        return machine in self._memory.inventory.number_of_machine

    def set_state(self, machine: MachineId, state: MachineState) -> None:
        """An operator has set this machine's state: that counts, as soon as its cluster can be reached."""
        closed = self._closed.get(self._memory.inventory.cluster_of(machine))
        if closed is not None:
            closed.pop(machine, None)
            if state.takes_work:
                closed[machine] = state
                state = MachineState.DRAINING
        self._memory.inventory.set_machine_state(machine, state)

    async def look(self, now_real_s: float) -> None:
        """Opens the machines of clusters that are back, and closes those of clusters that have been away for too long."""
        memory = self._memory
        away = self._absent_since.keys() | self._lost
        for cluster in [cluster for cluster in self._closed if cluster not in away]:
            async with memory.steady:
                # In a thread: leases are kept, and calls answered, however many machines a cluster has.
                await asyncio.to_thread(_set_states, memory, self._closed[cluster])
                del self._closed[cluster]
        for cluster in [cluster for cluster in self._machines if cluster in away and cluster not in self._closed]:
            since_real_s = self._absent_since.get(cluster, now_real_s)
            if cluster not in self._lost and now_real_s - since_real_s < PATIENCE_REAL_S:
                continue
            async with memory.steady:
                self._closed[cluster] = await asyncio.to_thread(_close, memory, self._machines[cluster])
            machines = len(self._closed[cluster])
            _log.warning("cluster away or lost: no new work for its machines", cluster=cluster, machines=machines)


def machines_by_cluster(region: Region) -> dict[ClusterId, tuple[MachineId, ...]]:
    """The names of the machines of each cluster, in the order of the region."""
    return {cluster.cluster: tuple(machine.machine for machine in cluster.machines()) for cluster in region.clusters}


def _close(memory: RegionMemory, machines: Sequence[MachineId]) -> dict[MachineId, MachineState]:
    """Those that took work until now, and their states."""
    states = {machine: memory.inventory.machine_state(machine) for machine in machines}
    closed = {machine: state for machine, state in states.items() if state.takes_work}
    _set_states(memory, dict.fromkeys(closed, MachineState.DRAINING))
    return closed


def _set_states(memory: RegionMemory, states: Mapping[MachineId, MachineState]) -> None:
    for machine, state in states.items():
        memory.inventory.set_machine_state(machine, state)
